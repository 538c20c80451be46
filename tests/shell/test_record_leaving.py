"""A client that leaves a recorder, or reads slowly, at every stage of an answer; and a recorder that leaves."""

import asyncio
import gzip
import threading
import time
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mockllm.core.response import End, Then
from mockllm.upstream import connect
from tests.peers.client import RawClient, ask, get, post
from tests.peers.common import Ended, now_us
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Hang, Rst, Script, Send, Step, Until, Wait
from tests.peers.server import RawServer
from tests.shell.serving import Recording, recording, wait_until

ASK = post("/v1/chat/completions", b'{"stream":true}')
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NDJSON = SSE.replace(b"text/event-stream", b"application/x-ndjson")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
LOOPS = ["asyncio", "uvloop"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def leave_after(recorder: Recording, size: int, *, rst: bool = False, go: threading.Event | None = None) -> int:
    """Ask, read so many bytes and leave; when that was (absolute µs). `go` is set once the client is gone."""
    client = RawClient(recorder.host, recorder.port)
    client.send(ASK)
    assert len(client.read(size).wire) == size
    wait_until(lambda: recorder.recorder._open or recorder.log.lines)
    client.leave(rst=rst)
    left_at = now_us()
    if go is not None:
        wait_until(lambda: all(relay.connection.left.done() for relay in list(recorder.recorder._open)))
        go.set()
    return left_at


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize(
    "sent",
    [b"", b"HTTP/1.1 200 OK\r\nConte", SSE, SSE + chunk(b"data: 1\n\n"), SSE + chunk(b"data: [DON")],
    ids=["before the head", "in the head", "after the head", "in the body", "before the end of [DONE]"],
)
def test_a_client_that_leaves_stops_the_server(sent: bytes, rst: bool, loop: str, tmp_path: Path) -> None:
    head: list[Step] = [Send(sent)] if sent else []
    with RawServer([[*head, Hang()], [Send(OK)]]) as server, recording(server.url, tmp_path, loop=loop) as recorder:
        left_at = leave_after(recorder, len(sent), rst=rst)
        (tape,) = recorder.tapes()
        connection = server.connection(closed=True)
        assert connection.left_at - left_at < 1_000_000
        assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK, "the recorder goes on"
        recorder.log.wait(2)
    assert (tape.response.wire, tape.response.end, tape.end_meta) == (sent, End.CLIENT, {})
    assert recorder.recorder.ends == {End.CLIENT: 1, End.COMPLETE: 1}


ENDS = {
    "chat": (SSE, chunk(b'data: {"choices":[]}\n\n'), DONE),
    "anthropic": (SSE, b"", b'event: message_stop\ndata: {"type": "message_stop"}\n\n'),
    "responses": (SSE, b"", b'event: response.completed\ndata: {"type":"response.completed"}\n\n'),
    "ollama": (NDJSON, chunk(b'{"done":false}\n'), b'{"model":"m","done":true}\n'),
}


@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("family", ENDS)
def test_a_client_that_leaves_at_the_protocols_end_has_it_all(family: str, rst: bool, tmp_path: Path) -> None:
    head, before, end = ENDS[family]
    go = threading.Event()
    wire = head + before + chunk(end)
    with RawServer([[Send(wire), Until(go), Send(chunk(b": bye\n\n")), Send(LAST), Wait(5), Fin()]]) as server:
        with recording(server.url, tmp_path) as recorder:
            leave_after(recorder, len(wire), rst=rst, go=go)
            (tape,) = recorder.tapes()
    assert tape.response.wire == wire + chunk(b": bye\n\n") + LAST
    assert (tape.response.end, tape.response.then) == (End.COMPLETE, Then.FIN)


def test_an_end_in_a_compressed_stream(tmp_path: Path) -> None:
    squeeze, go = zlib.compressobj(wbits=31), threading.Event()
    body = squeeze.compress(b'data: {"x":1}\n\n' + DONE) + squeeze.flush(zlib.Z_SYNC_FLUSH)
    tail = squeeze.flush()
    assert DONE not in body
    wire = SSE[:-2] + b"Content-Encoding: gzip\r\n\r\n" + chunk(body)
    rest = chunk(tail) + LAST
    with RawServer([[Send(wire), Until(go), Send(rest)]]) as server, recording(server.url, tmp_path) as recorder:
        leave_after(recorder, len(wire), go=go)
        (tape,) = recorder.tapes()
    assert gzip.decompress(body + tail).endswith(DONE)
    assert (tape.response.wire, tape.response.end) == (wire + rest, End.COMPLETE)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[{"delta":{"content":"data: [DONE]\\n\\n"}}]}\n\n',
        b": [DONE]\n\n",
        b"data: [DONE]",
        b"data: [DONE]\n",
        b"event: message_stop\n\n",
        b'data: {"type":"message_delta","text":"message_stop"}\n\n',
    ],
)
def test_what_only_looks_like_the_end_is_none(event: bytes, tmp_path: Path) -> None:
    wire = SSE + chunk(event)
    with RawServer([[Send(wire), Hang()]]) as server, recording(server.url, tmp_path) as recorder:
        left_at = leave_after(recorder, len(wire))
        (tape,) = recorder.tapes()
        assert server.connection(closed=True).left_at - left_at < 1_000_000
    assert (tape.response.wire, tape.response.end) == (wire, End.CLIENT)


@pytest.mark.parametrize("ending", [Hang(), Fin(), Rst()], ids=["hang", "fin", "rst"])
def test_a_finished_stream_whose_rest_never_comes(ending: Step, tmp_path: Path) -> None:
    go, wire = threading.Event(), SSE + chunk(DONE)
    with RawServer([[Send(wire), Until(go), ending]]) as server:
        with recording(server.url, tmp_path, drain_us=150_000) as recorder:
            leave_after(recorder, len(wire), go=go)
            (tape,) = recorder.tapes()
            connection = server.connection(closed=True)
    expected = {Hang(): End.CLIENT, Fin(): End.FIN, Rst(): End.RST}[ending]
    assert (tape.response.wire, tape.response.end) == (wire, expected)
    if expected is End.CLIENT:
        assert connection.left is not None
        assert tape.response.end_at >= 150_000


def test_a_client_that_leaves_a_complete_answer(tmp_path: Path) -> None:
    with RawServer([[Send(OK), Wait(10), Send(b"junk")]]) as server, recording(server.url, tmp_path) as recorder:
        leave_after(recorder, len(OK))
        (tape,) = recorder.tapes()
        assert server.connection(closed=True).left is not None
    assert tape.response.end is End.COMPLETE
    assert tape.response.wire in (OK, OK + b"junk")


def test_a_client_that_leaves_while_the_server_is_being_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, gave_up = threading.Event(), threading.Event()

    async def never(*_: object, **__: object) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            gave_up.set()

    monkeypatch.setattr(import_module("mockllm.record"), "connect", never)
    with recording("http://127.0.0.1:1", tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(ASK)
            assert reached.wait(5)
        assert gave_up.wait(5)
    assert recorder.log.lines == recorder.said.lines == []
    assert list(tmp_path.iterdir()) == []


# --- slow readers


@pytest.mark.parametrize("loop", LOOPS)
def test_a_slow_reader_slows_the_server_and_costs_no_memory(loop: str, tmp_path: Path) -> None:
    body = b"0123456789abcdef" * 1_500_000
    wire = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with RawServer([[Send(wire)]]) as server, recording(server.url, tmp_path, loop=loop, idle_us=200_000) as recorder:
        with RawClient(recorder.host, recorder.port, rcvbuf=8192) as client:
            client.send(get("/"))
            first = client.read(1000)
            connection = server.connection()
            taken = -1
            while taken != connection.accepted:
                taken = connection.accepted
                # longer than --idle-timeout: the silence is the client's
                time.sleep(0.3)
            assert taken < len(wire)
            assert not recorder.log.lines
            assert first.wire + client.read(len(wire) - 1000).wire == wire
        (tape,) = recorder.tapes()
    assert (tape.response.wire, tape.response.end) == (wire, End.COMPLETE)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
def test_a_slow_reader_that_leaves(rst: bool, loop: str, tmp_path: Path) -> None:
    wire = b"HTTP/1.0 200 OK\r\n\r\n" + b"0123456789abcdef" * 1_500_000
    with RawServer([[Send(wire), Fin()]]) as server, recording(server.url, tmp_path, loop=loop) as recorder:
        left_at = leave_after(recorder, 1000, rst=rst)
        (tape,) = recorder.tapes()
        connection = server.connection(closed=True)
        assert connection.left_at - left_at < 1_500_000
    assert tape.response.end is End.CLIENT
    assert wire.startswith(tape.response.wire)


# --- a recorder that is stopped


def test_a_recorder_that_is_stopped_ends_what_is_open(tmp_path: Path) -> None:
    stages: list[Script] = [[Hang()], [Send(SSE), Hang()], [Send(OK), Hang()]]
    with RawServer(lambda request: stages[int(request.split(b" ")[1][1:])]) as server:
        with recording(server.url, tmp_path) as recorder:
            clients = [RawClient(recorder.host, recorder.port) for _ in stages]
            for number, client in enumerate(clients):
                client.send(get(f"/{number}"))
            clients[1].read(len(SSE))
            clients[2].read(len(OK))
            wait_until(lambda: len(server.requests) == 3)
            began = now_us()
        assert now_us() - began < 3_000_000
        tapes = {tape.request.target: tape for tape in recorder.tapes(3)}
    for target, wire in ((b"/0", b""), (b"/1", SSE)):
        tape = tapes[target]
        assert (tape.response.wire, tape.response.end, tape.end_meta) == (wire, End.CLIENT, {"by": "recorder"})
    assert (tapes[b"/2"].response.end, tapes[b"/2"].response.then) == (End.COMPLETE, Then.OPEN)
    assert [client.read().end for client in clients] == [Ended.RST, Ended.RST, Ended.FIN]


def test_a_recorder_that_is_stopped_while_the_server_is_being_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Event(), threading.Event()

    async def slowly(*args: Any, **options: Any) -> Any:
        found = await connect(*args, **options)
        reached.set()
        await asyncio.to_thread(go.wait, 5)
        return found

    monkeypatch.setattr(import_module("mockllm.record"), "connect", slowly)
    with RawServer([]) as server:
        with recording(server.url, tmp_path) as recorder:
            client = RawClient(recorder.host, recorder.port)
            client.send(ASK)
            assert reached.wait(5)
            threading.Thread(target=recorder.server.stop).start()
            wait_until(lambda: recorder.recorder._stopped)
            go.set()
            assert client.read().end is not Ended.TIMEOUT
        assert server.requests == []
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_that_is_stopped_before_an_early_answers_request_is_whole(tmp_path: Path) -> None:
    asked = post("/x", b"a" * 100)
    with RawServer([[Send(OK), Hang()]], early=True) as server:
        with recording(server.url, tmp_path) as recorder:
            client = RawClient(recorder.host, recorder.port)
            client.send(asked[:-50])
            assert client.read(len(OK)).wire == OK
            assert client.read(for_ms=80).end is Ended.TIMEOUT
        (tape,) = recorder.tapes()
        client.leave()
    assert (tape.response.wire, tape.response.end, tape.request.cut) == (OK, End.COMPLETE, True)


@pytest.mark.parametrize("rst", [False, True])
def test_a_client_that_leaves_an_upload_which_the_server_answered_and_never_takes(rst: bool, tmp_path: Path) -> None:
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"
    with RawServer([[Send(refusal), Hang()]], early=True) as server, recording(server.url, tmp_path) as recorder:
        client = RawClient(recorder.host, recorder.port)
        client.send(b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n" + b"a" * 100_000)
        assert client.read(len(refusal)).wire == refusal
        client.leave(rst=rst)
        (tape,) = recorder.tapes()
        assert tape.request.early
        assert tape.request.cut
        assert tape.response.end is End.COMPLETE
        assert server.connection(0, closed=True).left is not None
