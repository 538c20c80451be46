"""Record, then replay, on real sockets: what the server sent is what the client behind the recorder got, what the tape
holds and what a client of the replay gets: bytes, read boundaries, ending, times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mockllm.core.exchange import Exchange
from mockllm.core.response import End, Then
from tests.peers.captures import Capture, captures, from_capture, load
from tests.peers.client import Answer, RawClient, borders, get, post
from tests.peers.common import Ended
from tests.peers.connection import Connection
from tests.peers.script import Fin, Hang, Lockstep, Rst, Script, Send, Step, Wait
from tests.peers.server import RawServer
from tests.shell.serving import recording, replaying

LATE_US = 400_000
"""How late a busy machine may be before it counts as a fault."""
ASK = post("/v1/chat/completions", b'{"model":"m","stream":true}')
SLACK_US = 3_000
"""A client takes the time of its request after it was sent: by then the server may have it for a while."""
OPEN_MS = 120
"""A connection on which nothing happens for so long (more than the recorder watches) is open."""


def pieces(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH_5 = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
CLOSED = "HTTP/1.0 200 OK\r\nServer: BaseHTTP/0.6\r\nContent-type: text/event-stream\r\n\r\n"

FRAMINGS: dict[str, tuple[list[bytes], bool]] = {
    # name: the reads, and whether the answer is complete without the connection's end
    "length": (pieces(LENGTH_5, "he", "llo"), True),
    "length in one read": (pieces(LENGTH_5 + "hello"), True),
    "length 0": (pieces("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), True),
    "chunked": (pieces(CHUNKED, "5\r\nhello\r\n", "1\r\n!\r\n", "0\r\n\r\n"), True),
    "chunked in one read": (pieces(CHUNKED + "5\r\nhello\r\n0\r\n\r\n"), True),
    "chunked, cut anywhere": (pieces(CHUNKED + "5", "\r", "\nhel", "lo\r", "\n0", "\r\n\r", "\n"), True),
    "chunked with extensions": (
        pieces(CHUNKED, "05;x=y\r\nhello\r\n", "A ; z\r\n0123456789\r\n", "00;last\r\n\r\n"),
        True,
    ),
    "chunked with trailers": (pieces(CHUNKED, "5\r\nhello\r\n", "0\r\nT: 1\r\n", "Digest: x\r\n\r\n"), True),
    "chunked HTTP/1.0": (pieces(CHUNKED.replace("1.1", "1.0"), "5\r\nhello\r\n", "0\r\n\r\n"), True),
    "close-delimited HTTP/1.0": (pieces(CLOSED, "data: 1\n\n", "data: [DONE]\n\n"), False),
    "close-delimited, empty": (pieces(CLOSED), False),
    "close-delimited HTTP/1.1": (pieces("HTTP/1.1 200 OK\r\n\r\n", "hel", "lo"), False),
    "204": (pieces("HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n"), True),
    "304": (pieces("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"), True),
    "1xx": (
        pieces("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", LENGTH_5 + "hello"),
        True,
    ),
    "101": (pieces("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "any\r\nthing"), False),
    "head in three reads": (pieces("HTTP/1.1 2", "00 OK\r\nContent-Len", "gth: 5\r\n\r\nhello"), True),
    "odd head": (
        pieces("HTTP/1.1 200\r\nX:1\r\nx:  2 \r\nX: 3\r\nX-Cookie: a\r\ncontent-length: 5\r\n\r\n", "hello"),
        True,
    ),
    "bare LF": (pieces("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", "5\nhello\n", "0\n\n"), True),
    "an error": (pieces("HTTP/1.1 429 Slow Down, Please\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"), True),
    "binary": ([LENGTH_5.encode() + b"\xc3", b"\xa9\x00\xff\x80"], True),
    "line ends of Unicode": ([b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", "\u2028\u0085\r\n\x00".encode()], True),
    "surplus": (pieces(LENGTH_5 + "hello and more"), True),
    "surplus in a read of its own": (pieces(LENGTH_5 + "hello", " and more"), True),
    "surplus after the last chunk": (pieces(CHUNKED + "0\r\n\r\n", "junk"), True),
}
BROKEN: dict[str, list[bytes]] = {
    "half a head": pieces("HTTP/1.1 200 OK\r\nContent-Le"),
    "a head without its body": pieces(LENGTH_5),
    "half a length": pieces(LENGTH_5, "hel"),
    "half a chunk": pieces(CHUNKED, "5\r\nhel"),
    "half a size line": pieces(CHUNKED + "5\r\nhello\r\n", "1"),
    "chunks without the last": pieces(CHUNKED, "5\r\nhello\r\n"),
    "the last chunk without its blank line": pieces(CHUNKED, "5\r\nhello\r\n0\r\n"),
    "a trailer without its end": pieces(CHUNKED, "0\r\nT: 1\r\n"),
    "a bad size line": pieces(CHUNKED, "xyz\r\nhello\r\n", "0\r\n\r\n"),
    "1xx and no more": pieces("HTTP/1.1 100 Continue\r\n\r\n"),
    "garbage": [b"\x16\x03\x01\x00\xff\x00garbage\r\n\r\n", b"more"],
    "nothing": [],
}


@dataclass(frozen=True, slots=True)
class Taken:
    """One exchange through a recorder: what the client got, what the server did, what is on tape."""

    answer: Answer
    upstream: Connection
    tape: Exchange


def record(
    folder: Path,
    script: Script,
    request: bytes = ASK,
    *,
    size: int | None = None,
    lockstep: Lockstep | None = None,
    **options: Any,
) -> Taken:
    """Ask once through a recorder. `size`: the connection is left open after so many bytes."""
    with RawServer([script]) as server, recording(server.url, folder, **options) as recorder:
        on_read = lockstep.on_read if lockstep else None
        with RawClient(recorder.host, recorder.port, on_read=on_read) as client:
            client.send(request)
            answer = read(client, size)
            (tape,) = recorder.tapes()
        return Taken(answer, server.connection(closed=True), tape)


def replay(
    folder: Path, request: bytes = ASK, *, size: int | None = None, **options: Any
) -> tuple[Answer, list[bytes]]:
    """Ask a replay of the folder once: the answer, and the writes that made it."""
    with replaying(folder, **options) as server, RawClient(server.host, server.port) as client:
        client.send(request)
        return read(client, size), server.writes


def read(client: RawClient, size: int | None) -> Answer:
    answer = client.read(size)
    if size is not None:
        # whatever still comes or happens while a recorder watches
        rest = client.read(for_ms=OPEN_MS)
        assert not rest.wire
        return Answer(answer.reads, rest.end, rest.end_at, answer.sent_at)
    return answer


def same(script: Sequence[bytes], ending: Step | None, folder: Path, request: bytes = ASK) -> tuple[Exchange, Ended]:
    """Record and replay these reads and this ending; how the client saw it end, and the tape."""
    lockstep = Lockstep(script)
    size = sum(map(len, script)) if ending is None else None
    steps = [*lockstep.steps, *([ending] if ending else [])]
    taken = record(folder, steps, request, size=size, lockstep=lockstep)
    assert [data for _, data in taken.answer.reads] == list(script)
    assert [data for _, data in taken.tape.response.reads()] == list(script)
    answer, writes = replay(folder, request, size=size)
    assert writes == list(script)
    assert answer.wire == b"".join(script)
    assert answer.end is taken.answer.end
    return taken.tape, answer.end


@pytest.mark.parametrize("name", [name for name, (_, complete) in FRAMINGS.items() if complete])
def test_a_complete_answer_on_a_connection_that_stays_open(name: str, tmp_path: Path) -> None:
    tape, ended = same(FRAMINGS[name][0], None, tmp_path)
    assert ended is Ended.TIMEOUT
    assert (tape.response.end, tape.response.then) == (End.COMPLETE, Then.OPEN)


@pytest.mark.parametrize("name", FRAMINGS)
@pytest.mark.parametrize("ending", [Fin(), Rst()], ids=["fin", "rst"])
def test_a_complete_answer_and_then_the_end(name: str, ending: Fin | Rst, tmp_path: Path) -> None:
    script, complete = FRAMINGS[name]
    tape, ended = same(script, ending, tmp_path)
    then = Then.FIN if isinstance(ending, Fin) else Then.RST
    assert ended.value == then.value
    if complete or then is Then.FIN:
        assert (tape.response.end, tape.response.then) == (End.COMPLETE, then)
        assert tape.response.then_at >= tape.response.end_at
    else:
        assert tape.response.end is End.RST


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("ending", [Fin(), Rst()], ids=["fin", "rst"])
def test_a_broken_answer(name: str, ending: Fin | Rst, tmp_path: Path) -> None:
    tape, ended = same(BROKEN[name], ending, tmp_path)
    assert ended.value == tape.response.end.value == ("fin" if isinstance(ending, Fin) else "rst")


@pytest.mark.parametrize("head", [LENGTH_5, CHUNKED, CLOSED, "HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_to_head_has_no_body(head: str, tmp_path: Path) -> None:
    tape, ended = same(pieces(head), None, tmp_path, get("/v1/models", method="HEAD"))
    assert (tape.response.end, tape.response.then, ended) == (End.COMPLETE, Then.OPEN, Ended.TIMEOUT)


@pytest.mark.parametrize("name", [*(name for name in FRAMINGS if not FRAMINGS[name][1]), *BROKEN])
def test_a_server_that_falls_silent(name: str, tmp_path: Path) -> None:
    script = BROKEN.get(name) or FRAMINGS.get(name, ([], False))[0]
    lockstep = Lockstep(script)
    taken = record(tmp_path, [*lockstep.steps, Hang()], lockstep=lockstep, idle_us=60_000)
    assert taken.answer.wire == b"".join(script)
    assert taken.answer.end is Ended.RST, "the client must not take it for a whole answer"
    assert taken.upstream.left is not None
    assert taken.tape.response.end is End.HANG
    last = max((at for at, _ in taken.tape.response.reads()), default=0)
    assert taken.tape.response.end_at >= last + 60_000
    with replaying(tmp_path) as server, RawClient(server.host, server.port) as client:
        client.send(ASK)
        assert client.read(sum(map(len, script))).wire == b"".join(script)
        assert client.read(for_ms=60).end is Ended.TIMEOUT


@pytest.mark.parametrize("capture", [capture for capture in captures() if capture.end_at is not None], ids=str)
def test_every_capture_read_by_read(capture: Capture, tmp_path: Path) -> None:
    tape, _ = same([data for _, data in capture.reads], Fin(), tmp_path, capture.request)

    whole = capture.name != "invalid_utf8"
    assert tape.response.end is (End.COMPLETE if whole else End.FIN)


def test_a_capture_whose_client_left(tmp_path: Path) -> None:
    capture = load("mlx_lm.server", "disconnect_mid_stream")
    with RawServer([from_capture(capture, cap_ms=1)]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(capture.request)
            assert client.read(len(capture.wire)).wire == capture.wire
        (tape,) = recorder.tapes()
        assert server.connection(closed=True).left is not None
    assert (tape.response.wire, tape.response.end) == (capture.wire, End.CLIENT)
    answer, _ = replay(tmp_path, capture.request)
    assert (answer.wire, answer.end) == (capture.wire, Ended.RST), "nothing else tells it from a whole answer"


@pytest.mark.parametrize("size", [1, 7, 61])
def test_a_capture_in_small_pieces(size: int, tmp_path: Path) -> None:
    wire = load("llama-server", "chat-hello").wire[: 1400 if size > 1 else 300]
    script = [wire[start : start + size] for start in range(0, len(wire), size)]
    tape, _ = same(script, Fin(), tmp_path)
    assert tape.response.end is End.FIN


GAPS_MS = (40, 0, 90, 6, 25, 130)


def timed(tmp_path: Path) -> Taken:
    """An answer with gaps, and 30 ms after it the server closes."""
    events = [b"data: %d\n\n" % number for number in range(len(GAPS_MS))]
    body = b"".join(events)
    steps: list[Step] = [Send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))]
    for gap_ms, event in zip(GAPS_MS, events, strict=True):
        steps += [Wait(gap_ms), Send(event)]
    return record(tmp_path, [*steps, Wait(30), Fin()])


def test_every_read_keeps_its_time(tmp_path: Path) -> None:
    for attempt in "abc":
        taken = timed(tmp_path / attempt)
        reads = list(taken.tape.response.reads())
        begun = taken.upstream.requested_at[0]
        sent = [(at - begun, data) for at, data in taken.upstream.sent]
        assert_on_time(sent, reads)
        assert_on_time(sent, taken.answer.reads)
        response = taken.tape.response
        assert (response.end, response.then) == (End.COMPLETE, Then.FIN)
        assert sent[-1][0] + 30_000 <= response.then_at <= response.end_at + 50_000 + LATE_US

        answer, writes = replay(tmp_path / attempt)
        assert writes == [data for _, data in reads]
        assert_on_time(reads, answer.reads)
        assert answer.end is Ended.FIN
        assert response.then_at - SLACK_US <= answer.end_at <= response.then_at + LATE_US
        # on a busy machine a reader may find two reads in one
        if all(borders(sent, gap_us=5000) <= borders(seen) for seen in (reads, taken.answer.reads, answer.reads)):
            return
    pytest.fail("reads that are 5 ms apart were joined, three times over")


def assert_on_time(expected: Sequence[tuple[int, bytes]], seen: Sequence[tuple[int, bytes]]) -> None:
    """Every byte came when it was due or somewhat later."""
    for due, at in zip(times(expected), times(seen), strict=True):
        assert due - SLACK_US <= at <= due + LATE_US


def times(reads: Sequence[tuple[int, bytes]]) -> list[int]:
    """The time of each byte."""
    return [at for at, data in reads for _ in data]


@pytest.mark.parametrize(
    ("options", "least_us", "most_us"),
    [
        ({"speed": 1.0}, 291_000, 291_000 + LATE_US),
        ({"speed": 10.0}, 29_000, 200_000),
        ({"speed": 0.0}, 0, 200_000),
        ({"max_gap_us": 10_000}, 45_000, 200_000),
        ({"max_gap_us": 10_000, "speed": 0.1}, 450_000, 450_000 + LATE_US),
    ],
)
def test_time_can_be_bent(options: dict[str, Any], least_us: int, most_us: int, tmp_path: Path) -> None:
    tape = timed(tmp_path).tape.response
    answer, writes = replay(tmp_path, **options)
    assert answer.wire == tape.wire
    assert least_us - SLACK_US <= answer.reads[-1][0] <= most_us
    assert writes == ([tape.wire] if options.get("speed") == 0 else [data for _, data in tape.reads()])


def test_a_client_that_asks_to_close_is_not_kept_waiting_for_what_the_server_did_then(tmp_path: Path) -> None:
    tape = timed(tmp_path).tape.response
    asked = post("/v1/chat/completions", b'{"model":"m","stream":true}', "Connection: close")
    answer, _ = replay(tmp_path, asked)
    assert answer.end is Ended.FIN
    assert answer.end_at < tape.then_at
