"""Keep-alive through a recorder is mirrored: one upstream connection per client connection, and whichever side closes
first closes the other.
"""

import json
from pathlib import Path

import pytest

from mockllm.core.response import End, Then
from tests.peers.client import RawClient, get, post
from tests.peers.common import Ended
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Hang, Rst, Script, Send, Wait
from tests.peers.server import RawServer
from tests.shell.serving import recording, wait_until

LOOPS = ["asyncio", "uvloop"]
WATCHED_MS = 80
"""Longer than the recorder watches the connection after a complete answer."""


def answer(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


OK = answer(b"ok")


def test_many_requests_on_one_connection(tmp_path: Path) -> None:
    bodies = [b"one", b"", b"three"]
    with RawServer([[Send(answer(body))] for body in bodies]) as server:
        with recording(server.url, tmp_path) as recorder, RawClient(recorder.host, recorder.port) as client:
            for body in bodies:
                client.send(post(f"/{len(body)}", body))
                assert client.read(answer_end).wire == answer(body)
            tapes = recorder.tapes(3)
            assert len(server.connections) == 1
            client.leave()
            assert server.connection(closed=True).left is Ended.FIN
    assert [tape.response.wire for tape in tapes] == [answer(body) for body in bodies]
    assert [tape.request.body for tape in tapes] == bodies
    assert {(tape.response.end, tape.response.then) for tape in tapes} == {(End.COMPLETE, Then.OPEN)}


def test_clients_do_not_share(tmp_path: Path) -> None:
    with RawServer(lambda _: [Send(OK)]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as one, RawClient(recorder.host, recorder.port) as two:
            for client in (one, two, one):
                client.send(get("/"))
                assert client.read(answer_end).wire == OK
            recorder.log.wait(3)
            assert [len(connection.requests) for connection in server.connections] == [2, 1]


def test_a_next_request_settles_the_one_before_it_at_once(tmp_path: Path) -> None:
    with RawServer([[Send(OK)], [Send(OK), Fin()]]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/1"))
            assert client.read(answer_end).wire == OK
            client.send(get("/2"))
            assert client.read().end is Ended.FIN
        one, two = recorder.tapes(2)
    assert (one.request.target, one.response.then) == (b"/1", Then.OPEN)
    assert (two.request.target, two.response.then) == (b"/2", Then.FIN)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("ending", [Fin(), Rst()], ids=["fin", "rst"])
@pytest.mark.parametrize("after_ms", [0, WATCHED_MS])
def test_a_server_that_closes_an_idle_connection(after_ms: int, ending: Fin | Rst, loop: str, tmp_path: Path) -> None:
    with RawServer([[Send(OK), Wait(after_ms or 5), ending]]) as server:
        with recording(server.url, tmp_path, loop=loop) as recorder, RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            got = client.read()
            (tape,) = recorder.tapes()
    assert got.wire == OK
    assert got.end is (Ended.FIN if isinstance(ending, Fin) else Ended.RST)
    assert tape.response.end is End.COMPLETE
    seen = Then.FIN if isinstance(ending, Fin) else Then.RST
    assert tape.response.then is (Then.OPEN if after_ms else seen)


@pytest.mark.parametrize("rst", [False, True])
def test_a_client_that_closes_an_idle_connection(rst: bool, tmp_path: Path) -> None:
    with RawServer([[Send(OK)]]) as server, recording(server.url, tmp_path) as recorder:
        client = RawClient(recorder.host, recorder.port)
        client.send(get("/"))
        assert client.read(answer_end).wire == OK
        (tape,) = recorder.tapes()
        client.leave(rst=rst)
        connection = server.connection(closed=True, timeout_s=5)
    assert connection.left is not None
    assert (tape.response.end, tape.response.then) == (End.COMPLETE, Then.OPEN)


def test_what_the_server_does_is_watched_though_the_client_left(tmp_path: Path) -> None:
    with RawServer([[Send(OK), Wait(25), Fin()]]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            assert client.read(answer_end).wire == OK
        (tape,) = recorder.tapes()
    assert (tape.response.end, tape.response.then) == (End.COMPLETE, Then.FIN)
    assert tape.response.then_at > tape.response.end_at


def test_a_client_that_asked_to_close_is_closed_by_the_server(tmp_path: Path) -> None:
    with RawServer([[Send(OK), Wait(150), Fin()]]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/", "Connection: close"))
            got = client.read()
        assert b"Connection: close" in server.requests[0]
    assert got.end is Ended.FIN
    assert got.end_at >= 145_000, "the recorder does not decide it from headers"


def test_health(tmp_path: Path) -> None:
    with RawServer([[Send(OK)], [Hang()]]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as one, RawClient(recorder.host, recorder.port) as two:
            one.send(get("/"))
            assert one.read(answer_end).wire == OK
            recorder.log.wait(1)
            two.send(get("/"))
            wait_until(lambda: len(server.requests) == 2)
            one.send(get("/_mockllm/health"))
            health = json.loads(one.read(answer_end).wire.partition(b"\r\n\r\n")[2])
        assert (health["status"], health["recorded"], health["open"]) == ("ok", 1, 1)
        assert [len(connection.requests) for connection in server.connections] == [1, 1]


def test_what_comes_unasked_later_reaches_the_client(tmp_path: Path) -> None:
    script: Script = [Send(OK), Wait(WATCHED_MS), Send(b"HTTP/1.1 408 Timeout\r\n\r\n"), Fin()]
    with RawServer([script]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            assert client.read().wire == OK + b"HTTP/1.1 408 Timeout\r\n\r\n"
        (tape,) = recorder.tapes()
    assert tape.response.wire == OK


def test_pipelined_requests_are_asked_one_by_one(tmp_path: Path) -> None:
    answers = [answer(b"%d" % number) for number in range(4)]
    with RawServer([[Wait(5), Send(data)] for data in answers]) as server:
        with recording(server.url, tmp_path) as recorder, RawClient(recorder.host, recorder.port) as client:
            client.send(b"".join(post(f"/{number}", b"x") for number in range(4)))
            wire = b"".join(answers)
            assert client.read(len(wire)).wire == wire
            tapes = recorder.tapes(4)
        (connection,) = server.connections
    assert [tape.request.target for tape in tapes] == [b"/0", b"/1", b"/2", b"/3"]
    assert [tape.response.wire for tape in tapes] == answers
    for (sent, _), asked in zip(connection.sent, connection.requested_at[1:], strict=False):
        assert asked >= sent


def test_pipelined_requests_behind_an_answer_that_closes(tmp_path: Path) -> None:
    with RawServer([[Send(OK), Wait(0), Fin()], [Send(OK), Wait(0), Fin()]]) as server:
        with recording(server.url, tmp_path) as recorder, RawClient(recorder.host, recorder.port) as client:
            client.send(get("/1") + get("/2"))
            got = client.read()
            recorder.log.wait(1)
    # the second may have been on its way before the server's FIN was seen, as to the server itself
    assert got.wire in (OK, OK + OK)
    assert got.end is not Ended.TIMEOUT


def test_a_client_that_goes_on_to_another_server(tmp_path: Path) -> None:
    with RawServer(lambda _: [Send(answer(b"one"))]) as one, RawServer(lambda _: [Send(answer(b"two"))]) as two:
        with recording(two.url, tmp_path, mounts=[(b"/one", one.url)]) as recorder:
            with RawClient(recorder.host, recorder.port) as client:
                for path, text in (("/one/x", b"one"), ("/x", b"two"), ("/one/y", b"one")):
                    client.send(get(path))
                    assert client.read(answer_end).wire == answer(text)
                tapes = recorder.tapes(3)
            assert one.connection(1, closed=True).requests[0].startswith(b"GET /y ")
            assert one.connection(0, closed=True).left is Ended.FIN
            assert two.connection(0, closed=True).left is Ended.FIN
    assert [tape.meta["upstream"] for tape in tapes] == [one.url, two.url, one.url]
    assert {tape.response.then for tape in tapes} == {Then.OPEN}


def test_a_server_that_reset_before_a_slow_reader_had_it_all_is_asked_anew(tmp_path: Path) -> None:
    """The reset waits until everything is delivered; by then the client wants more."""
    large = answer(b"a" * 60_000)
    with RawServer([[Send(large), Wait(30), Rst()], [Send(OK)]]) as server:
        with (
            recording(server.url, tmp_path) as recorder,
            RawClient(recorder.host, recorder.port, rcvbuf=2048) as client,
        ):
            client.send(get("/1"))
            (tape,) = recorder.tapes()
            client.send(get("/2"))
            assert client.read(len(large) + len(OK)).wire == large + OK
            recorder.log.wait(2)
        assert len(server.connections) == 2
    assert (tape.response.wire, tape.response.then) == (large, Then.RST)


def test_a_server_that_closes_just_as_the_next_request_comes(tmp_path: Path) -> None:
    script: Script = [Fin()]
    with RawServer([[Send(OK)], script]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/1"))
            assert client.read(answer_end).wire == OK
            client.send(get("/2"))
            got = client.read()
        one, two = recorder.tapes(2)
    assert (got.wire, got.end) == (b"", Ended.FIN)
    assert (one.response.end, two.response.end, two.response.wire) == (End.COMPLETE, End.FIN, b"")


def test_a_connection_made_in_vain(tmp_path: Path) -> None:
    """A server that speaks first, and a client that never asks."""
    with RawServer([], greeting=[Send(b"junk")]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.leave()
        assert server.connections == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_server_says_before_it_was_asked(tmp_path: Path) -> None:
    with RawServer([[Hang()]], greeting=[Send(OK)]) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            assert client.read(answer_end).wire == OK
            (tape,) = recorder.tapes()
    assert tape.response.wire == OK
    assert tape.response.end is End.COMPLETE
