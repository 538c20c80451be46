"""`mockllm run` as a process of its own: what the command finds, and what becomes of its status and of signals."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import pytest

from mockllm.cli import main, running
from mockllm.cli.running import SHARED, run
from mockllm.environment import past_proxies
from tests.peers.command import Finished, cli
from tests.shell.tapes import plain, request, write

PYTHON = sys.executable
VARIABLES = ("MOCKLLM_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_HOST")
FETCH = "import os, urllib.request as u; print(u.urlopen(os.environ['OPENAI_BASE_URL'] + '/{}').read().decode())"
ASLEEP = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", request("/v1/a", "GET"), *plain("one"), request("/v1/b", "GET"), *plain("two"))


class Inside(Protocol):
    """`inside` below."""

    def __call__(self, *args: str | Path) -> Finished: ...


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    """`mockllm run ARGS` in this process, which is much faster; only its command is a process of its own."""
    monkeypatch.setattr(running, "steady", lambda: None)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)

    def call(*args: str | Path) -> Finished:
        with pytest.raises(SystemExit) as ended:
            main(["run", *map(str, args)])
        return Finished(int(str(ended.value.code or 0)), *capfd.readouterr())

    return call


def test_the_command_finds_the_replay(tape: Path) -> None:
    code = f"import os; print([os.environ[name] for name in {VARIABLES}])"
    done = cli("run", "-c", tape, "--", PYTHON, "-c", code)
    base, openai, anthropic, ollama = eval(done.stdout)
    assert base.startswith("http://127.0.0.1:")
    assert (openai, anthropic, ollama) == (f"{base}/v1", base, base)
    assert (done.status, done.stderr) == (0, "")


def test_it_answers_and_leaves_the_streams_alone(tape: Path) -> None:
    code = FETCH.format("a") + "; import sys; print(sys.stdin.read(), file=sys.stderr, end='')"
    done = cli("run", "-c", tape, PYTHON, "-c", code, input="from stdin")
    assert (done.status, done.stdout, done.stderr) == (0, "one\n", "from stdin")


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_status_is_the_commands(code: str, status: int, tape: Path, inside: Inside) -> None:
    assert inside("-c", tape, "--", PYTHON, "-c", code).status == status


def test_a_miss_fails_a_command_that_swallows_it(tape: Path, inside: Inside) -> None:
    code = f"import contextlib\nwith contextlib.suppress(Exception): {FETCH.format('c')}"
    done = inside("-c", tape, "--", PYTHON, "-c", code)
    assert done.status == 3
    assert "1. GET /v1/c: 404, no recording answers GET /v1/c; the nearest is" in done.stderr
    assert "1 requests were answered by no recording" in done.stderr


def test_a_commands_own_status_goes_before_a_miss(tape: Path, inside: Inside) -> None:
    assert inside("-c", tape, "--", PYTHON, "-c", FETCH.format("c")).status == 1


def test_unused_recordings(tape: Path, inside: Inside) -> None:
    done = inside("-c", tape, "--fail-unused", "--", PYTHON, "-c", FETCH.format("a"))
    assert (done.status, done.stderr) == (4, f"mockllm: {tape}:5 was never asked for\n")


def test_the_options_of_replay(tape: Path, inside: Inside, tmp_path: Path) -> None:
    options = ["--fault", "status:code=418", "--fault", "crlf", "--speed", "0", "--max-gap", "1s", "--match", "method"]
    journal = tmp_path / "journal.jsonl"
    done = inside("-c", tape, *options, "--journal", journal, "--", PYTHON, "-c", FETCH.format("z"))
    assert "418" in done.stderr
    assert '"match": "exact"' in journal.read_text(encoding="utf-8")
    wrong = inside("-c", tape, "--fault", "nonsense", "--", PYTHON, "-c", "")
    assert (wrong.status, wrong.stderr.count("\n")) == (2, 1)
    assert "unknown fault" in wrong.stderr


def test_every_shared_option_is_there() -> None:
    assert {option.name for option in run.params} == {*SHARED, "paths", "command"}


def test_a_command_that_is_not_there(tape: Path, inside: Inside, tmp_path: Path) -> None:
    done = inside("-c", tape, "--", "no-such-command")
    assert (done.status, done.stderr) == (127, "mockllm: cannot run no-such-command: there is no such command\n")
    done = inside("-c", tape, "--", tape)
    assert (done.status, done.stderr) == (126, f"mockllm: cannot run {tape}: permission denied\n")
    assert inside("-c", tape).status == 2
    assert inside("-c", tmp_path / "nothing", "--", "true").status == 2


def started(tape: Path, code: str, **more: object) -> "subprocess.Popen[bytes]":
    """A run whose command has said something."""
    words = [PYTHON, "-m", "mockllm", "run", "-c", str(tape), "--", PYTHON, "-c", code]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **more)  # type: ignore[call-overload]
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_passed_on(number: signal.Signals, status: int, tape: Path) -> None:
    process = started(tape, "import signal; signal.signal(2, signal.SIG_DFL);" + ASLEEP)
    process.send_signal(number)
    assert process.wait(15) == status
    process.communicate()


def test_what_a_command_makes_of_a_signal_counts(tape: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(5));" + ASLEEP
    process = started(tape, code)
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 5
    process.communicate()


def test_an_ignored_signal_stays_ignored(tape: Path) -> None:
    code = "import signal; print('up', flush=True); print(signal.getsignal(2) is signal.SIG_IGN, input())"
    process = started(tape, code, stdin=subprocess.PIPE, preexec_fn=lambda: signal.signal(2, signal.SIG_IGN))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(b"still here\n", timeout=15)
    assert (process.returncode, output) == (0, b"True still here\n")


def test_a_ctrl_c_at_the_terminal_reaches_the_command_once(tape: Path) -> None:
    """A terminal sends it to the command too: passed on, it would come twice."""
    code = (
        "import signal, time, sys\n"
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "print('up', flush=True)\n"
        "deadline = time.monotonic() + 20\n"
        "while not count and time.monotonic() < deadline: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print('came', len(count), flush=True)\n"
    )
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover - it becomes another program
        os.execv(PYTHON, [PYTHON, "-m", "mockllm", "run", "-c", str(tape), "--", PYTHON, "-c", code])
    seen = read_until(terminal, b"up")
    os.write(terminal, b"\x03")
    seen += read_until(terminal, rb"came \d+\r\n")
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert b"came 1\r\n" in seen, seen
    assert os.waitstatus_to_exitcode(status) == 0


def read_until(terminal: int, pattern: bytes, timeout_s: float = 30) -> bytes:
    seen = b""
    deadline = time.monotonic() + timeout_s
    while not re.search(pattern, seen) and time.monotonic() < deadline:
        try:
            seen += os.read(terminal, 1)
        except OSError:  # everybody has left it
            break
    return seen


def test_a_signal_that_comes_before_the_command_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(words: list[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
        os.kill(os.getpid(), signal.SIGTERM)
        return popen(words, env=env)

    popen, before = subprocess.Popen, signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(running.subprocess, "Popen", slow)
    assert running._finished([PYTHON, "-c", "import time; time.sleep(60)"], {}) == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("outside", "expected"),
    [
        ({}, None),
        ({"NO_PROXY": "a.test"}, None),
        ({"HTTPS_PROXY": "http://p"}, None),
        ({"http_proxy": ""}, None),
        ({"http_proxy": "http://p"}, "127.0.0.1"),
        ({"ALL_PROXY": "http://p", "NO_PROXY": "a.test"}, "a.test,127.0.0.1"),
        ({"HTTP_PROXY": "http://p", "no_proxy": "b.test", "NO_PROXY": "a.test"}, "b.test,127.0.0.1"),
    ],
)
def test_no_proxy_stands_between(outside: dict[str, str], expected: str | None) -> None:
    found = past_proxies("http://127.0.0.1:8800", outside)
    assert found == ({} if expected is None else {"no_proxy": expected, "NO_PROXY": expected})


def test_a_command_behind_a_proxy_reaches_the_replay(
    tape: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    done = inside("-c", tape, "--", PYTHON, "-c", FETCH.format("a"))
    assert (done.status, done.stdout) == (0, "one\n")
