"""Taking a port, starting and stopping, ordinary ASGI apps, and the inside of uvicorn that serve.py stands on."""

import asyncio
import errno
import inspect
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http import httptools_impl

from mockllm import serve
from mockllm.core.errors import MockllmError, UsageError
from mockllm.serve import RAW, RawConnection, Server
from mockllm.sockets import Left, bind

LOOPS = ["asyncio", "uvloop"]
LONG_S = 20
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return str(request.param)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    raw: RawConnection = scope["extensions"][RAW]
    raw.begin()
    raw.write(b"hello")
    raw.finish(False)


async def hold(scope: Any, receive: Any, send: Any) -> None:
    """Streams for ever, without a word."""
    raw: RawConnection = scope["extensions"][RAW]
    raw.begin()
    raw.write(b"hello")
    await asyncio.Event().wait()


def server_on(app: Any, loop: str, **options: Any) -> Server:
    server = Server(app, "127.0.0.1", 0, **options)
    server._uvicorn.config.loop = loop
    return server


def connect(server: Server) -> socket.socket:
    host, port = server.base_url.removeprefix("http://").rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)), timeout=LONG_S)


def ask(server: Server, request: bytes = GET) -> bytes:
    with connect(server) as sock:
        sock.sendall(request)
        data = b""
        while more := sock.recv(65536):
            data += more
        return data


# taking a port


def test_port_0_takes_a_free_one_with_nodelay_and_its_protocol() -> None:
    with bind("127.0.0.1", 0) as sock:
        assert sock.getsockname()[1] > 0
        assert sock.proto == socket.IPPROTO_TCP  # else asyncio leaves TCP_NODELAY alone
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_taken_port_is_said_with_what_to_do() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(MockllmError) as caught:
            bind("127.0.0.1", port)
        expected = f"port {port} on 127.0.0.1 is in use; choose another with --port, or --port 0 for a free one"
        assert str(caught.value) == expected
        assert caught.value.exit_code == 1


def test_port_is_free_again_at_once() -> None:
    with server_on(hello, "asyncio") as server:
        assert ask(server) == b"hello"  # our FIN came first: TIME_WAIT on our side
        port = int(server.base_url.rsplit(":", 1)[1])
    bind("127.0.0.1", port).close()


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("no-such-host.invalid", 0, "host name 'no-such-host.invalid' is not known here; choose another with --host"),
        ("x" * 80 + ".invalid", 0, "is not known here"),
        ("192.0.2.1", 0, "192.0.2.1 is not an address of this machine; choose another with --host"),
        ("127.0.0.1", 65536, "port 65536 does not exist; choose one from 0 to 65535 with --port"),
        ("127.0.0.1", -1, "port -1 does not exist; choose one from 0 to 65535 with --port"),
    ],
)
def test_what_cannot_be_bound_is_said_in_one_line(host: str, port: int, message: str) -> None:
    with pytest.raises(MockllmError) as caught:
        bind(host, port)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UsageError) == (not 0 <= port <= 65535)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "port 80 on 127.0.0.1 is not permitted; choose one above 1023 with --port"),
        (errno.ENOBUFS, f"port 80 on 127.0.0.1 cannot be used: {os.strerror(errno.ENOBUFS)}"),
    ],
)
def test_other_refusals_of_the_system(monkeypatch: pytest.MonkeyPatch, number: int, message: str) -> None:
    class Refusing(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(MockllmError) as caught:
        bind("127.0.0.1", 80)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("0.0.0.0", "127.0.0.1"),
        ("::1", "[::1]"),
        ("::", "[::1]"),
    ],
)
def test_base_url_can_be_used_as_it_stands(host: str, shown: str) -> None:
    try:
        server = Server(hello, host, 0)
    except MockllmError as error:
        pytest.skip(str(error))  # a machine without IPv6
    with server:
        assert server.base_url == f"http://{shown}:{server.base_url.rsplit(':', 1)[1]}"
        assert ask(server) == b"hello"


# starting and stopping


def test_start_returns_when_it_serves_and_stop_when_it_is_over(loop: str) -> None:
    calls: list[Any] = []
    in_loop: list[asyncio.AbstractEventLoop] = []

    def on_stop() -> None:
        in_loop.append(asyncio.get_running_loop())
        calls.append("stop")

    server = server_on(hello, loop, on_ready=calls.append, on_stop=on_stop)
    began = time.monotonic()
    server.start()
    print(f"{loop}: started in {(time.monotonic() - began) * 1000:.0f} ms")
    assert calls == [server.base_url]
    assert ask(server) == b"hello"
    began = time.monotonic()
    server.stop()
    print(f"{loop}: stopped in {(time.monotonic() - began) * 1000:.0f} ms")
    assert calls == [server.base_url, "stop"]
    assert in_loop[0].is_closed()
    assert type(in_loop[0]).__module__.split(".")[0] == loop
    with pytest.raises(ConnectionRefusedError):
        connect(server)
    server.stop()


def test_uvloop_is_taken_where_it_exists() -> None:
    pytest.importorskip("uvloop")
    names: list[str] = []
    with Server(hello, "127.0.0.1", 0, on_stop=lambda: names.append(type(asyncio.get_running_loop()).__module__)):
        pass
    assert names == ["uvloop"]


def test_server_that_never_ran_gives_its_port_back() -> None:
    server = Server(hello, "127.0.0.1", 0)
    server.stop()
    bind("127.0.0.1", int(server.base_url.rsplit(":", 1)[1])).close()


def test_failure_at_the_start_is_raised_where_it_was_started(loop: str) -> None:
    def on_ready(url: str) -> None:
        raise ValueError(url)

    server = server_on(hello, loop, on_ready=on_ready)
    with pytest.raises(ValueError, match="http://127"):
        server.start()
    with pytest.raises(ConnectionRefusedError):
        connect(server)
    server.stop()


@pytest.mark.parametrize("stubborn", [False, True])
def test_stop_cuts_streams_that_are_held_for_ever(loop: str, stubborn: bool, caplog: pytest.LogCaptureFixture) -> None:
    events: queue.Queue[Any] = queue.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"][RAW].left.add_done_callback(lambda future: events.put(future.result()))
        try:
            await hold(scope, receive, send)
        except asyncio.CancelledError:
            events.put("cancelled")
            if not stubborn:
                raise
            try:
                await asyncio.Event().wait()
            finally:
                events.put("cancelled again")

    server = server_on(app, loop, on_stop=lambda: events.put("stopping"))
    server.start()
    clients = [connect(server) for _ in range(3)]
    idle = connect(server)
    for sock in clients:
        sock.sendall(GET)
        assert sock.recv(5) == b"hello"
    began = time.monotonic()
    server.stop()
    assert serve.GRACE_S / 2 < time.monotonic() - began < 3
    for sock in (*clients, idle):
        assert sock.recv(5) == b""
        sock.close()
    assert events.get() == "stopping"
    assert sorted(map(str, events.queue)) == ["Left.OURS"] * 3 + ["cancelled"] * 3 + ["cancelled again"] * 3 * stubborn
    assert caplog.text == ""


def test_stop_lets_an_answer_end_and_takes_no_further_request(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "GRACE_S", 30.0)
    stopping = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raw: RawConnection = scope["extensions"][RAW]
        raw.begin()
        raw.write(b"one ")
        await asyncio.to_thread(stopping.wait, LONG_S)
        raw.write(b"two")
        raw.finish(True)

    server = server_on(app, loop, on_stop=stopping.set)
    with server, connect(server) as sock:
        sock.sendall(GET + GET)
        assert sock.recv(4) == b"one "
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 15
        assert sock.recv(10) == b"two"
        assert sock.recv(10) == b""


def test_stop_waits_for_no_client_that_lingers(loop: str) -> None:
    with server_on(hello, loop) as server, connect(server) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
        assert sock.recv(10) == b"hello"
        assert sock.recv(10) == b""
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < serve.GRACE_S


def test_stop_waits_not_for_ever_for_a_client_that_never_reads(loop: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raw: RawConnection = scope["extensions"][RAW]
        raw.begin()
        raw.write(bytes(20_000_000))
        raw.finish(False)

    with server_on(app, loop) as server, connect(server) as sock:
        sock.sendall(GET)
        assert sock.recv(1) == b"\0"
        began = time.monotonic()
        server.stop()
        assert serve.GRACE_S / 2 < time.monotonic() - began < 3


def test_failing_on_stop_still_stops(loop: str) -> None:
    def on_stop() -> None:
        raise ValueError("cannot")

    server = server_on(hello, loop, on_stop=on_stop)
    server.start()
    server.stop()
    assert isinstance(server._failure, ValueError)
    with pytest.raises(ConnectionRefusedError):
        connect(server)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_at_a_signal_without_raising_it_again(loop: str, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    got: list[bytes] = []

    def kill() -> None:
        got.append(ask(server))
        os.kill(os.getpid(), number)

    server = server_on(hello, loop, on_ready=lambda _: threading.Thread(target=kill).start())
    server.run()
    assert got == [b"hello"]
    assert signal.getsignal(number) is before


def test_signal_before_it_is_ready_ends_it_too(loop: str) -> None:
    server = server_on(hello, loop, on_ready=lambda _: os.kill(os.getpid(), signal.SIGINT))
    server.run()


def test_run_can_be_stopped_from_another_thread(loop: str) -> None:
    server = server_on(hello, loop, on_ready=lambda _: threading.Thread(target=server.stop).start())
    server.run()


def test_second_sigint_cuts_at_once(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "GRACE_S", 30.0)

    def kill() -> None:
        with connect(server) as sock:
            sock.sendall(GET)
            sock.recv(5)
            os.kill(os.getpid(), signal.SIGINT)
            assert stopping.wait(LONG_S)
            os.kill(os.getpid(), signal.SIGINT)
            assert sock.recv(5) == b""

    stopping = threading.Event()
    thread = threading.Thread(target=kill)
    server = server_on(hold, loop, on_ready=lambda _: thread.start(), on_stop=stopping.set)
    began = time.monotonic()
    server.run()
    assert time.monotonic() - began < 15
    thread.join()


def test_process_exit_status_is_the_callers() -> None:
    code = (
        "import sys\nfrom mockllm.serve import Server\n"
        "async def app(scope, receive, send): pass\n"
        "Server(app, '127.0.0.1', 0, on_ready=lambda url: print(url, flush=True)).run()\nsys.exit(7)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG_S)
    assert (process.returncode, out, err) == (7, "", "")


# ordinary ASGI


def starlette_app() -> Starlette:
    async def health(request: Request) -> JSONResponse:
        body = await request.body()
        return JSONResponse({"path": request.url.path, "query": request.url.query, "body": body.decode()})

    async def stream(request: Request) -> StreamingResponse:
        async def pieces() -> Any:
            for i in range(3):
                yield f"{i}"

        return StreamingResponse(pieces())

    return Starlette(routes=[Route("/_mockllm/{rest:path}", health, methods=["GET", "POST"]), Route("/stream", stream)])


def test_starlette_apps_work(loop: str) -> None:
    with server_on(starlette_app(), loop) as server, httpx.Client(base_url=server.base_url) as client:
        answer = client.post("/_mockllm/é/x%2f?a=1&b", content=b"abc")
        assert answer.json() == {"path": "/_mockllm/é/x/", "query": "a=1&b", "body": "abc"}
        assert "server" not in answer.headers
        assert "date" not in answer.headers
        assert client.get("/stream").text == "012"
        assert client.get("//nowhere").status_code == 404


def test_ordinary_app_and_absolute_form_and_pipelining(loop: str) -> None:
    with server_on(starlette_app(), loop) as server:
        answer = ask(
            server,
            b"GET http://h:1/_mockllm/a?x HTTP/1.1\r\nHost: h\r\n\r\n"
            b"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n"
            b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"
            b"GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        )
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"404", b"404", b"200"]
        assert b'{"path":"/_mockllm/a","query":"x","body":""}' in answer


def test_ordinary_app_is_told_that_the_client_left_though_a_request_waits(loop: str) -> None:
    messages: queue.Queue[Any] = queue.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        messages.put(await receive())

    with server_on(app, loop) as server, connect(server) as sock:
        sock.sendall(GET + GET)
        assert sock.recv(8) == b"HTTP/1.1"
        sock.close()
        assert messages.get(timeout=LONG_S) == {"type": "http.disconnect"}


def test_ordinary_app_at_the_stop(loop: str) -> None:
    stopping = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        await asyncio.to_thread(stopping.wait, LONG_S)
        await send({"type": "http.response.body", "body": b"2"})

    server = server_on(app, loop, on_stop=stopping.set)
    server.start()
    with connect(server) as sock:
        sock.sendall(GET)
        data = sock.recv(1000)
        while not data.endswith(b"1"):
            data += sock.recv(1000)
        server.stop()
        assert sock.recv(10) == b"2"
        assert sock.recv(10) == b""


# the parser in any segmentation


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def requests_in(pieces: list[bytes]) -> tuple[list[Any], bytes]:
    """What an app sees of these reads."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raw: RawConnection = scope["extensions"][RAW]
        body = b"".join([chunk async for chunk in raw.chunks()])
        assert scope["headers"] == [(name.lower(), value) for name, value in raw.headers]
        seen.append((raw.method, raw.target, raw.headers, raw.http_version, raw.keep_alive, body, raw.complete))
        raw.begin()
        raw.finish(True)

    async def main() -> bytes:
        config = uvicorn.Config(app, log_config=None, lifespan="off", interface="asgi3", ws="none")
        protocol = serve._Protocol(config, uvicorn.server.ServerState(), {})
        wire = Wire()
        protocol.connection_made(wire)
        for piece in pieces:
            protocol.data_received(piece)
        while protocol.tasks:
            await asyncio.wait(set(protocol.tasks))
        protocol.eof_received()
        protocol.connection_lost(None)
        return wire.written

    return seen, asyncio.run(main())


TOKEN = st.text("abcXYZ-_09", min_size=1, max_size=8).map(lambda text: b"X-" + text.encode())
VALUE = st.lists(st.sampled_from([b"a", b"Z", b"\xe9", b";", b'"', b" b"]), max_size=5).map(b"".join)
TARGET = st.sampled_from([b"/", b"//a//b?x=/../&&", b"/%ff%00?", b"http://u@h:1", b"https://h/p?q", b"/a:b", b"*"])
KIND = st.sampled_from(["plain", "length", "chunked", "h2c", "websocket", "connect"])


@st.composite
def messages(draw: Any) -> tuple[bytes, Any]:
    kind = draw(KIND)
    method = {"connect": "CONNECT"}.get(kind) or draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS"]))
    target = b"h:443" if kind == "connect" else draw(TARGET)
    version = draw(st.sampled_from(["1.0", "1.1"]))
    headers = [(name, value.strip()) for name, value in draw(st.lists(st.tuples(TOKEN, VALUE), max_size=4))]
    if kind in ("h2c", "websocket"):
        headers += [(b"uPgrade", kind.encode()), (b"Connection", b"Upgrade")]
    keep = version == "1.1"
    chunks = (
        draw(st.lists(st.binary(min_size=1, max_size=20), max_size=3)) if kind not in ("plain", "websocket") else []
    )
    body = b"".join(chunks)
    framed = body
    if kind == "chunked":
        headers.append((b"Transfer-encoding", b"chunked"))
        framed = b"".join(b"%X;e=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nTrailer: t\r\n\r\n"
    elif chunks:
        headers.append((b"content-Length", b"%d" % len(body)))
    head = b"%s %s HTTP/%s\r\n" % (method.encode(), target, version.encode())
    head += b"".join(b"%s: %s\r\n" % pair for pair in headers) + b"\r\n"
    return head + framed, (method, target, tuple(headers), version, keep, body, True)


@given(st.lists(messages(), min_size=1, max_size=4), st.data())
def test_requests_are_the_same_in_any_segmentation(sent: list[tuple[bytes, Any]], data: st.DataObject) -> None:
    stream = b"".join(wire for wire, _ in sent)
    expected = []
    for _, request in sent:
        expected.append(request)
        if not request[4]:
            break  # nothing follows a request that asked to close
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    cut = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    for pieces in ([stream], [stream[i : i + 1] for i in range(len(stream))], cut):
        assert requests_in(pieces) == (expected, b"")


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_requests_or_one_400(junk: bytes, cut: int) -> None:
    stream = GET + junk
    requests, written = requests_in([stream[:cut], stream[cut:]])
    assert requests[0][:2] == ("GET", b"/a")
    assert written.count(b"HTTP/1.1 400 Bad Request\r\n") <= 1
    assert written == b"" or written.startswith(b"HTTP/1.1 400 ")


# the inside of uvicorn


def test_the_inside_of_uvicorn_is_still_what_serve_stands_on() -> None:
    """Fails where a new uvicorn renames or retypes what serve.py uses: adapt serve.py, then this, then the pin."""
    assert (0, 54) <= tuple(map(int, version("uvicorn").split(".")[:2])) < (0, 56)

    async def main() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.Event().wait()

        config = uvicorn.Config(app, log_config=None, lifespan="off", interface="asgi3", ws="none")
        assert callable(config.get_loop_factory())
        state = uvicorn.server.ServerState()
        protocol = httptools_impl.HttpToolsProtocol(config, state, {})
        wire = Wire()
        protocol.connection_made(wire)
        assert state.connections == {protocol}
        protocol.data_received(b"POST /1?q HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\na")
        first = protocol.cycle
        types = {
            (protocol, "transport"): Wire,
            (protocol, "logger"): object,
            (protocol, "access_log"): bool,
            (protocol, "url"): bytes,
            (protocol, "headers"): list,
            (protocol, "timeout_keep_alive_task"): type(None),
            (protocol.flow, "read_paused"): bool,
            (first, "body"): bytearray,
            (first, "more_body"): bool,
            (first, "message_event"): asyncio.Event,
            (first, "waiting_for_100_continue"): bool,
            (first, "response_started"): bool,
            (first, "response_complete"): bool,
            (first, "disconnected"): bool,
            (first, "keep_alive"): bool,
        }
        for (owner, name), kind in types.items():
            assert isinstance(vars(owner)[name], kind), name
        assert first.scope is protocol.scope
        assert first.scope["headers"] is protocol.headers
        assert (first.body, first.more_body, first.waiting_for_100_continue) == (b"a", True, True)
        assert len(state.tasks) == 1
        assert inspect.iscoroutinefunction(protocol.flow.drain)
        assert callable(protocol.flow.resume_writing)

        protocol.data_received(b"b" + GET + GET)
        assert not first.more_body
        assert protocol.flow.read_paused
        assert [cycle.scope["path"] for cycle, _ in protocol.pipeline] == ["/a", "/a"]
        assert protocol.pipeline[0][0] is protocol.cycle  # the newest; the oldest is popped from the right
        second = protocol.pipeline[1][0]
        first.response_complete = True
        first.on_response()
        assert len(state.tasks) == 2
        assert second not in [cycle for cycle, _ in protocol.pipeline]
        assert not protocol.flow.read_paused
        for task in state.tasks:
            task.cancel()
        await asyncio.wait(state.tasks)

    asyncio.run(main())
    for owner, name, parameters in [
        (httptools_impl.HttpToolsProtocol, "_start_asgi_task", ["self", "cycle", "app"]),
        (httptools_impl.HttpToolsProtocol, "on_response_complete", ["self"]),
        (httptools_impl.HttpToolsProtocol, "shutdown", ["self"]),
        (httptools_impl.HttpToolsProtocol, "_unset_keepalive_if_required", ["self"]),
        (uvicorn.Server, "startup", ["self", "sockets"]),
        (uvicorn.Server, "main_loop", ["self"]),
        (uvicorn.Server, "shutdown", ["self", "sockets"]),
        (uvicorn.Server, "serve", ["self", "sockets"]),
        (uvicorn.Server, "capture_signals", ["self"]),
        (uvicorn.Server, "handle_exit", ["self", "sig", "frame"]),
    ]:
        assert list(inspect.signature(getattr(owner, name)).parameters) == parameters, name
    # each is replaced, so it must still be what is called
    assert "self.main_loop()" in inspect.getsource(uvicorn.Server._serve)
    assert "self.shutdown(" in inspect.getsource(uvicorn.Server._serve)
    assert "self.capture_signals()" in inspect.getsource(uvicorn.Server.serve)
    assert "self._start_asgi_task(" in inspect.getsource(httptools_impl.HttpToolsProtocol.on_headers_complete)


def test_left_has_a_value_for_the_journal() -> None:
    assert [left.value for left in Left] == ["fin", "rst", "ours"]
