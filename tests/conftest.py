"""What all tests share: how slow and real ones are chosen, how Hypothesis runs, and fixtures around the command."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest

from tests.peers.command import Running

# Tests of the plugin run pytest inside pytest, which forgets the modules that were first imported there. HTTP clients
# import their core lazily and keep its exceptions in tables: it must be there before.
for module in ("httpcore", "httpcore2"):
    with suppress(ImportError):
        import_module(module)

# a busy machine is no fault of the code under test
# and half of the usual examples keep the suite under three minutes on two cores
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize="CI" in os.environ, print_blob=True, max_examples=50
)
hypothesis.settings.load_profile("tests")

MLX_PYTHON = "MOCKLLM_MLX_PYTHON"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what takes long or needs more than Python, unless it was asked for."""
    slow = pytest.mark.skip(reason="slow: run with -m exhaustive")
    no_mlx = pytest.mark.skip(reason=f"no mlx-lm: run tests/real/setup and set {MLX_PYTHON} to the path it prints")
    for item in items:
        if item.get_closest_marker("exhaustive") and "exhaustive" not in config.option.markexpr:
            item.add_marker(slow)
        if item.get_closest_marker("real") and MLX_PYTHON not in os.environ:
            item.add_marker(no_mlx)


@pytest.fixture(autouse=True, scope="session")
def _no_proxies() -> Iterator[None]:
    """Clients in the tests talk to 127.0.0.1, whatever proxy the machine has."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        yield


class Launch(Protocol):
    """`launch` below."""

    def __call__(self, *args: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 20) -> Running: ...


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start `mockllm ARGS --port 0` in an empty folder and wait until it is ready: `launch("replay", folder)`.

    Whatever still runs when the test ends gets a Ctrl-C; that it does not end then fails the test.
    """
    folder = tmp_path / "cwd"
    folder.mkdir()
    started: list[Running] = []

    def start(*args: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 20) -> Running:
        running = Running(*args, "--port", "0", cwd=folder, env=env, timeout_s=timeout_s)
        started.append(running)
        return running

    yield start
    unwilling = []
    for running in started:
        if running.process.poll() is None:
            try:
                running.stop()
            except AssertionError as error:
                unwilling.append(str(error))
    assert not unwilling, "\n".join(unwilling)
