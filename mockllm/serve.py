"""A server for a plain ASGI callable that also hands it the raw connection behind each HTTP request.

The one file that knows uvicorn's inside (pinned in pyproject.toml): uvicorn's protocol parses requests, the app writes
the response's bytes itself. It must not know what is recorded or replayed.
"""

import asyncio
import contextlib
import logging
import re
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import httptools
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mockllm.core.exchange import Headers
from mockllm.sockets import RESET, Left, bind, peer_left, undelivered

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

RAW = "mockllm.raw"
"""The key in `scope["extensions"]` under which a request's RawConnection stands."""

MAX_HEAD = 256 * 1024
"""Bytes of a request's head (or trailers, or a chunk's extensions) that are taken before the client is refused."""
MAX_PIPELINED = 16
"""Requests that may wait behind the one being answered before reading stops."""
KEEP_ALIVE_S = 120
"""An idle connection is closed after this long: longer than clients keep theirs, so that no request meets our close."""
LINGER_S = 5.0
"""How long a client that is still sending may go on after our FIN."""
WATCH_S = 0.1
"""How often the kernel is asked about the client while reading is paused."""
GRACE_S = 1.0
"""How long open requests may go on when the server stops."""
CANCEL_S = 0.5
"""How long cancelled tasks may take to end."""

_ORIGIN = re.compile(rb"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(slots=True, eq=False, repr=False)
class RawConnection:
    """The connection behind one request, found at `scope["extensions"][RAW]`.

    After `begin()` nothing but what the app writes goes out. The app ends the response with `finish`, `close`, `reset`
    or `abort` before it returns (what it leaves open is closed). Once the client is gone, writes are dropped, nothing
    here waits and nothing raises. `method`, `target` (as in the request line) and `headers` are spelled as the client
    did; `http_version` is "1.0" or "1.1"; `keep_alive` is what the client asked for (RFC 9112 §9.3). `on_write` is told
    what is written.
    """

    method: str
    target: bytes
    headers: Headers
    http_version: str
    keep_alive: bool
    _protocol: "_Protocol"
    _cycle: RequestResponseCycle = field(init=False)
    on_write: Callable[[bytes], None] = field(default=lambda _: None, init=False)

    @property
    def state(self) -> dict[str, Any]:
        """Lives as long as the client's TCP connection, shared by all its requests."""
        return self._protocol.state

    @property
    def left(self) -> asyncio.Future[Left]:
        """Resolves, once per TCP connection, as soon as the client closes, half-closes or resets. Never raises.

        It outlives the request. Use `asyncio.wait`, `asyncio.shield` or a callback: a bare `await` in a task that is
        cancelled would cancel it for everybody.
        """
        return self._protocol.left

    @property
    def complete(self) -> bool:
        """Whether the request was fully received."""
        return not self._cycle.more_body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The request's body as it arrives, without framing, for one reader; what is not read holds the client back.

        Sends `100 Continue` first where the client waits for it and `begin` was not called. Ends with the body, and
        when no more of it will come: then `complete` is False.
        """
        cycle, flow = self._cycle, self._protocol.flow
        if cycle.waiting_for_100_continue and not cycle.transport.is_closing():
            cycle.waiting_for_100_continue = False
            cycle.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            if cycle.body:
                data = bytes(cycle.body)
                cycle.body = bytearray()
                yield data
            elif not cycle.more_body or cycle.disconnected or cycle.response_complete:
                return
            else:
                flow.resume_reading()
                await cycle.message_event.wait()
                cycle.message_event.clear()

    def unread(self, body: bytes) -> None:
        """Put back a body that was read to its end: `chunks` gives it once more."""
        self._cycle.body = bytearray(body)

    def begin(self) -> None:
        """Take over: from here on uvicorn writes nothing of its own into this response (no 100, no 400, no 500)."""
        self._cycle.response_started = True
        self._cycle.waiting_for_100_continue = False

    def write(self, data: bytes) -> None:
        """Send `data` verbatim, in one write call on the transport.

        Works after `finish(keep_open=True)` too, until a later request is being answered.
        """
        protocol = self._protocol
        if self._mine() and not protocol.hung_up and not protocol.transport.is_closing():
            protocol.transport.write(data)
            self.on_write(data)

    @property
    def congested(self) -> bool:
        """Whether more waits to be sent than the high-water mark: time to `drain`."""
        return self._protocol.flow.write_paused

    async def drain(self) -> None:
        """Return when what waits to be sent is below the high-water mark, or the client is gone."""
        await self._protocol.flow.drain()

    def finish(self, keep_open: bool) -> None:
        """The response is over; call it in the app's own task. Later calls do nothing.

        With `keep_open` the next request on the connection is answered, or awaited; else FIN follows what was written.
        When the server is stopping the connection is always closed.
        """
        cycle = self._cycle
        if cycle.response_complete:
            return
        self._over()
        if not keep_open or self._protocol.stopping:
            self._protocol.hang_up()
        cycle.on_response()

    @property
    def superseded(self) -> bool:
        """Whether the client has sent another request since this one."""
        return self._protocol.cycle is not self._cycle

    def close(self) -> None:
        """Send FIN after what was written.

        Works after `finish(keep_open=True)` too; does nothing if a later request is being answered by then.
        """
        if self._mine():
            self._over()
            self._protocol.hang_up()

    async def reset(self, cap_s: float = 30.0) -> None:
        """Send RST once the client's kernel has everything that was written, after `cap_s` at most.

        Works after `finish(keep_open=True)` too; does nothing if a later request is being answered by then.
        """
        transport = self._protocol.transport
        deadline = self._protocol.loop.time() + cap_s
        pause = 0.0005
        # linger 0 throws away what the transport or the kernel still holds
        while not transport.is_closing() and undelivered(transport) and self._protocol.loop.time() < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        if self._mine() and not transport.is_closing():
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.abort()

    def abort(self) -> None:
        """Close now: what still waits in the transport is dropped."""
        self._over()
        self._protocol.transport.abort()

    def _mine(self) -> bool:
        return self._protocol.active in (None, self._cycle)

    def _over(self) -> None:
        self._cycle.response_started = self._cycle.response_complete = True
        self._cycle.message_event.set()


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, with the gaps closed that show when an app holds the connection itself."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = logging.getLogger(__name__)  # uvicorn's belong to the process, which may run a uvicorn of its own
        self.access_log = False
        self.state: dict[str, Any] = {}
        self.left: asyncio.Future[Left] = self.loop.create_future()
        self.active: RequestResponseCycle | None = None  # being answered; self.cycle is the newest, which may wait
        self.stopping = False
        self.hung_up = False
        self.deaf = False  # input is thrown away
        self.refusal: str | None = None  # what to say once the answer under way is over
        self.head_size = 0
        self.in_head = False
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.disguised: tuple[str, bytes, list[tuple[bytes, bytes]]] | None = None
        self.watching = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave(Left.RST if exc else Left.OURS)
        super().connection_lost(exc)
        self.pipeline.clear()

    def eof_received(self) -> None:
        """A FIN, of one half too, means that the client left: the transport closes itself after this."""
        self._leave(Left.FIN)

    def _leave(self, how: Left) -> None:
        if not self.left.done():
            self.left.set_result(how)
        self._unset_keepalive_if_required()  # uvicorn forgets it after RST, and the timer would hold the protocol
        self.flow.resume_writing()
        # uvicorn tells only the newest request
        for cycle in (self.active, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self._unset_keepalive_if_required()
        self.head_size += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            http2 = b" HTTP/2.0\r\n" in data
            self._refuse("HTTP/2 is not supported: put a proxy in front" if http2 else f"Invalid HTTP request: {error}")
        else:
            if self.head_size > MAX_HEAD:
                self._refuse(f"Invalid HTTP request: more than {MAX_HEAD} bytes without an end of its head")
        if self.flow.read_paused and not self.watching:
            self.watching = True
            self.loop.call_later(WATCH_S, self._watch)

    def _feed(self, data: bytes) -> None:
        """Parse `data`.

        The parser gives up the body of a CONNECT or Upgrade request, so that one is fed again in disguise.
        """
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                lines = [b"POST / HTTP/%s" % self.parser.get_http_version().encode()]
                lines += [b"%s: %s" % pair for pair in self.raw_headers if pair[0].lower() != b"upgrade"]
                self.disguised = (self.parser.get_method().decode(), self.url, self.raw_headers)
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                data = b"\r\n".join([*lines, b"", data[upgrade.args[0] :]])
            else:
                return

    def _watch(self) -> None:
        """While reading is paused, neither FIN nor RST reaches the loop: ask the kernel now and then.

        A FIN behind more bytes than the kernels' buffers hold is not on its way yet, and cannot be seen.
        """
        self.watching = self.flow.read_paused and not self.transport.is_closing()
        if not self.watching:
            return
        how = peer_left(self.transport)
        if how is None:
            self.loop.call_later(WATCH_S, self._watch)
        else:
            self._leave(how)
            self.transport.close()

    # the parser's callbacks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.raw_headers = []
        self.in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # else a trailer, which uvicorn would add to the running request's headers
            self.raw_headers.append((name, value))
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        self.head_size = 0
        if self.parser.should_upgrade():
            return
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError(version)
        method, target, headers = self.disguised or (self.parser.get_method().decode(), self.url, self.raw_headers)
        self.disguised = None
        raw = RawConnection(method, target, tuple(headers), version, self.parser.should_keep_alive(), self)
        self.headers[:] = [(name.lower(), value) for name, value in headers]
        self.scope["extensions"] = cast(Any, {RAW: raw})
        self.url = b"/"  # uvicorn refuses targets that are no path
        super().on_headers_complete()
        path, _, query = _ORIGIN.sub(b"", target, count=1).partition(b"?")
        self.scope["method"] = method
        self.scope["path"] = unquote_to_bytes(path or b"/").decode("utf-8", "replace")
        self.scope["raw_path"] = path or b"/"
        self.scope["query_string"] = query
        raw._cycle = self.cycle
        if 0 < len(self.pipeline) < MAX_PIPELINED:
            self.flow.resume_reading()  # uvicorn paused it, which would hide that the client leaves

    def on_body(self, body: bytes) -> None:
        self.head_size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.head_size = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    # requests and responses

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.active = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.active = None
        if self.hung_up or self.transport.is_closing():
            return
        if self.refusal is not None and not self.pipeline:
            self._refuse(self.refusal)
        else:
            super().on_response_complete()

    def _refuse(self, message: str) -> None:
        """Answer junk with a 400, never within another answer; no later byte of this client means anything."""
        self.deaf = True
        broken = self.cycle is not None and self.cycle.more_body  # the junk is in its body
        if self.active is not None and not (broken and self.cycle is self.active):
            if broken:
                self.pipeline.popleft()
            self.refusal = message
            return
        self.logger.warning("%s", message)
        if self.active is None or not self.active.response_started:
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
                b"Connection: close\r\n\r\n%s" % (len(message), message.encode("ascii", "replace"))
            )
        self.hang_up()

    def hang_up(self) -> None:
        """Send FIN after everything written.

        Does not wait for the client unless it is still sending: to close on unread bytes sends RST, which destroys an
        answer on its way (RFC 9112 §9.6).
        """
        sending = self.deaf or self.flow.read_paused or self.in_head or bool(self.pipeline)
        sending = sending or (self.cycle is not None and self.cycle.more_body)
        self.deaf = self.hung_up = True
        self.pipeline.clear()
        if self.active is not None:
            self.active.disconnected = self.active.response_complete = True
            self.active.message_event.set()
        if not sending:
            self.transport.close()
        elif not self.transport.is_closing():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(LINGER_S, self.transport.close)

    def shutdown(self) -> None:
        """The server stops: no further request."""
        self.stopping = True
        self.pipeline.clear()
        if self.active is None or self.hung_up:
            self.transport.close()
        else:
            self.active.keep_alive = False


class _Uvicorn(uvicorn.Server):
    """uvicorn's server, with a start and a stop of our own."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exit = asyncio.Event()

    def ask_to_stop(self) -> None:
        """From any thread, or a signal handler."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._exit.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.ask_to_stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again afterwards: the exit status is the caller's."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        try:
            self._on_ready()
        except BaseException:
            for server in self.servers:
                server.close()
            await asyncio.sleep(0)
            raise

    async def main_loop(self) -> None:
        """uvicorn's looks ten times a second; there is no header of its own to keep up to date."""
        await self._exit.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """End open requests, then cut them; uvicorn's would wait longer and log what it cancels."""
        connections, tasks = self.server_state.connections, self.server_state.tasks
        try:
            self._on_stop()
        finally:
            for server in self.servers:
                server.close()
            for connection in list(connections):
                connection.shutdown()
            deadline = time.monotonic() + GRACE_S
            while (connections or tasks) and not self.force_exit and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for _ in range(2):  # once more for what hangs in its own cleaning up
                others = asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}
                for task in others:
                    task.cancel()
                if others:
                    await asyncio.wait(others, timeout=CANCEL_S)
            for connection in list(connections):
                connection.transport.abort()
            await asyncio.sleep(0.01)  # for the transports to close


class Server:
    """Serves `app` on `host:port`, once: by `run()`, or in a thread by `start()` and `stop()` or `with`.

    The port is taken by the constructor, which raises MockllmError where it cannot be. `on_ready` gets the base URL
    once connections are accepted; `on_stop` is called in the server's loop before anything is closed. Open requests
    then get GRACE_S before they are cancelled.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        on_ready: Callable[[str], None] | None = None,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        self._app = app
        self._socket = bind(host, port)
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self.base_url = f"http://{f'[{shown}]' if ':' in shown else shown}:{self._socket.getsockname()[1]}"
        self._on_ready = on_ready or (lambda _: None)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run_in_thread, name="mockllm-server", daemon=True)
        config = uvicorn.Config(
            self._guarded,
            http=_Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._uvicorn = _Uvicorn(config, self._tell_ready, on_stop or (lambda: None))

    def run(self) -> None:
        """Serve until SIGINT, SIGTERM or `stop()`; in the main thread. A second SIGINT cuts open requests at once."""
        factory = self._uvicorn.config.get_loop_factory() or asyncio.new_event_loop
        loop = factory()
        try:
            loop.run_until_complete(self._uvicorn.serve(sockets=[self._socket]))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            # asyncio.run would also wait for the default executor, where a name look-up may hang for long
            loop.close()
            self._socket.close()

    def start(self) -> None:
        """Serve in a thread of its own; returns once connections are accepted. Raises what the start raised."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop, from any thread but the server's own; waits for the thread of `start`. Later calls do nothing."""
        self._uvicorn.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join()
        elif not self._uvicorn.started:
            self._socket.close()

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    def _tell_ready(self) -> None:
        self._on_ready(self.base_url)
        self._ready.set()

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """uvicorn would log the cancelling at the stop as an error, and answer it with a 500."""
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._uvicorn.should_exit:
                raise
            scope["extensions"][RAW].abort()
