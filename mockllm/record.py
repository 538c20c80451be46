"""A reverse proxy that tapes: one upstream connection for each client connection, and an own tape for each exchange.

A plain ASGI callable on raw connections. It must not know how tapes are played.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mockllm.answers import answer_error
from mockllm.control import control_plane, is_control
from mockllm.core import loglines
from mockllm.core.errors import UpstreamError
from mockllm.core.exchange import Request
from mockllm.core.forward import Mount, is_chunked, request_head, route, wants_websocket
from mockllm.core.loglines import Came, UnderWay
from mockllm.core.redaction import Redaction
from mockllm.core.response import End
from mockllm.core.shown import escaped
from mockllm.files import Folder, Nowhere
from mockllm.guard import Guard
from mockllm.link import Link
from mockllm.relay import Limits, Relay, Verdict
from mockllm.serve import RAW, RawConnection, Receive, Scope, Send
from mockllm.taping import Taping
from mockllm.target import Target
from mockllm.upstream import Upstream, connect

_LINK = "link"


@dataclass(frozen=True, slots=True)
class Options:
    """`connect_timeout_s` bounds name lookup, connection and TLS together. `accept_encoding` replaces the client's
    own. `redaction` says what is masked in all that is written.
    """

    connect_timeout_s: float | None = 10.0
    accept_encoding: bytes | None = None
    limits: Limits = field(default_factory=Limits)
    redaction: Redaction = field(default_factory=Redaction)


class Recorder:
    """The ASGI callable. `targets` are the upstreams, `mounts` say which paths go to which.

    `now` gives µs; `say` is told what a person must know (a tape that cannot be written), `log` one line an exchange,
    `report` the same as an object (`finished`).
    Afterwards: `ends` counts the exchanges by how they ended, `failed` says whether a tape is incomplete.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        mounts: Sequence[Mount],
        folder: Folder | Nowhere,
        options: Options,
        *,
        now: Callable[[], int],
        say: Callable[[str], None],
        log: Callable[[str], None],
        report: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.ends: Counter[End] = Counter()
        self.failed = False
        self._targets, self._mounts, self._folder, self._options = targets, mounts, folder, options
        self._now, self._say, self._log, self._report = now, say, log, report
        self._open: dict[Relay, None] = {}
        self._stopped = False
        self._control = control_plane(lambda: {"recorded": sum(self.ends.values()), "open": len(self._open)}, Guard())
        if folder.unusable is not None:
            self._fail(folder.unusable)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: RawConnection = scope["extensions"][RAW]
        if is_control(connection.target):
            await self._control(scope, receive, send)
            return
        refusal = _refusal(connection)
        found = route(connection.target, self._mounts)
        if refusal is not None:
            await answer_error(send, 501, "mockllm_unsupported", refusal)
        elif found is None:
            prefixes = ", ".join(sorted(mount.prefix.decode() for mount in self._mounts))
            await answer_error(send, 404, "mockllm_no_upstream", f"no upstream is mounted here, only at {prefixes}")
        else:
            mount, target = found
            await self._exchange(connection, self._targets[mount.upstream], target, send)

    def under_way(self) -> list[UnderWay]:
        """A line for each exchange that has not ended, the oldest first."""
        return [
            loglines.under_way(relay.taping.method, relay.taping.target, relay.came, relay.elapsed)
            for relay in self._open
        ]

    def stop(self) -> None:
        """End every open exchange on its tape, and begin no other: the recorder is about to go."""
        self._stopped = True
        for relay in list(self._open):
            relay.stop(by_recorder=True)

    async def _exchange(self, connection: RawConnection, target: Target, path: bytes, send: Send) -> None:
        options, request = self._options, Request(connection.method, connection.target, connection.headers)
        try:
            link = await self._link(connection, target)
        except UpstreamError as error:
            asked = options.redaction.request(request).target
            shown = f"{connection.method} {asked.decode(errors='backslashreplace')}"
            self._log(escaped(f"{shown} {error.status}, nothing on tape: {error}"))
            if self._report is not None:
                self._report(finished(connection.method, asked, Came(error.status, 0, None), error=str(error)))
            await answer_error(send, error.status, error.kind, str(error), code=error.reason)
            return
        if link is None:
            return
        if self._stopped:
            connection.abort()
            return
        upstream = link.upstream
        taping = Taping(self._folder, request, str(target), self._now(), self._fail, options.redaction)
        relay = Relay(connection, upstream, taping, options.limits, self._now, self._settled)
        self._open[relay] = None
        head = request_head(
            connection.method,
            target.target_of(path, absolute=upstream.absolute_form),
            connection.http_version,
            connection.headers,
            host=target.authority,
            accept_encoding=options.accept_encoding,
            proxy_headers=upstream.proxy_headers,
        )
        upload = asyncio.create_task(_upload(connection, upstream, relay, head))
        upload.add_done_callback(lambda _: relay.uploaded(complete=False))
        link.take(relay, upload)
        try:
            verdict = await relay.over
            if verdict.end is End.COMPLETE:
                await asyncio.wait([upload])
        finally:
            upload.cancel()
        await link.close(connection, verdict)

    async def _link(self, connection: RawConnection, target: Target) -> Link | None:
        """The client connection's upstream connection, made if need be; None where the client left meanwhile.

        Raises UpstreamError.
        """
        link: Link | None = connection.state.get(_LINK)
        if link is not None and link.target == target and not link.upstream.closed:
            link.relay.settle_open()
            return link
        if link is not None:
            del connection.state[_LINK]
            connection.left.remove_done_callback(link.on_left)
            link.leave()
        timeout = self._options.connect_timeout_s
        connecting = asyncio.create_task(connect(target, connect_timeout_s=timeout, clock=self._now))
        either: set[asyncio.Future[Any]] = {connecting, connection.left}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            return None
        link = connection.state[_LINK] = Link(target, connecting.result())
        connection.left.add_done_callback(link.on_left)
        return link

    def _settled(self, relay: Relay) -> None:
        self._open.pop(relay, None)
        verdict, taping = relay.verdict, relay.taping
        assert verdict is not None
        self.ends[verdict.end] += 1
        end = describe(verdict)
        total, unseen = taping.tape.at, taping.tape.unseen
        rest = taping.path if unseen is None else f"{taping.path} (not searched for credentials: {unseen})"
        self._log(loglines.exchange(taping.method, taping.target, relay.came, total, end, rest))
        if self._report is not None:
            more = {"duration_ms": total / 1000, "end": verdict.end.value, "tape": taping.path or None}
            self._report(finished(taping.method, taping.target, relay.came, **more))

    def _fail(self, message: str) -> None:
        if not self.failed:
            self._say(f"{message}; clients are served on, but the recording is incomplete")
        self.failed = True


def finished(method: str, target: bytes, came: Came, **more: Any) -> dict[str, Any]:
    """An exchange that is over, for programs. These keys stay, null is what there is not; times count from the request.

    `method`, `target`, `status`, `events`, `bytes` (on the wire), `first_byte_ms`, `first_event_ms`, `duration_ms`,
    `end` (complete, fin, rst, hang, client), `tape` (its file), `error` (why nothing was recorded).
    """
    return came.as_object(method, target) | dict.fromkeys(("duration_ms", "end", "tape", "error")) | more


def describe(verdict: Verdict) -> str:
    """How an answer ended, for a person."""
    if verdict.by_recorder:
        return "client (the recorder was stopped)"
    return {
        End.COMPLETE: "complete",
        End.FIN: "fin (WARNING: the server closed before the answer was whole)",
        End.RST: "rst (WARNING: the connection was reset)",
        End.HANG: "hang (WARNING: the server was silent for too long)",
        End.CLIENT: "client (it left before the answer was whole)",
    }[verdict.end]


def _refusal(connection: RawConnection) -> str | None:
    if connection.method == "CONNECT":
        return "mockllm is a reverse proxy: set the client's base URL to it, not its proxy"
    if wants_websocket(connection.headers):
        return "mockllm does not record WebSocket"
    return None


async def _upload(connection: RawConnection, upstream: Upstream, relay: Relay, head: bytes) -> None:
    """Send the request as it comes; a body in chunks is put into chunks again."""
    chunked = is_chunked(connection.headers)
    upstream.write(head)
    async for part in connection.chunks():
        relay.taping.request_part(part)
        upstream.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        await upstream.drain()
    if connection.complete and chunked:
        upstream.write(b"0\r\n\r\n")
        await upstream.drain()
    relay.uploaded(complete=connection.complete)
