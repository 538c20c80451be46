"""One raw connection to the real server: every read is handed on as it came, with its time, and then how it ended.

Name lookup, TLS and proxies are settled underneath; of HTTP only a proxy's answer to CONNECT is looked at. It must not
know what a request, a response or a tape is.
"""

import asyncio
import functools
import itertools
import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from http.client import responses
from typing import Any, cast

from mockllm.core.errors import UpstreamError, UsageError
from mockllm.core.response import End
from mockllm.target import Proxy, Target, ip_of, place, proxy_for
from mockllm.tls import READ_BYTES, Tls, open_layers, seal_layers

MAX_PROXY_HEAD_BYTES = 64 * 1024
NEXT_ADDRESS_AFTER_S = 0.25
"""How long one address of a name has before the next is tried beside it (RFC 8305 §5)."""
_WRONG_NAME = "write the host as the certificate names it"
_WRONG_TIME = "check this computer's clock, or renew it"
CERTIFICATE_ADVICE = {9: _WRONG_TIME, 10: _WRONG_TIME, 62: _WRONG_NAME, 64: _WRONG_NAME}
"""By OpenSSL's verify code (x509_vfy.h): not yet valid, expired, another host, another address."""

_Found = tuple[int, int, int, str, Any]
"""What getaddrinfo says of one address."""


class Upstream(asyncio.Protocol):
    """A connection to the real server, as `connect` returns it.

    The owner sets `on_read(at_us, data)`, one call for each read, and `on_end(at_us, how)`, called once with FIN or RST
    unless `abort` came first; the connection is closed by then. Reading begins with the first `write` or `resume`; what
    came before is kept for then, so nothing is lost while the owner takes over. `absolute_form`: a plain http proxy is
    in between, the request line needs the whole URL, and `proxy_headers` (header lines, or empty; a secret) go with it.
    A FIN ends both directions. TLS may end with close_notify or without: both are FIN; an alert or a broken record is
    RST.
    """

    on_read: Callable[[int, bytes], None]
    on_end: Callable[[int, End], None]
    _transport: asyncio.Transport

    def __init__(
        self, clock: Callable[[], int], sock: socket.socket, layers: Sequence[Tls], proxy_headers: bytes | None
    ):
        self._clock = clock
        self._socket = sock
        self._layers = tuple(layers)
        self.absolute_form = proxy_headers is not None
        self.proxy_headers = proxy_headers or b""
        self.closed = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._begun = False
        # A TLS session may hold plain text that came with the end of its handshake: an empty read brings it out.
        self._early: list[Callable[[], None]] | None = [functools.partial(self._take, clock(), b"")]

    def write(self, data: bytes) -> None:
        """Sends bytes; after the end they go nowhere. The first call starts the reading."""
        self._begin()
        self._send(data)

    async def drain(self) -> None:
        """Returns when there is room to write again, or nobody left to write to."""
        await self._writable.wait()

    def pause(self) -> None:
        """Stops reading: nothing more is taken from the kernel, which then slows the server down.

        A reset that meets a paused connection with something to write still delivers what the kernel holds.
        """
        self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on."""
        self._begin()
        self._transport.resume_reading()

    def abort(self) -> None:
        """Closes at once, as a client does that is gone; no callback comes after it."""
        self.closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def data_received(self, data: bytes) -> None:
        at = self._clock()
        if self._early is None:
            self._take(at, data)
        else:
            self._early.append(functools.partial(self._take, at, data))

    def eof_received(self) -> None:
        self._end(self._clock(), End.FIN)

    def connection_lost(self, exc: Exception | None) -> None:
        failed = self._read_rest()
        # EPIPE: the server had closed before it reset what we sent since.
        how = End.FIN if isinstance(exc, BrokenPipeError) and not failed else End.RST
        self._end(self._clock(), how)
        self._writable.set()  # whoever is in `drain` need not wait on

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._deliver_early)

    def _deliver_early(self) -> None:
        early, self._early = self._early, None
        for event in early or ():
            event()

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(seal_layers(self._layers, data))

    def _take(self, at: int, data: bytes) -> None:
        if self.closed:
            return
        plain = open_layers(self._layers, data)
        if plain:
            self.on_read(at, plain)
        if self._layers:
            self._send(b"")  # what the sessions have to answer by themselves
        for end in (layer.end for layer in self._layers if layer.end):
            self._end(at, end)

    def _end(self, at: int, how: End) -> None:
        if self._early is not None:
            self._early.append(functools.partial(self._end, at, how))
        elif not self.closed:
            self.abort()
            self.on_end(at, how)

    def _read_rest(self) -> OSError | None:
        """Takes what a failed write kept the transport from reading; returns the error that ended it, or None.

        asyncio and uvloop give up a connection at the first write that fails, with the server's last words unread.
        """
        while not self.closed:
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                return error
            if not data:
                return None
            self.data_received(data)
        return None


async def connect(target: Target, *, connect_timeout_s: float | None, clock: Callable[[], int]) -> Upstream:
    """A connection to the target, TLS and proxy settled; `connect_timeout_s` covers all of it. `clock` gives µs.

    Raises UpstreamError, whose text names host and port and holds no secret.
    """
    try:
        proxy = proxy_for(target)
    except UsageError as error:
        raise UpstreamError("proxy", str(error)) from None
    way = _Way(target, proxy)
    try:
        async with asyncio.timeout(connect_timeout_s):
            await way.open()
            return await way.hand_over(clock)
    except TimeoutError:
        way.close()
        mend = "check that it is up and reachable, or allow it more time"
        raise UpstreamError("timeout", f"gave up after {connect_timeout_s:g} s while {way.doing}; {mend}") from None
    except BaseException:
        way.close()
        raise


class _Way:
    """The way to a target, step by step; `doing` says at which one it is."""

    def __init__(self, target: Target, proxy: Proxy | None) -> None:
        self._target = target
        self._proxy = proxy
        self._place = place(target.host, target.port)
        self._proxy_place = f"proxy {place(proxy.host, proxy.port)} (for {self._place})" if proxy else ""
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._layers: list[Tls] = []
        self.doing = ""

    async def open(self) -> None:
        """Raises UpstreamError."""
        proxy, target = self._proxy, self._target
        self._socket = await self._reach()
        ahead = b""
        if proxy and proxy.scheme == "https":
            await self._start_tls(proxy.host, self._proxy_place, "proxy", b"")
        if target.scheme == "https":
            if proxy:
                ahead = await self._tunnel(proxy)
            await self._start_tls(target.host, self._place, "tls", ahead)

    async def hand_over(self, clock: Callable[[], int]) -> Upstream:
        """Makes a protocol of what was opened, not reading yet."""
        assert self._socket is not None
        sock, proxy = self._socket, self._proxy
        headers = proxy.authorization if proxy and self._target.scheme == "http" else None
        transport, upstream = await self._loop.create_connection(
            lambda: Upstream(clock, sock, self._layers, headers), sock=sock
        )
        transport.pause_reading()
        return upstream

    def close(self) -> None:
        if self._socket:
            self._socket.close()

    async def _reach(self) -> socket.socket:
        hop = self._proxy or self._target
        where = self._proxy_place or self._place
        self.doing = f"looking up the host of {where}"
        try:
            found = await self._look_up(hop.host, hop.port)
            self.doing = f"connecting to {where}"
            return await _first_to_answer(found)
        except OSError as error:
            reason, text = _unreached(error, where)
            raise UpstreamError("proxy" if self._proxy else reason, text) from error

    async def _look_up(self, host: str, port: int) -> Sequence[_Found]:
        if ip_of(host):  # no need for a thread
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    async def _tunnel(self, proxy: Proxy) -> bytes:
        """Asks the proxy for a tunnel (RFC 9110 §9.3.6); the bytes that came after its answer's head."""
        self.doing = f"waiting for the answer of {self._proxy_place} to CONNECT"
        place = self._place.encode()
        received, end = b"", None
        try:
            await self._send(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (place, place, proxy.authorization))
            while not end:
                data = await self._receive()
                received += data
                end = re.search(rb"\r?\n\r?\n", received)
                if not data or (not end and len(received) > MAX_PROXY_HEAD_BYTES):
                    break
        except OSError as error:
            raise UpstreamError("proxy", f"{self._proxy_place} broke the connection; check the proxy") from error
        status = re.match(rb"HTTP/1\.[01] (\d{3})\b", received)
        if not end or not status:
            raise UpstreamError("proxy", f"{self._proxy_place} did not answer CONNECT; check that it is an HTTP proxy")
        code = int(status[1])
        if code // 100 != 2:
            mend = (
                "give it http://user:password@host:port" if code == 407 else "check that it allows this host and port"
            )
            text = f"{self._proxy_place} answered CONNECT with {code} {responses.get(code, '')}".rstrip()
            raise UpstreamError("proxy", f"{text}; {mend}")
        return received[end.end() :]

    async def _start_tls(self, host: str, where: str, reason: str, ahead: bytes) -> None:
        """One more layer of TLS; `ahead` are bytes of it that were already read."""
        self.doing = f"waiting for the TLS handshake with {where}"
        tls = Tls(host)
        try:
            while not tls.handshake(ahead):
                await self._send(tls.seal(b""))
                ahead = await self._receive()
                if not ahead:
                    raise ConnectionResetError  # here a FIN means the same
            await self._send(tls.seal(b""))
        except OSError as error:
            raise UpstreamError(reason, _tls_failure(error, where)) from error
        self._layers.append(tls)

    async def _send(self, data: bytes) -> None:
        assert self._socket is not None
        await self._loop.sock_sendall(self._socket, seal_layers(self._layers, data))

    async def _receive(self) -> bytes:
        """Some bytes, or none at the end."""
        assert self._socket is not None
        while not any(layer.end for layer in self._layers):
            data = await self._loop.sock_recv(self._socket, READ_BYTES)
            plain = open_layers(self._layers, data)
            if plain or not data:
                return plain
        return b""


async def _first_to_answer(found: Sequence[_Found]) -> socket.socket:
    """The connection to the first address that answers: families in turn, the next as soon as one failed or is slow.

    RFC 8305 §4 and §5. Where none answers raises the OSError that says most.
    """
    first = [one for one in found if one[0] == found[0][0]]
    others = [one for one in found if one[0] != found[0][0]]
    waiting = [one for pair in itertools.zip_longest(first, others) for one in pair if one]
    tries: list[asyncio.Task[socket.socket]] = []
    running: set[asyncio.Task[socket.socket]] = set()
    try:
        while waiting or running:
            if waiting:
                tries.append(asyncio.create_task(_dial(waiting.pop(0))))
                running.add(tries[-1])
            pause_s = NEXT_ADDRESS_AFTER_S if waiting else None
            done, running = await asyncio.wait(running, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.exception():
                    tries.remove(task)
                    return task.result()
        errors = [error for task in tries if (error := task.exception())]
        raise min(errors, key=lambda error: not isinstance(error, ConnectionRefusedError))
    finally:
        for task in tries:
            task.cancel()
            task.add_done_callback(_discard)


async def _dial(found: _Found) -> socket.socket:
    family, kind, proto, _, address = found
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _discard(task: asyncio.Task[socket.socket]) -> None:
    """Closes a connection that was made in vain."""
    if not task.cancelled() and not task.exception():
        task.result().close()


def _unreached(error: OSError, where: str) -> tuple[str, str]:
    """Reason and text for a connection that was not made."""
    match error:
        case socket.gaierror():
            return "dns", f"{where}: name not found ({error.strerror}); check how the host is spelled, and DNS"
        case ConnectionRefusedError():
            return "refused", f"{where} refused the connection; check that the server runs, and its port"
        case TimeoutError():
            return "timeout", f"{where} did not answer; check that it is up and reachable"
    why = os.strerror(error.errno) if error.errno else str(error)
    return "unreachable", f"{where} cannot be reached: {why}; check address and network"


def _tls_failure(error: OSError, where: str) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            mend = CERTIFICATE_ADVICE.get(error.verify_code, "set SSL_CERT_FILE to the certificate of its authority")
            return f"{where}: certificate verify failed: {error.verify_message.rstrip('.')}; {mend}"
        case ssl.SSLError():
            what = (error.reason or "protocol error").lower().replace("_", " ")
        case _:
            what = "the connection was closed"
    return f"{where}: TLS handshake failed: {what}; if it speaks plain HTTP, write http:// instead"
