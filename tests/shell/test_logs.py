"""What record and replay say on stderr: lines, objects, and live lines, seen as a terminal would show them."""

import asyncio
import fcntl
import io
import json
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockllm import logs as module
from mockllm.cli import common
from mockllm.cli.common import open_logs
from mockllm.core.loglines import UnderWay
from mockllm.logs import Logs, Style
from tests.conftest import Launch
from tests.peers.client import RawClient, ask, get
from tests.peers.framing import answer_end
from tests.peers.script import Hang, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import recording, replaying, wait_until
from tests.shell.tapes import chunk, head, plain, plain_wire, request, stream, write

CLEAR = "\x1b[J"


@dataclass
class Terminal:
    """As much of a terminal as is used: no line may be as wide as it, since one that wraps could not be taken back."""

    columns: int = 80
    rows: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    writes: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        self.writes.append(text)
        for part in re.findall(r"\x1b\[\d*[A-Z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\n":
                self.row += 1
                self.rows += [""] * (self.row + 1 - len(self.rows))
            elif part == CLEAR:
                del self.rows[self.row + 1 :]
                self.rows[self.row] = ""
            elif part.startswith("\x1b"):
                assert part[-1] == "A"
                self.row -= int(part[2:-1])
                assert self.row >= 0
            elif part != "\r":
                assert self.rows[self.row] == "", "written over what was there"
                self.rows[self.row] = part


def opened(style: Style, terminal: Terminal, size: tuple[int, int] = (80, 24)) -> Logs:
    return Logs(style, "replay", terminal.write, lambda: size)


@pytest.mark.parametrize(
    ("style", "lines"),
    [
        (Style.QUIET, ["mockllm: hear"]),
        (Style.LINES, ["mockllm: hear", "GET / 200"]),
        (Style.LIVE, ["mockllm: hear", "GET / 200"]),
    ],
)
def test_what_is_said_in_lines(style: Style, lines: list[str]) -> None:
    terminal = Terminal()
    logs = opened(style, terminal)
    logs.say("hear")
    logs.log("GET / 200")
    assert logs.report is None
    logs.close()
    assert "".join(terminal.writes) == "".join(f"{line}\n" for line in lines)


def test_what_is_said_as_objects() -> None:
    terminal = Terminal()
    logs = opened(Style.JSON, terminal)
    assert logs.report
    logs.say("he said\n\u2028é")
    logs.log("GET / 200")
    logs.report({"target": "/\x1b", "status": None})
    said, told = (json.loads(line) for line in terminal.writes)
    assert all(re.fullmatch(r"[^\n\x1b]+\n", line) for line in terminal.writes)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said.pop("at"))
    assert said == {"command": "replay", "message": "he said\n\u2028é"}
    assert told.pop("at")
    assert told == {"command": "replay", "target": "/\x1b", "status": None}


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("log"), st.from_regex(r"[a-z]{1,12}", fullmatch=True)),
            st.tuples(
                st.just("go on"), st.lists(st.tuples(st.from_regex(r"[A-Z]{0,30}", fullmatch=True), st.just("1 B")))
            ),
        ),
        max_size=12,
    )
)
def test_live_lines_stand_below_those_that_are_finished(steps: list[tuple[str, Any]]) -> None:
    terminal, going, finished = Terminal(), list[UnderWay](), list[str]()

    async def run() -> None:
        logs = opened(Style.LIVE, terminal, (20, 4))
        logs.watch(lambda: going)
        for what, value in steps:
            if what == "log":
                finished.append(value)
                logs.log(value)
            else:
                going[:] = value
                logs._tick(asyncio.get_running_loop())
            live = terminal.rows[len(finished) :]
            assert terminal.rows[: len(finished)] == finished
            assert len(live) <= 3
            assert all(len(line) <= 16 and line.endswith(("1 B", "more")) for line in live if line)
            assert len([line for line in live if line]) == min(3, len(going))
        logs.close()

    asyncio.run(run())
    assert terminal.rows == [*finished, ""]


def test_more_than_there_is_room_for_is_counted() -> None:
    terminal = Terminal()

    async def run() -> None:
        logs = opened(Style.LIVE, terminal, (30, 4))
        logs.watch(lambda: [(f"GET /{n}/a-long-target", "200, 1 B") for n in range(9)])

    asyncio.run(run())
    assert terminal.rows == ["GET /0/a-long-ta… 200, 1 B", "GET /1/a-long-ta… 200, 1 B", "and 7 more"]


def test_nothing_is_written_where_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, going = Terminal(), [("GET /", "1 B")]
    monkeypatch.setattr(module, "TICK_S", 0.001)

    async def run() -> None:
        looked, cleared = asyncio.Event(), asyncio.Event()
        times: list[int] = []

        def under_way() -> list[UnderWay]:
            times.append(1)
            if len(times) == 20:
                looked.set()
            return going

        def write(text: str) -> None:
            terminal.write(text)
            if len(terminal.writes) == 2:
                cleared.set()

        Logs(Style.LIVE, "replay", write).watch(under_way)
        await looked.wait()
        assert terminal.writes == ["GET / 1 B"]
        going.clear()
        await cleared.wait()
        assert terminal.writes[1:] == ["\r\x1b[J"]

    asyncio.run(asyncio.wait_for(run(), 10))


def test_only_a_terminal_is_watched() -> None:
    async def run() -> None:
        for style in (Style.QUIET, Style.LINES, Style.JSON):
            opened(style, Terminal()).watch(lambda: pytest.fail("it was looked at"))

    asyncio.run(run())


# --- what goes on in a recorder and in a replay

FIRST = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_exchange_of_a_recorder_that_goes_on(tmp_path: Path) -> None:
    script: Script = [Send(FIRST + chunk(": ping\n\n")), Send(chunk("data: 1\n\n")), Hang()]
    with RawServer([script]) as server, recording(server.url, tmp_path) as recorder:
        assert recorder.recorder.under_way() == []
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/x?key=secret"))
            client.read(lambda data: b"data: 1" in data)
            ((asked, came),) = recorder.recorder.under_way()
        recorder.log.wait()
        assert recorder.recorder.under_way() == []
    assert asked == "GET /x?key=[redacted]"
    assert re.fullmatch(r"200, 1 event, \d+ B, first byte \S+ \S+, first event \S+ \S+, \S+ \S+ so far", came), came
    assert re.search(r" 200, 1 event, \d+ B, first byte .*, first event .*, client \(it left", recorder.log.lines[0])


def test_an_exchange_of_a_recorder_that_is_still_being_sent(tmp_path: Path) -> None:
    with RawServer([[Hang()]], early=True) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
            wait_until(recorder.recorder.under_way)
            ((asked, came),) = recorder.recorder.under_way()
            client.leave(rst=True)
        recorder.log.wait()
    assert asked == "POST /x"
    assert re.fullmatch(r"no head, 0 B, nothing came, \S+ \S+ so far", came)


def test_an_exchange_of_a_replay_that_goes_on(tmp_path: Path) -> None:
    lines = stream("1", "2", "3", gap_ms=1)
    write(tmp_path / "a.jsonl", request("/", "GET"), *lines[:3], [3_600_000, "data", "data: 3\n\n"], *lines[4:])
    with replaying(tmp_path) as replay:
        with RawClient(replay.host, replay.port) as client:
            client.send(get("/"))
            client.read(lambda data: b"data: 2" in data)
            ((asked, came),) = replay.app.journal.under_way()
        replay.log.wait()
        assert replay.app.journal.under_way() == []
    assert asked == "GET /"
    assert re.fullmatch(r"200, 2 events, 108 B, first byte \S+ \S+, first event \S+ \S+, \S+ \S+ so far", came), came


# --- the commands

RECORDED = {"method", "target", "status", "events", "bytes", "first_byte_ms", "first_event_ms", "duration_ms", "end"}
PLAYED = RECORDED | {"session", "match", "recording", "faults", "late_median_ms", "late_max_ms", "error"}


def objects(text: str) -> list[dict[str, Any]]:
    """What was said, every line an object; without the keys that all have."""
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert one.pop("at")
        del one["command"]
    return found


def test_a_recorder_speaks_json(tmp_path: Path, launch: Launch) -> None:
    with RawServer(lambda _: [Send(plain_wire("ok"))]) as server:
        recorder = launch("record", server.url, "-o", tmp_path / "tapes", "--log-json")
        ask(recorder.host, recorder.port, get("/x?key=secret"), answer_end)
        recorder.wait_for("duration_ms")
    ask(recorder.host, recorder.port, get("/y"), answer_end)
    finished = recorder.stop()
    one, other, said = objects(finished.stderr)
    assert set(one) == set(other) == RECORDED | {"tape", "error"}
    assert one["target"] == "/x?key=[redacted]"
    assert (one["method"], one["status"], one["bytes"], one["end"], one["error"]) == ("GET", 200, 40, "complete", None)
    assert Path(one["tape"]).is_file()
    assert 0 < one["first_byte_ms"] <= one["duration_ms"]
    assert (one["events"], one["first_event_ms"]) == (0, None)
    assert (other["status"], other["end"], other["tape"], other["duration_ms"]) == (502, None, None, None)
    assert "refused" in other["error"]
    assert said == {"message": f"1 exchange recorded into {tmp_path}/tapes: 1 complete"}


def test_a_replay_speaks_json(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "a.jsonl", request("/", "GET"), *stream("1", "2", gap_ms=1))
    replay = launch("replay", tmp_path, "--log-json", "--fault", "crlf")
    ask(replay.host, replay.port, get("/"), answer_end)
    ask(replay.host, replay.port, get("/y"), answer_end)
    ask(replay.host, replay.port, b"junk\r\n\r\n")
    finished = replay.stop()
    one, other, refused, said = objects(finished.stderr)
    assert set(one) == set(other) == PLAYED
    assert (one["status"], one["events"], one["end"], one["match"]) == (200, 2, "complete", "exact")
    assert (one["session"], one["recording"], one["faults"]) == ("default", f"{tmp_path}/a.jsonl:1", ["crlf"])
    assert 0 < one["first_byte_ms"] <= one["first_event_ms"] <= one["duration_ms"]
    assert one["late_median_ms"] <= one["late_max_ms"]
    assert (other["status"], other["match"], other["recording"], other["end"]) == (404, "miss", None, None)
    assert "no recording answers GET /y" in other["error"]
    assert refused["message"].startswith("Invalid HTTP request")
    assert said == {"message": "1 request matched no recording"}


def test_quiet_leaves_out_exchanges_only(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "a.jsonl", request("/", "GET"), *plain("one"))
    replay = launch("replay", tmp_path, "--quiet")
    ask(replay.host, replay.port, get("/"), answer_end)
    ask(replay.host, replay.port, get("/y"), answer_end)
    assert replay.stop().stderr == "mockllm: 1 request matched no recording\n"


def test_quiet_and_json_exclude_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mockllm", "replay", "--quiet", "--log-json"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=20, check=False)
    assert (done.returncode, done.stderr) == (2, "mockllm: --quiet and --log-json exclude each other\n")


def test_what_the_parts_log_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(logging.getLogger("mockllm"), "handlers", [])
    open_logs("replay", quiet=False, log_json=True)
    logger = logging.getLogger("mockllm.anything")
    logger.info("of no interest")
    logger.warning("odd %s", "\x1b")
    logger.error("bad", exc_info=ValueError("why"))
    odd, bad = objects(capsys.readouterr().err)
    assert odd == {"message": "odd \\u001b"}
    assert bad == {"message": "bad\nValueError: why"}


def test_a_terminal_that_does_not_tell_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((100, 50)))
    assert common._size() == (100, 50)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert common._size() == (80, 24)


@dataclass
class AtTerminal:
    """A command whose stderr is a terminal of 24 rows and 100 columns; `text` is all it wrote there."""

    process: "subprocess.Popen[str]"
    host: str
    port: int
    pieces: list[bytes]
    reader: threading.Thread

    @property
    def text(self) -> str:
        return b"".join(self.pieces).decode()

    def stop(self) -> list[str]:
        """End it; the lines that then stand on the terminal."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(15) == 0
        self.reader.join(10)
        terminal = Terminal()
        terminal.write(self.text.replace("\r\n", "\n"))
        return terminal.rows


@contextmanager
def at_terminal(*args: str | Path, term: str = "xterm") -> Iterator[AtTerminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "mockllm", *map(str, args), "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    pieces: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # Linux: nobody has it open any more
                return
            if not data:
                return
            pieces.append(data)

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, encoding="utf-8", env={**environment, "TERM": term}
    ) as process:
        os.close(theirs)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        assert process.stdout
        port = int(process.stdout.readline().rpartition(":")[2])
        try:
            yield AtTerminal(process, "127.0.0.1", port, pieces, reader)
        finally:
            process.kill()
            process.wait()
            reader.join(10)
            os.close(ours)


def test_a_replay_at_a_terminal(tmp_path: Path) -> None:
    gap = [3_600_000, "data", "later"]
    write(
        tmp_path / "a.jsonl", request("/" + "long" * 40, "GET"), head(Content_Length="5"), gap, [0, "end", "complete"]
    )
    with at_terminal("replay", tmp_path) as replay:
        with RawClient(replay.host, replay.port) as client:
            client.send(get("/" + "long" * 40))
            wait_until(lambda: replay.text.count("so far") >= 3)
        wait_until(lambda: "the client left" in replay.text)
        rows = replay.stop()
    live = re.findall(r"GET /long[a-z]*… 200, 38 B, first byte [^,\r\n]*, [^,\r\n]* so far", replay.text)
    assert len(live) >= 3
    assert all(len(line) < 100 for line in live)
    assert len(rows) == 2
    assert rows[0].startswith("GET /longlong")
    assert rows[0].endswith(", the client left")
    assert rows[1] == ""


def test_a_recorder_at_a_terminal(tmp_path: Path) -> None:
    answers: list[Script] = [[Send(FIRST + chunk("data: 1\n\n")), Hang()]]
    with RawServer(answers) as server, at_terminal("record", server.url, "-o", tmp_path / "tapes") as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            wait_until(lambda: "1 event, " in recorder.text)
        wait_until(lambda: "it left" in recorder.text)
        rows = recorder.stop()
    assert re.match(r"GET / 200, 1 event, 94 B, first byte .*, client \(it left", rows[0]), rows
    assert rows[1:] == [f"mockllm: 1 exchange recorded into {tmp_path}/tapes: 1 client", ""]


@pytest.mark.parametrize(("term", "args"), [("dumb", []), ("xterm", ["--quiet"]), ("xterm", ["--log-json"])])
def test_no_live_lines(term: str, args: list[str], tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/", "GET"), *stream("1", "2", gap_ms=120))
    with at_terminal("replay", tmp_path, *args, term=term) as replay:
        ask(replay.host, replay.port, get("/"), answer_end)
        replay.stop()
    assert "\x1b" not in replay.text
    assert "so far" not in replay.text
