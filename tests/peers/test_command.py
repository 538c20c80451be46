"""The helpers that run the command: ready when it listens, stopped by Ctrl-C, its words kept, failures told."""

import signal
from pathlib import Path

import pytest

from tests.conftest import Launch
from tests.peers.client import ask, get
from tests.peers.command import Running, cli

TAPE = """\
{"mockllm":1,"request":{"method":"GET","target":"/hello"}}
[1,"head",{"version":"1.0","status":200,"reason":"OK","headers":[]}]
[0,"data","hi"]
[0,"end","complete",{"then":"fin"}]
"""


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """A cassette of one exchange."""
    path = tmp_path / "hello.jsonl"
    path.write_text(TAPE)
    return path


def test_it_serves_until_it_is_stopped(launch: Launch, tape: Path) -> None:
    running = launch("replay", tape)
    assert running.ready_line.endswith(running.base_url)
    assert ask(running.host, running.port, get("/hello")).wire == b"HTTP/1.0 200 OK\r\n\r\nhi"
    assert "/hello" in running.wait_for("/hello")
    finished = running.stop(signal.SIGTERM)
    assert finished.status == 0
    assert finished.stdout.splitlines()[0] == running.ready_line
    assert "/hello" in finished.stderr


def test_a_kill_is_a_kill(launch: Launch, tape: Path) -> None:
    running = launch("replay", tape)
    running.kill()
    assert running.wait().status == -signal.SIGKILL


def test_what_never_comes_is_told(launch: Launch, tape: Path) -> None:
    running = launch("replay", tape)
    with pytest.raises(AssertionError, match="did not come 2 times"):
        running.wait_for("no such words", times=2, timeout_s=0.01)
    with pytest.raises(AssertionError, match="did not end within"):
        running.wait(timeout_s=0.01)
    assert running.process.poll() == -signal.SIGKILL


def test_a_command_that_is_never_ready_tells_why(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no ready line, status \d(?s:.*)no-such-folder"):
        Running("replay", tmp_path / "no-such-folder", "--port", "0")


def test_a_command_that_does_not_serve() -> None:
    assert cli("--version").stdout.startswith("mockllm")
    refused = cli("replay", "--no-such-option", input="")
    assert refused.status == 2
    assert "no-such-option" in refused.stderr
