"""The raw connection behind a request, over real sockets on 127.0.0.1: what the client sees and what the app learns."""

import asyncio
import contextlib
import gc
import queue
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from mockllm import serve
from mockllm.serve import RAW, RawConnection, Server
from mockllm.sockets import Left, undelivered

LOOPS = ["asyncio", "uvloop"]
HEAD = b"HTTP/1.1 200 Fine Thanks\r\nx-ODD: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
LONG_S = 20


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return str(request.param)


@contextlib.contextmanager
def serving(app: Any, loop: str = "asyncio") -> Iterator[Server]:
    """`app(raw)` is called with each request's raw connection."""

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        await app(scope["extensions"][RAW])

    server = Server(asgi, "127.0.0.1", 0)
    server._uvicorn.config.loop = loop
    try:
        with server:
            yield server
    finally:
        while Client.opened:
            Client.opened.pop().close()


class Client:
    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, server: Server, rcvbuf: int | None = None) -> None:
        host, port = server.base_url.removeprefix("http://").split(":")
        self.sock = socket.socket()
        self.opened.append(self.sock)
        if rcvbuf is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(LONG_S)
        self.sock.connect((host, int(port)))

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self, count: int) -> bytes:
        """Exactly `count` bytes, or fewer at the end."""
        data = b""
        while len(data) < count and (more := self.sock.recv(count - len(data))):
            data += more
        return data

    def read_all(self) -> tuple[bytes, str]:
        """Everything, and how it ended."""
        data = b""
        try:
            while more := self.sock.recv(65536):
                data += more
        except ConnectionResetError:
            return data, "rst"
        return data, "fin"

    def fin(self) -> None:
        self.sock.close()

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def rst(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def body_of(raw: RawConnection) -> bytes:
    return b"".join([chunk async for chunk in raw.chunks()])


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def echo(raw: RawConnection) -> None:
    """Answers with what it was asked."""
    body = await body_of(raw)
    raw.begin()
    raw.write(ok(b"%s %s %s" % (raw.method.encode(), raw.target, body)))
    await raw.drain()
    raw.finish(raw.keep_alive)


# bytes


def test_bytes_and_ending_are_the_apps_own(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        for piece in (HEAD, b"3;x\r\nab", b"c\r\n", b"garbage\x00\xff"):
            raw.write(piece)
        raw.finish(False)
        raw.write(b"too late")
        raw.finish(True)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read_all() == (HEAD + b"3;x\r\nabc\r\ngarbage\x00\xff", "fin")


def test_request_is_seen_as_it_was_sent(loop: str) -> None:
    seen: queue.Queue[RawConnection] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        seen.put(raw)
        await echo(raw)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(
            b"POST http://Other:1//a/../b%2f?q=%zz&&# HTTP/1.1\r\nhOsT: h\r\nX-A: 1\r\nx-a:  2 \r\nX-Empty:\r\n"
            b"Content-Length: 3\r\n\r\nabc"
        )
        expected = ok(b"POST http://Other:1//a/../b%2f?q=%zz&&# abc")
        assert client.read(len(expected)) == expected
        raw = seen.get(timeout=LONG_S)
        assert (raw.method, raw.target, raw.http_version) == ("POST", b"http://Other:1//a/../b%2f?q=%zz&&#", "1.1")
        assert raw.headers == (
            (b"hOsT", b"h"),
            (b"X-A", b"1"),
            (b"x-a", b"2 "),
            (b"X-Empty", b""),
            (b"Content-Length", b"3"),
        )
        assert raw.complete


@pytest.mark.parametrize(
    ("head", "keep"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
    ],
)
def test_keep_alive_is_what_the_client_asked_for(head: bytes, keep: bool) -> None:
    with serving(echo) as server:
        client = Client(server)
        client.send(head)
        answer = ok(b"GET / ")
        assert client.read(len(answer)) == answer
        if keep:
            client.send(b"GET /2 HTTP/1.0\r\n\r\n")
            assert client.read_all() == (ok(b"GET /2 "), "fin")
        else:
            assert client.read_all() == (b"", "fin")


def test_nodelay_is_in_force_on_accepted_connections(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        sock = raw._protocol.transport.get_extra_info("socket")
        raw.begin()
        raw.write(b"%d" % bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read_all() == (b"1", "fin")


def test_what_comes_after_the_answer_is_written_until_the_next_request(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(raw: RawConnection) -> None:
        first = raw.state.setdefault("first", raw)
        raw.begin()
        raw.write(ok(raw.target))
        first.write(b"surplus")
        raw.finish(raw.target == b"/a")
        raw.write(b" and more")

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        expected = ok(b"/a") + b"surplus and more"
        assert client.read(len(expected)) == expected
        client.send(b"POST /b HTTP/1.1\r\nContent-Length: 9\r\n\r\n")  # not all of it: our end lingers
        assert client.read_all() == (ok(b"/b"), "fin")
    assert caplog.text == ""


# bodies


def test_chunked_body_comes_as_it_arrives_without_framing_and_trailers(loop: str) -> None:
    arrived: queue.Queue[bytes] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        async for chunk in raw.chunks():
            arrived.put(chunk)
        raw.begin()
        raw.write(ok(b"%d %d" % (raw.complete, len(raw.headers))))
        raw.finish(True)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        assert arrived.get(timeout=LONG_S) == b"a"
        client.send(b"2;ext\r\nbc\r\n")
        assert arrived.get(timeout=LONG_S) == b"bc"
        client.send(b"0\r\nTrailer: t\r\n\r\n")
        answer = ok(b"1 1")
        assert client.read(len(answer)) == answer


def test_body_is_held_back_until_it_is_read(loop: str) -> None:
    go = threading.Event()

    async def app(raw: RawConnection) -> None:
        await asyncio.to_thread(go.wait, LONG_S)
        held = len(raw._cycle.body)
        total = len(await body_of(raw))
        raw.begin()
        raw.write(b"%d %d" % (held < 2_000_000, total))
        raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        total = 64_000_000
        client.send(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % total)
        sent = 0
        client.sock.settimeout(0.3)  # nothing taken for that long: back-pressure
        with contextlib.suppress(TimeoutError):
            while sent < total:
                sent += client.sock.send(bytes(min(1_000_000, total - sent)))
        assert sent < total
        client.sock.settimeout(LONG_S)
        go.set()
        client.send(bytes(total - sent))
        assert client.read_all() == (b"1 %d" % total, "fin")


def test_expect_is_answered_when_the_body_is_asked_for(loop: str) -> None:
    request = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with serving(echo, loop) as server:
        client = Client(server)
        client.send(request)
        answer = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert client.read(len(answer)) == answer
        client.send(b"ab")
        answer = ok(b"POST / ab")
        assert client.read(len(answer)) == answer


def test_expect_is_not_answered_after_begin(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(ok(await body_of(raw)))
        raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab")
        assert client.read_all() == (ok(b"ab"), "fin")


@pytest.mark.parametrize("how", ["fin", "half_close", "rst"])
def test_body_ends_incomplete_when_the_client_leaves(loop: str, how: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        got.put("started")
        body = await body_of(raw)
        raw.begin()
        raw.finish(False)
        got.put((body, raw.complete, raw.left.result()))

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc")
        got.get(timeout=LONG_S)
        getattr(client, how)()
        assert got.get(timeout=LONG_S) == (b"abc", False, Left.RST if how == "rst" else Left.FIN)


def test_body_that_came_before_the_client_left_is_whole(loop: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        await asyncio.wait({raw.left})
        got.put((await body_of(raw), raw.complete))

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        client.fin()
        assert got.get(timeout=LONG_S) == (b"abc", True)


def test_early_answer_then_the_rest_of_the_body_then_the_next_request(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(ok(raw.target))
        raw.finish(True)
        assert [chunk async for chunk in raw.chunks()] == []

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST /1 HTTP/1.1\r\nContent-Length: 300000\r\n\r\n")
        assert client.read(len(ok(b"/1"))) == ok(b"/1")
        client.send(bytes(300000) + b"GET /2 HTTP/1.1\r\n\r\n")
        assert client.read(len(ok(b"/2"))) == ok(b"/2")


def test_early_answer_and_close_is_not_lost_to_a_client_still_sending(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(ok(b"no"))
        raw.finish(False)

    with serving(app, loop) as server:
        for _ in range(4):
            client = Client(server)
            client.send(b"POST /1 HTTP/1.1\r\nContent-Length: 30000000\r\n\r\n" + bytes(20_000_000))
            assert client.read_all() == (ok(b"no"), "fin")
            client.fin()


def test_client_that_goes_on_sending_after_our_fin_is_cut(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "LINGER_S", 0.05)
    left: queue.Queue[Left] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        raw.left.add_done_callback(lambda future: left.put(future.result()))
        raw.begin()
        raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST /1 HTTP/1.1\r\nContent-Length: 30\r\n\r\n")
        assert client.read_all() == (b"", "fin")
        assert left.get(timeout=LONG_S) is Left.OURS


# upgrades


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /c HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /c HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n\r\n",
    ],
)
def test_upgrade_and_connect_reach_the_app_with_their_body(loop: str, request_: bytes) -> None:
    head, _, body = request_.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    method, target, _ = line.split(b" ")
    seen: queue.Queue[RawConnection] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        seen.put(raw)
        await echo(raw)

    with serving(app, loop) as server:
        client = Client(server)
        for cut in (len(request_), len(head) + 4, 7):  # whole; head, body; cut in the request line
            client.send(request_[:cut])
            time.sleep(0.01)  # only to make two reads likely: right either way
            client.send(request_[cut:] + GET)
            expected = ok(b"%s %s %s" % (method, target, body)) + ok(b"GET /a ")
            assert client.read(len(expected)) == expected
            raw = seen.get(timeout=LONG_S)
            assert [b"%s: %s" % pair for pair in raw.headers] == headers
            assert raw.method == method.decode()
            seen.get(timeout=LONG_S)


# pipelining


def test_two_requests_in_one_send_are_answered_in_order(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        await asyncio.sleep(0.02 if raw.target == b"/1" else 0)
        raw.write(ok(raw.target + await body_of(raw)))
        raw.finish(True)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(
            b"POST /1 HTTP/1.1\r\nContent-Length: 1\r\n\r\na"
            b"POST /2 HTTP/1.1\r\nContent-Length: 1\r\n\r\nb"
            b"POST /3 HTTP/1.1\r\nContent-Length: 1\r\n\r\n"
        )
        expected = ok(b"/1a") + ok(b"/2b")
        assert client.read(len(expected)) == expected
        client.send(b"c")
        assert client.read(len(ok(b"/3c"))) == ok(b"/3c")


def test_many_pipelined_requests_are_all_answered(loop: str) -> None:
    with serving(echo, loop) as server:
        client = Client(server)
        count = 5 * serve.MAX_PIPELINED
        for i in range(count):
            client.send(b"GET /%d HTTP/1.1\r\n\r\n" % i)
        expected = b"".join(ok(b"GET /%d " % i) for i in range(count))
        assert client.read(len(expected)) == expected


def test_pipelined_requests_are_held_back(loop: str) -> None:
    go = threading.Event()

    async def app(raw: RawConnection) -> None:
        if raw.target == b"/a":
            await asyncio.to_thread(go.wait, LONG_S)
        await echo(raw)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        client.sock.settimeout(0.3)  # nothing taken for that long: back-pressure
        request = b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64_000_000:
                sent += client.sock.send(request[sent % len(request) :])
        assert sent < 64_000_000
        go.set()
        client.sock.settimeout(LONG_S)
        expected = ok(b"GET /a ") + ok(b"GET / ") * (sent // len(request))
        assert client.read(len(expected)) == expected


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (GET + b"GET /", b"2 HTTP/1.1\r\n\r\n"),  # within a head
        (b"POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n" + bytes(65537), GET),  # paused behind a whole body
    ],
)
def test_what_the_client_sends_on_does_not_turn_our_fin_into_a_reset(loop: str, first: bytes, later: bytes) -> None:
    sent, finished = threading.Event(), threading.Event()

    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(b"answer")
        await asyncio.to_thread(sent.wait, LONG_S)
        raw.finish(False)
        finished.set()

    with serving(app, loop) as server:
        client = Client(server)
        client.send(first)
        assert client.read(6) == b"answer"
        if first.startswith(b"POST"):
            client.send(later)
        sent.set()
        assert finished.wait(LONG_S)
        if first.startswith(b"GET"):
            client.send(later)
        assert client.read_all() == (b"", "fin")


def test_fin_after_the_first_answer_drops_what_was_pipelined(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(ok(raw.target))
        raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET + GET)
        assert client.read_all() == (ok(b"/a"), "fin")


# junk

JUNK = b"\x00\x01junk\r\n\r\n"


def test_junk_outside_of_an_answer_gets_a_400(loop: str) -> None:
    with serving(echo, loop) as server:
        for first in (b"", GET):
            client = Client(server)
            client.send(first)
            expected = ok(b"GET /a ") if first else b""
            assert client.read(len(expected)) == expected
            client.send(JUNK)
            answer, end = client.read_all()
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert end == "fin"
            client.fin()


def test_http2_is_refused_by_name() -> None:
    with serving(echo) as server:
        for request in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n"):
            client = Client(server)
            client.send(request)
            assert client.read_all()[0].endswith(b"\r\n\r\nHTTP/2 is not supported: put a proxy in front")
            client.fin()


def test_junk_during_a_stream_is_not_answered_within_it(loop: str) -> None:
    go = threading.Event()

    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(HEAD)
        await asyncio.to_thread(go.wait, LONG_S)
        raw.write(b"0\r\n\r\n")
        raw.finish(True)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read(len(HEAD)) == HEAD
        client.send(JUNK)
        client.send(b"more of it")
        client.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.sock.recv(1)
        client.sock.settimeout(LONG_S)
        go.set()
        answer, end = client.read_all()
        assert answer.startswith(b"0\r\n\r\nHTTP/1.1 400 Bad Request\r\n")
        assert end == "fin"


def test_junk_before_begin_does_not_take_the_place_of_the_answer(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        await asyncio.sleep(0.05)
        await echo(raw)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET + JUNK)
        answer, end = client.read_all()
        assert answer.startswith(ok(b"GET /a ") + b"HTTP/1.1 400 Bad Request\r\n")
        assert end == "fin"


def test_junk_then_the_client_leaves_then_the_app_finishes(loop: str) -> None:
    done: queue.Queue[bool] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        raw.begin()
        await asyncio.wait({raw.left})
        await asyncio.sleep(0)
        raw.finish(True)
        done.put(True)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET + JUNK)
        client.fin()
        assert done.get(timeout=LONG_S)


BROKEN = b"POST /%d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nzz\r\n"


def test_broken_body_gets_a_400_and_ends_incomplete(loop: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        got.put((await body_of(raw), raw.complete))
        raw.begin()
        raw.write(b"never seen")
        raw.finish(True)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(BROKEN % 1)
        answer, end = client.read_all()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"never" not in answer
        assert end == "fin"
        assert got.get(timeout=LONG_S) == (b"a", False)


def test_broken_body_of_a_request_that_waits_gets_its_400_in_turn(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        await asyncio.sleep(0.05)
        await echo(raw)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET + GET + BROKEN % 3)
        answer, end = client.read_all()
        assert answer.startswith(2 * ok(b"GET /a ") + b"HTTP/1.1 400 Bad Request\r\n")
        assert end == "fin"


def test_broken_body_after_an_early_answer_began_ends_it_without_a_400(loop: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(HEAD)
        got.put((await body_of(raw), raw.complete))

    with serving(app, loop) as server:
        client = Client(server)
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert client.read(len(HEAD)) == HEAD
        client.send(b"1\r\na\r\nzz\r\n")
        assert client.read_all() == (b"", "fin")
        assert got.get(timeout=LONG_S) == (b"a", False)


@pytest.mark.parametrize(
    "start", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;"]
)
def test_head_without_end_is_refused(loop: str, start: bytes) -> None:
    with serving(echo, loop) as server:
        client = Client(server)
        with contextlib.suppress(ConnectionError):
            client.send(start + b"x" * (2 * serve.MAX_HEAD))
            client.half_close()
        answer, _ = client.read_all()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"bytes without an end" in answer


def test_head_within_the_bound_is_taken(loop: str) -> None:
    with serving(echo, loop) as server:
        client = Client(server)
        client.send(b"GET / HTTP/1.1\r\nX: " + b"x" * (serve.MAX_HEAD - 100) + b"\r\n\r\n")
        assert client.read(len(ok(b"GET / "))) == ok(b"GET / ")


# leaving


def leaving_app(got: "queue.Queue[Any]") -> Any:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(HEAD)
        await asyncio.wait({raw.left})
        got.put((raw.left.result(), time.monotonic()))

    return app


@pytest.mark.parametrize("how", ["fin", "half_close", "rst"])
@pytest.mark.parametrize("pipelined", [False, True])
def test_leaving_in_silence_is_noticed_at_once(
    loop: str, how: str, pipelined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "WATCH_S", 1000)  # by an event, not by looking now and then
    got: queue.Queue[tuple[Left, float]] = queue.Queue()
    delays = []
    with serving(leaving_app(got), loop) as server:
        for _ in range(5):
            client = Client(server)
            client.send(GET)
            assert client.read(len(HEAD)) == HEAD
            if pipelined:
                client.send(GET)
                time.sleep(0.01)  # only to let it be read before: right either way
            began = time.monotonic()
            getattr(client, how)()
            left, at = got.get(timeout=LONG_S)
            assert left is (Left.RST if how == "rst" else Left.FIN)
            delays.append(at - began)
    print(f"{loop} {how} pipelined={pipelined}: noticed after {statistics.median(delays) * 1000:.2f} ms (median)")
    assert max(delays) < 1


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("what", ["body", "pipeline"])
def test_leaving_is_noticed_behind_unread_bytes(loop: str, how: str, what: str) -> None:
    got: queue.Queue[tuple[Left, float]] = queue.Queue()
    with serving(leaving_app(got), loop) as server:
        client = Client(server)
        if what == "body":
            client.send(b"POST / HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n" + bytes(100_000))
        else:
            client.send(GET * 2 * serve.MAX_PIPELINED)
        assert client.read(len(HEAD)) == HEAD
        began = time.monotonic()
        getattr(client, how)()
        left, at = got.get(timeout=LONG_S)
        assert left is (Left.RST if how == "rst" else Left.FIN)
        assert at - began < 1


def test_leaving_while_idle_resolves_the_same_future(loop: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        if raw.state.setdefault("left", raw.left) is raw.left and raw.target == b"/a":
            raw.left.add_done_callback(lambda future: got.put(future.result()))
        await echo(raw)

    with serving(app, loop) as server:
        client = Client(server)
        for request, answer in ((GET, b"GET /a "), (b"GET /b HTTP/1.1\r\n\r\n", b"GET /b ")):
            client.send(request)
            assert client.read(len(ok(answer))) == ok(answer)
        assert got.empty()
        client.fin()
        assert got.get(timeout=LONG_S) is Left.FIN


def test_state_lives_as_long_as_the_connection(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raw.state["count"] = raw.state.get("count", 0) + 1
        raw.begin()
        raw.write(b"%d" % raw.state["count"])
        raw.finish(True)

    with serving(app, loop) as server:
        for _ in range(2):
            client = Client(server)
            client.send(GET)
            assert client.read(1) == b"1"
            client.send(GET + GET)
            assert client.read(2) == b"23"
            client.fin()


def test_ourselves_closing_is_told_apart(loop: str) -> None:
    got: queue.Queue[Left] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        raw.left.add_done_callback(lambda future: got.put(future.result()))
        raw.begin()
        raw.abort()

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read_all() == (b"", "fin")
        assert got.get(timeout=LONG_S) is Left.OURS


def test_a_client_that_is_gone_is_neither_waited_for_nor_written_to(loop: str) -> None:
    got: queue.Queue[Any] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(bytes(20_000_000))
        drained = asyncio.create_task(raw.drain())
        await asyncio.sleep(0)
        waited = not drained.done()
        got.put(waited)
        await drained
        await asyncio.wait({raw.left})
        for _ in range(10):
            raw.write(b"x")
            await raw.drain()
        await raw.reset()
        raw.close()
        raw.finish(True)
        got.put("done")

    for how in ("fin", "half_close", "rst"):
        with serving(app, loop) as server:
            client = Client(server)
            client.send(GET)
            assert got.get(timeout=LONG_S)
            getattr(client, how)()
            assert got.get(timeout=LONG_S) == "done"
            client.fin()


def test_drain_waits_for_a_slow_reader(loop: str) -> None:
    got: queue.Queue[Any] = queue.Queue()
    total = 20_000_000

    async def app(raw: RawConnection) -> None:
        raw.begin()
        for _ in range(total // 100_000):
            raw.write(bytes(100_000))
            congested = raw.congested
            await raw.drain()
            got.put((raw._protocol.transport.get_write_buffer_size(), congested))
            assert not raw.congested
        raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        client.sock.settimeout(LONG_S)
        data, end = client.read_all()
        assert (len(data), end) == (total, "fin")
        assert max(size for size, _ in got.queue) <= 64 * 1024
        assert any(congested for _, congested in got.queue)


def connections() -> list[Any]:
    gc.collect()
    return [item for item in gc.get_objects() if isinstance(item, serve._Protocol | RawConnection)]


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("idle", [False, True])
def test_connection_is_freed_when_the_client_leaves(loop: str, how: str, idle: bool) -> None:
    assert connections() == []
    gone = threading.Event()

    async def app(raw: RawConnection) -> None:
        raw.left.add_done_callback(lambda _: gone.set())
        if idle:
            await echo(raw)
        else:
            raw.begin()
            raw.write(HEAD)
            await asyncio.wait({raw.left})

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        client.read(5)
        assert connections()
        getattr(client, how)()
        assert gone.wait(LONG_S)
        deadline = time.monotonic() + LONG_S
        while connections() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert connections() == []


# endings


@pytest.mark.parametrize("idle", [False, True])
def test_reset_comes_after_everything_was_delivered(loop: str, idle: bool) -> None:
    size = 200_000

    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(b"x" * size)
        if idle:
            raw.finish(True)
        await raw.reset()

    with serving(app, loop) as server:
        for _ in range(10):
            client = Client(server, rcvbuf=4096)
            client.send(GET)
            data = b""
            with contextlib.suppress(ConnectionResetError):
                while more := client.sock.recv(8192):
                    data += more
                    time.sleep(0.001)
                pytest.fail("FIN instead of RST")
            assert len(data) == size


def test_reset_does_not_wait_for_ever_for_a_client_that_never_reads(loop: str) -> None:
    took: queue.Queue[float] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(bytes(20_000_000))
        began = time.monotonic()
        await raw.reset(cap_s=0.1)
        took.put(time.monotonic() - began)

    with serving(app, loop) as server:
        client = Client(server, rcvbuf=4096)
        client.send(GET)
        assert 0.09 < took.get(timeout=LONG_S) < 5
        data, end = client.read_all()
        assert (len(data) < 20_000_000, end) == (True, "rst")


def test_macos_is_asked_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Transport:
        def get_extra_info(self, name: str) -> Any:
            return self

        def getsockopt(self, level: int, option: int) -> int:
            assert (level, option) == (socket.SOL_SOCKET, 0x1024)
            return 5

        def get_write_buffer_size(self) -> int:
            return 7

    monkeypatch.setattr("sys.platform", "darwin")
    transport: Any = Transport()
    assert undelivered(transport) == 12


@pytest.mark.parametrize(("call", "end"), [("close", "fin"), ("reset", "rst"), ("abort", "fin")])
def test_idle_connection_can_be_ended(loop: str, call: str, end: str) -> None:
    raws: queue.Queue[tuple[RawConnection, asyncio.AbstractEventLoop]] = queue.Queue()

    async def app(raw: RawConnection) -> None:
        await echo(raw)
        raws.put((raw, asyncio.get_running_loop()))

    async def end_it(raw: RawConnection) -> None:
        result = getattr(raw, call)()
        if result is not None:
            await result

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read(len(ok(b"GET /a "))) == ok(b"GET /a ")
        raw, server_loop = raws.get(timeout=LONG_S)
        asyncio.run_coroutine_threadsafe(end_it(raw), server_loop).result(LONG_S)
        assert client.read_all() == (b"", end)


def test_a_finished_request_cannot_end_the_next_one(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        if raw.target == b"/a":
            raw.state["first"] = raw
            await echo(raw)
        else:
            raw.begin()
            raw.write(b"one ")
            raw.state["first"].close()
            await raw.state["first"].reset()
            raw.write(b"two")
            raw.finish(False)

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET + b"GET /b HTTP/1.1\r\n\r\n")
        assert client.read_all() == (ok(b"GET /a ") + b"one two", "fin")


def test_idle_connection_is_closed_after_a_time(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "KEEP_ALIVE_S", 0.05)
    with serving(echo, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read_all() == (ok(b"GET /a "), "fin")


def test_app_that_fails_after_begin_adds_nothing(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(raw: RawConnection) -> None:
        raw.begin()
        raw.write(HEAD)
        raise ValueError("oops")

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read_all() == (HEAD, "fin")
    assert "oops" in caplog.text


def test_app_that_fails_before_begin_gets_a_500(loop: str) -> None:
    async def app(raw: RawConnection) -> None:
        raise asyncio.CancelledError  # of something it waited for: the server is not stopping

    with serving(app, loop) as server:
        client = Client(server)
        client.send(GET)
        assert client.read_all()[0].startswith(b"HTTP/1.1 500 ")


def test_a_long_target_costs_no_more_than_its_length(loop: str) -> None:
    target = b"/" + b"u" * 200_000 + b"?at=http://other/path"
    began = time.process_time()
    with serving(echo, loop) as server:
        client = Client(server)
        client.send(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        wanted = ok(b"GET " + target + b" ")
        assert client.read(len(wanted)) == wanted
    assert time.process_time() - began < 5
