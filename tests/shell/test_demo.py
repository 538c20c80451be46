"""`mockllm demo`: what a newcomer reads, in a checkout and from a wheel, and that nothing of it stays."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mockllm import demo, files
from mockllm.bending import Bending
from mockllm.cli import main
from mockllm.core.errors import MockllmError
from mockllm.core.exchange import Request
from mockllm.demo import apart, ask, naive
from tests.peers.client import get
from tests.peers.command import cli
from tests.peers.script import Send
from tests.peers.server import RawServer
from tests.shell.tapes import plain, plain_wire, request, stream, write


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def told(text: str) -> None:
    """All that is to be seen is there, short and within a terminal."""
    lines = text.splitlines()
    assert 20 < len(lines) <= 40
    assert max(map(len, lines)) <= 105
    assert text.isascii() or set(re.sub(r"[ -~\n]", "", text)) <= set("…µ")
    sizes = re.findall(r"It gets (\d+) bytes in \d+ reads, the first after .*, the last after .*\.", text)
    assert sizes == ["5113", "5113"]
    assert re.search(r'^ +\[[0-9.]+,"head",', text, re.M)
    assert re.search(r"and every gap: \S+ \S+ off at the median, \S+ \S+ at most", text)
    assert "llama-server:   Tokens drift like snow:" in text
    assert "mlx_lm.server:  JSONDecodeError at the line ': keepalive 19/33'" in text
    assert "mockllm record http://127.0.0.1:8080 -o tapes" in text
    assert Bending.parse(re.findall(r"--fault (\S+)", text))


def test_the_story(temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxy the machine has: nothing leaves it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "example.com")
    before = signal.getsignal(signal.SIGTERM)
    finished = CliRunner().invoke(main, ["demo"])
    assert (finished.exit_code, finished.stderr) == (0, "")
    told(finished.stdout)
    assert list(temp.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.timeout(120)
def test_from_a_wheel_outside_the_checkout(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=110)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "temp").mkdir()
    environment = {"PYTHONPATH": str(tmp_path / "installed"), "TMPDIR": str(tmp_path / "temp")}
    finished = cli("demo", cwd=tmp_path / "installed", env=environment)
    assert (finished.status, finished.stderr) == (0, "")
    told(finished.stdout)
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_at_any_time(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "mockllm", "demo"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=environment
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("2. Record"):
                break
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Your turn" not in rest
    assert errors == "mockllm: stopped; nothing is left behind\n"
    assert list(tmp_path.iterdir()) == []


# --- its parts


def test_asking_ends_with_the_answer() -> None:
    with RawServer(lambda _: [Send(plain_wire("one"))]) as server:
        began = time.monotonic()
        got = ask(server.url, Request("GET", b"/x", ((b"Host", b""),)))
        assert time.monotonic() - began < demo.TIMEOUT_S / 2
        assert server.requests == [get("/x", host=f"127.0.0.1:{server.port}")]
    assert got.wire == plain_wire("one")
    assert got.body == b"one"


def test_how_far_apart_two_answers_came() -> None:
    """Counted from the first byte: that one server began later does not count; reads may be others."""
    one = ((100, b"ab"), (200, b"cd"), (300, b"ef"))
    assert apart(one, one) == ("0 µs", "0 µs")
    assert apart(one, tuple((at + 5000, data) for at, data in one)) == ("0 µs", "0 µs")
    assert apart(one, ((100, b"ab"), (230, b"cd"), (300, b"ef"))) == ("0 µs", "30 µs")
    assert apart(one, ((100, b"abc"), (350, b"def"))) == ("75 µs", "150 µs")


def test_a_weak_client_reads_streams_without_comments() -> None:
    body = b'data: {"choices":[{"delta":{"role":"x","content":null}}]}\n\ndata: {"choices":[]}\n\n'
    assert naive(body + b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n') == "hi"
    with pytest.raises(ValueError, match="Expecting value"):
        naive(b": ping\n\n" + body)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Other cassettes are shipped."""
    monkeypatch.setattr(files, "shipped", lambda: tmp_path)
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "llama-server").mkdir()
    (tmp_path / "quirks").mkdir()
    return tmp_path


CHAT = stream('{"choices":[{"delta":{"content":"hi"}}]}', "[DONE]")


def test_a_client_that_does_not_break_is_an_error(shipped: Path, temp: Path) -> None:
    write(shipped / demo.SERVER, request(json=1), *CHAT)
    write(shipped / demo.KEEPALIVES, request(json=1), *CHAT)
    with pytest.raises(MockllmError, match="should have broken, but read 'hi'"):
        list(demo.demo())


def test_a_replay_that_differs_is_an_error(shipped: Path, temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(shipped / demo.SERVER, request(json=1), *CHAT)
    true, asked = demo.ask, []

    def damaged(base_url: str, request: Request) -> demo.Got:
        asked.append(base_url)
        got = true(base_url, request)
        return got if len(asked) == 1 else demo.Got(got.reads[:-1], got.body)

    monkeypatch.setattr(demo, "ask", damaged)
    with pytest.raises(MockllmError, match="the replay differs from the recording"):
        list(demo.demo())
    assert not list(temp.glob("mockllm-demo-*"))


def test_a_tape_that_is_not_finished_is_an_error(shipped: Path, temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(shipped / demo.SERVER, request("/", "GET"), *plain("hi"))
    monkeypatch.setattr(demo, "TIMEOUT_S", 0)
    monkeypatch.setattr(demo, "ask", lambda *_: demo.Got((), b""))
    with pytest.raises(MockllmError, match="did not finish its tape"):
        list(demo.demo())
