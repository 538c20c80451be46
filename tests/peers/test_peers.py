"""The peers are the measure of everything else, so they are measured first, against each other."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers.captures import captures, from_capture, load
from tests.peers.client import RawClient, ask, borders, get, post
from tests.peers.common import Ended
from tests.peers.framing import answer_end, request_end
from tests.peers.script import (
    Fin,
    HalfClose,
    Hang,
    Lockstep,
    ReadRest,
    Rst,
    Script,
    Send,
    Until,
    Wait,
)
from tests.peers.server import RawServer

CHUNKED_POST = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"


@pytest.mark.parametrize("request_bytes", [get("/"), post("/", b"{}"), post("/", b""), CHUNKED_POST])
def test_a_request_ends_where_it_ends(request_bytes: bytes) -> None:
    for cut in range(len(request_bytes)):
        assert request_end(request_bytes[:cut]) is None
    assert request_end(request_bytes + b"GET /next") == len(request_bytes)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_an_answer_ends_where_it_ends(answer: bytes) -> None:
    for cut in range(len(answer)):
        assert answer_end(answer[:cut]) is None
    assert answer_end(answer + b"HTTP/1.1 200") == len(answer)


def test_an_answer_until_close_has_no_end() -> None:
    assert answer_end(b"HTTP/1.0 200 OK\r\n\r\nbody") is None


@pytest.mark.parametrize(
    ("script", "end"),
    [([Send(b"abc"), Fin()], Ended.FIN), ([Send(b"abc"), Wait(30), Rst()], Ended.RST), ([Rst()], Ended.RST)],
)
def test_endings_and_requests_arrive(script: Script, end: Ended) -> None:
    with RawServer([script]) as server:
        answer = ask(server.host, server.port, CHUNKED_POST)
        connection = server.connection(closed=True)
    assert answer.end is end
    assert answer.wire == b"".join(step.data for step in script if isinstance(step, Send))
    assert connection.requests == [CHUNKED_POST]
    assert connection.left is None
    assert connection.requested_at[0] <= answer.sent_at + answer.end_at


def test_sends_are_reads_of_their_own() -> None:
    pieces = [b"a", b"bc", b"d" * 3000, b"e"]
    lockstep = Lockstep(pieces)
    with RawServer([[*lockstep.steps, Fin()]]) as server:
        answer = ask(server.host, server.port, get("/"), on_read=lockstep.on_read)
    assert [data for _, data in answer.reads] == pieces
    assert answer.end is Ended.FIN
    assert [data for _, data in server.connections[0].sent] == pieces


def test_sends_without_a_wait_have_a_gap() -> None:
    with RawServer([[Send(b"a"), Send(b"b"), Wait(0), Send(b"c"), Fin()]], gap_ms=20) as server:
        assert ask(server.host, server.port, get("/")).wire == b"abc"
        (first, _), (second, _), _ = server.connection(closed=True).sent
    assert second - first >= 20_000


def test_several_requests_on_one_connection() -> None:
    def echo(request: bytes) -> Script:
        body = request.partition(b"\r\n\r\n")[2]
        return [Send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)), Send(body)]

    with RawServer(echo) as server, RawClient(server.host, server.port) as client:
        for body in (b"one", b"two"):
            client.send(post("/", body))
            answer = client.read(answer_end)
            assert answer.end is Ended.OPEN
            assert answer.wire.endswith(b"\r\n\r\n" + body)
        client.send(post("/", b"x") + post("/", b"y"))
        assert client.read(2 * len(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")).wire.endswith(b"y")
        client.leave()
        assert server.connection(closed=True).left is Ended.FIN
    assert len(server.requests) == 4


SILENCES: list[tuple[bool, Script]] = [
    (False, [Hang()]),
    (True, [Hang()]),
    (True, [Wait(10_000), Hang()]),
    (True, [Until(threading.Event()), Hang()]),
]


@pytest.mark.parametrize(("rst", "silence"), SILENCES)
@pytest.mark.parametrize("early", [False, True])
def test_how_the_client_left_is_seen_in_silence(rst: bool, silence: Script, early: bool) -> None:
    with RawServer([[Send(b"abc"), *silence]], early=early) as server:
        client = RawClient(server.host, server.port)
        client.send(get("/"))
        assert client.read(3).end is Ended.OPEN
        client.leave(rst=rst)
        connection = server.connection(closed=True, timeout_s=5)
        assert connection.left is (Ended.RST if rst else Ended.FIN)
        assert connection.left_at >= client.sent_at


def test_a_half_close_goes_on_reading() -> None:
    with RawServer([[HalfClose(), Hang()]]) as server, RawClient(server.host, server.port) as client:
        client.send(get("/"))
        assert client.read().end is Ended.FIN
        client.send(b"more")
        client.half_close()
        connection = server.connection(closed=True)
    assert connection.received.endswith(b"more")
    assert connection.left is Ended.FIN


def test_an_early_answer_comes_before_the_body() -> None:
    request = post("/", b"x" * 50)
    with RawServer([[Send(b"early"), ReadRest(), Send(b"late"), Fin()]], early=True) as server:
        with RawClient(server.host, server.port) as client:
            client.send(request[:-40])
            assert client.read(5).wire == b"early"
            client.send(request[-40:])
            assert client.read().wire == b"late"
        assert server.requests == [request]


def test_an_early_server_reads_the_rest_before_the_next_request() -> None:
    request = post("/", b"x" * 50)
    with RawServer(lambda _: [Send(b"!")], early=True) as server, RawClient(server.host, server.port) as client:
        for _ in range(2):
            client.send(request[:-40])
            assert client.read(1).wire == b"!"
            client.send(request[-40:])
        client.leave()
        assert server.connection(closed=True).received == request * 2


def test_a_greeting_comes_before_any_request() -> None:
    with RawServer([], greeting=[Send(b"junk"), Rst()]) as server, RawClient(server.host, server.port) as client:
        assert client.read(4).wire == b"junk"
        assert client.read().end is Ended.RST


def test_a_client_that_does_not_read_stops_the_server() -> None:
    with RawServer([[Send(bytes(50_000_000)), Fin()]]) as server:
        with RawClient(server.host, server.port, rcvbuf=4096) as client:
            client.send(get("/"))
            assert client.read(1, for_ms=5000).end is Ended.OPEN
            assert server.connection().accepted < 50_000_000
        connection = server.connection(closed=True)
    assert connection.left is Ended.RST


def test_time_outs_and_waits_end() -> None:
    never = threading.Event()
    with RawServer([[Until(never)]]) as server, RawClient(server.host, server.port) as client:
        client.send(get("/"))
        assert client.read(for_ms=10).end is Ended.TIMEOUT
        with pytest.raises(AssertionError, match="still open"):
            server.connection(closed=True, timeout_s=0.01)
        assert server.connection().left is None


def test_a_request_too_many_fails_the_test() -> None:
    def run() -> None:
        with RawServer([]) as server:
            assert ask(server.host, server.port, get("/")).end is Ended.FIN

    with pytest.raises(AssertionError, match="more requests than scripts"):
        run()


def test_a_capture_is_sent_as_it_came() -> None:
    capture = load("llama-server", "chat-haiku")
    with RawServer([from_capture(capture, cap_ms=5)]) as server:
        answer = ask(server.host, server.port, capture.request)
        assert server.requests == [capture.request]
    assert answer.wire == capture.wire
    assert [data for _, data in server.connections[0].sent] == [data for _, data in capture.reads]
    assert answer.end is Ended.FIN


def test_all_captures_are_there() -> None:
    found = {str(capture): capture for capture in captures()}
    assert len(found) >= 38
    left = found["mlx_lm.server/disconnect_mid_stream"]
    assert left.end_at is None
    assert isinstance(from_capture(left)[-1], Hang)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=3)), max_size=6))
def test_borders_are_where_reads_begin(steps: list[tuple[int, bytes]]) -> None:
    reads, at = [], 0
    for gap, data in steps:
        at += gap
        reads.append((at, data))
    sizes = [len(data) for _, data in reads]
    assert borders(reads) == {sum(sizes[:index]) for index in range(1, len(sizes))}
    assert borders(reads, gap_us=5000) == {
        sum(sizes[:index]) for index in range(1, len(sizes)) if steps[index][0] >= 5000
    }
