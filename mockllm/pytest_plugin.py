"""The pytest plugin: the fixture `mockllm`, its marks and options, and what a report says of it.

It costs next to nothing in a run that does not use it: the rest of mockllm is imported by the first test that does.
"""

import hashlib
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mockllm.api import ReplayServer
    from mockllm.testing import Bench, Plan, Trial

MODES = ("replay", "record", "auto", "off")
NAME_LENGTH = 80
"""What a test is called in a path or URL is cut to about so many characters."""

_BENCH: "pytest.StashKey[Bench]" = pytest.StashKey()
_TRIAL: "pytest.StashKey[Trial]" = pytest.StashKey()
_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mockllm", "recorded LLM servers")
    group.addoption(
        "--mockllm",
        choices=MODES,
        default="replay",
        help="Who answers tests: recordings only (replay, the default, and always where CI is set); the real server, "
        "whose answers become the cassettes (record); it where there is no recording (auto); or without mockllm "
        "between (off).",
    )
    group.addoption("--mockllm-upstream", metavar="URL", help="The real server: http://127.0.0.1:8080.")
    group.addoption(
        "--mockllm-fail-unused", action="store_true", help="A test fails that did not ask for all its recordings."
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "mockllm(*cassettes, faults=, match=, speed=, upstream=, ...): what the fixture mockllm plays, and how; paths "
        "are relative to the test's file, the options are those of mockllm.replay.",
    )
    config.addinivalue_line(
        "markers",
        "mockllm_faults(*specs, without=()): run the test once with each of these faults; 'benign' are all that a "
        "client must not notice.",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    bench = config.stash.get(_BENCH, None)
    if bench is not None:
        bench.close()


def pytest_report_header(config: pytest.Config) -> str | None:
    asked, mode = config.getoption("--mockllm"), _mode(config)
    if asked != mode:
        return f"mockllm: {mode}, since CI is set (--mockllm={asked} is not heeded)"
    return None if mode == "replay" else f"mockllm: {mode}"


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("mockllm_faults")
    if mark is None:
        return
    if "mockllm_fault" not in metafunc.fixturenames:
        pytest.fail("the mark mockllm_faults is for tests that use the fixture mockllm", pytrace=False)
    specs = _specs(mark.args, **mark.kwargs) if _mode(metafunc.config) in ("replay", "auto") else ["none"]
    metafunc.parametrize("mockllm_fault", specs, ids=specs, indirect=True)


@pytest.fixture
def mockllm_fault(request: pytest.FixtureRequest) -> str:
    """The fault of this run of a test with the mark mockllm_faults; "none" where there is none."""
    return str(getattr(request, "param", "none"))


@pytest.fixture
def mockllm(request: pytest.FixtureRequest, mockllm_fault: str) -> "Iterator[ReplayServer]":
    """A recorded LLM server for this test: `mockllm.base_url`, `mockllm.openai_base_url`, `mockllm.journal`, ...

    It plays the cassettes of the mark mockllm, by default those in `cassettes/<module>/<test>/` beside the test's file.
    A request that no recording answers fails the test.
    """
    item, config = request.node, request.config
    bench = _bench(config)
    folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    with _failing():
        plan = _plan(item, mockllm_fault)
        trial = bench.open(_name(item), plan, lambda: folders.mktemp("mockllm"))
    item.stash[_TRIAL], item.stash[_PASSED] = trial, False
    yield trial.server
    bench.end(trial)
    complaints = trial.complaints(fail_unused=config.getoption("--mockllm-fail-unused"))
    if complaints:
        pytest.fail("\n".join(("mockllm:", *complaints, *_hint(item, plan))), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    trial = item.stash.get(_TRIAL, None)
    if trial is None:
        return report
    if report.failed:
        report.sections.append(("mockllm journal", trial.report()))
    if call.when == "call":
        item.stash[_PASSED] = report.passed
        idle = trial.idle_fault if report.passed else None
        if idle is not None:  # nothing was shown by that it passed
            path, line, _ = item.reportinfo()
            report.outcome, report.longrepr = "skipped", (str(path), (line or 0) + 1, f"Skipped: {idle}")
    elif call.when == "teardown":
        del item.stash[_TRIAL]  # items live as long as the run
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    trial = item.stash.get(_TRIAL, None)
    if trial is not None and item.stash[_PASSED]:
        with _failing():
            trial.keep()


@contextmanager
def _failing(what: str = "") -> Iterator[None]:
    """What mockllm says fails the test, in a line."""
    from mockllm.core.errors import MockllmError

    try:
        yield
    except MockllmError as error:
        raise pytest.fail.Exception(f"{what}{error}", pytrace=False) from None


def _mode(config: pytest.Config) -> str:
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return "replay" if in_ci else str(config.getoption("--mockllm"))


def _bench(config: pytest.Config) -> "Bench":
    if _BENCH not in config.stash:
        from mockllm.testing import Bench

        config.stash[_BENCH] = Bench()
    return config.stash[_BENCH]


def _specs(args: Sequence[str], without: str | Sequence[str] = ()) -> list[str]:
    """The faults of a mark mockllm_faults, each once, the names of sets replaced by what is in them."""
    from mockllm.bending import Bending
    from mockllm.core.faults.sets import SETS

    left_out = {without} if isinstance(without, str) else set(without)
    specs = [spec for arg in args for spec in SETS.get(arg, (arg,))]
    with _failing(f"mockllm_faults takes a set ({', '.join(SETS)}) or faults: "):
        for spec in specs:
            Bending.parse([spec])
    return [spec for spec in dict.fromkeys(specs) if spec not in left_out and spec.partition(":")[0] not in left_out]


def _plan(item: pytest.Item, fault: str) -> "Plan":
    """What the marks of a test say, the closest last. Raises MockllmError."""
    from mockllm.core.errors import UsageError
    from mockllm.core.faults.spec import join
    from mockllm.testing import Mode, Plan
    from mockllm.wishes import Wishes

    paths: tuple[Path, ...] = ()
    given: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers("mockllm"))):
        paths = tuple(item.path.parent / path for path in mark.args) or paths
        given |= mark.kwargs
    if given.get("on_miss") in ("record", "forward"):
        raise UsageError(f"on_miss={given['on_miss']!r} is for servers: tests take --mockllm=record or auto")
    upstream = given.pop("upstream", None) or item.config.getoption("--mockllm-upstream")
    try:
        wishes = Wishes(**given | {"faults": join([given.get("faults", ""), *([fault] if fault != "none" else [])])})
    except TypeError as error:
        raise UsageError(f"the mark mockllm takes other options: {error}") from None
    default = item.path.parent / "cassettes" / item.path.stem / _name(item)
    return Plan(Mode(_mode(item.config)), paths or (default,), not paths, wishes, upstream, fault)


def _hint(item: pytest.Item, plan: "Plan") -> list[str]:
    """How to mend what went wrong, where that is known."""
    if plan.mode.value != "replay":
        return []
    return [f"to record: pytest --mockllm=record --mockllm-upstream URL {item.nodeid!r}"]


def _name(item: pytest.Item) -> str:
    """What a test is called in a path: its class and name and its own parameters, not the fault of this run."""
    base = str(getattr(item, "originalname", None) or item.name)
    parameters = item.name.removeprefix(base).removeprefix("[").removesuffix("]")
    fault = item.callspec.params.get("mockllm_fault") if hasattr(item, "callspec") else None
    if fault is not None:  # the last one, but for those of hooks that are as late as ours
        parameters = f"-{parameters}-".replace(f"-{fault}-", "-", 1).strip("-")
    owner = getattr(item, "cls", None)
    named = "-".join(filter(None, (f"{owner.__qualname__}.{base}" if owner else base, parameters)))
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", named).strip("-.")
    if plain == named and len(plain) <= NAME_LENGTH:
        return plain
    # what was lost may have been all that two tests differ in
    return f"{plain[:NAME_LENGTH]}-{hashlib.blake2b(named.encode(), digest_size=3).hexdigest()}"
