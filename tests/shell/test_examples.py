"""The projects under examples/ are real: they are run as their README says, from a copy."""

import re
import shutil
from pathlib import Path

import anthropic  # noqa: F401 - here, so that the suite inside need not import them again
import ollama  # noqa: F401
import openai  # noqa: F401
import pytest

import mockllm
from mockllm import files
from mockllm.core.faults.sets import BENIGN

pytest_plugins = "pytester"

EXAMPLES = Path(__file__).parents[2] / "examples"
CASSETTES = Path("tests") / "cassettes"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sample project, which is the current folder."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(
        EXAMPLES / "three_clients", pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    return pytester.path


def test_it_replays_on_several_workers_and_fails_on_a_miss(project: Path, pytester: pytest.Pytester) -> None:
    # by file, so that each worker imports few of the clients; Hypothesis takes a second too
    options = ["-n2", "--dist=loadfile", "-rs", "-p", "no:hypothesispytest"]
    result = pytester.runpytest_subprocess(*options, *sorted(Path("tests").glob("*.py")))
    outcomes = result.parseoutcomes()
    assert outcomes["errors"] == 1
    assert outcomes["passed"] > 20
    assert "failed" not in outcomes
    result.stdout.fnmatch_lines_random(
        [
            "*ERROR at teardown of test_a_question_that_was_never_recorded*",
            '*body: $.messages[[]0].content is "Say goodbye", recorded "Say hello"',
            "*the fault split:inside=utf8 had no effect*",
        ]
    )


def test_it_records_anew(project: Path, pytester: pytest.Pytester) -> None:
    place = project / CASSETTES / "test_openai_client" / "test_it_streams"
    (old,) = mockllm.load(place)
    with mockllm.replay(EXAMPLES / "three_clients" / CASSETTES / "test_openai_client", speed=0) as real:
        result = pytester.runpytest_inprocess(
            "--mockllm=record",
            f"--mockllm-upstream={real.base_url}",
            "tests/test_openai_client.py::test_it_streams",
        )
    result.assert_outcomes(passed=1)
    (new,) = mockllm.load(place)
    assert new.meta["recorded"] > old.meta["recorded"]
    assert (new.body, new.asked) == (old.body, old.asked)
    assert any(name.lower() == "user-agent" for name, _ in headers(new))


def headers(recorded: mockllm.Recorded) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in recorded.exchange.request.headers]


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.jsonl")), ids=lambda path: path.parent.name)
def test_the_recordings_are_genuine_or_say_that_they_are_written(path: Path) -> None:
    (exchange,) = files.read_all(path)
    genuine = "recorded" in exchange.meta and str(exchange.meta.get("upstream")).startswith("http://127.0.0.1:")
    assert genuine or exchange.meta.get("origin") == "written"
    assert not re.search(r'"/(home|root|tmp|Users)/', path.read_text(encoding="utf-8")), "a path of a machine"


def test_the_page_about_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    text = (EXAMPLES.parent / "docs" / "pytest.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    pytester.path.joinpath("test_page.py").write_text(code, encoding="utf-8")
    hello = (mockllm.shipped() / "hello.jsonl").read_bytes()
    for place in ("hello.jsonl", "test_page/test_by_place/000001.jsonl"):
        path = pytester.path / "cassettes" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hello)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2 + len(BENIGN) - 2)
