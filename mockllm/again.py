"""Asks a server again what is on tapes, as a recorder would, to see what has changed since.

Requests go one after another, each on a connection of its own. It must not know how the outcome is shown.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from mockllm import files
from mockllm.clock import now
from mockllm.core.drift import drift
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.exchange import Exchange, Headers, Request, header
from mockllm.core.forward import Mount, is_chunked, request_head, route, wants_websocket
from mockllm.core.redact import MASKED
from mockllm.files import Folder, Recording
from mockllm.record import Options
from mockllm.relay import Relay
from mockllm.serve import RawConnection
from mockllm.sockets import Left
from mockllm.taping import Taping
from mockllm.target import Target
from mockllm.upstream import connect


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one recording. `unasked`: why its request could not be sent. `drift`: what is different now."""

    recording: Recording
    request: Request
    unasked: str | None = None
    drift: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """How tapes are asked again: which server is behind which path, and where the new tapes go.

    `given` headers replace the recorded ones of their name; since credentials are among them, a tape has none of them.
    """

    targets: Sequence[Target]
    mounts: Sequence[Mount]
    folder: Folder
    options: Options = field(default_factory=Options)
    given: Headers = ()

    def ask(
        self, recordings: Sequence[Recording], progress: Callable[[int, Request], None] = lambda *_: None
    ) -> Iterator[Outcome]:
        """The outcome of each recording, as it comes; `progress` is told before each its number (from 1) and request.

        Raises CassetteError, UpstreamError where the server cannot be reached, MockllmError where a tape cannot be
        written.
        """
        with asyncio.Runner() as runner:
            for number, recording in enumerate(recordings, 1):
                old = files.read(recording)
                progress(number, old.request)
                asked = resent(old.request, self.given)
                found = route(asked.target, self.mounts)
                unasked = _unsendable(asked) if found is not None else "no upstream is mounted at its path"
                if found is None or unasked is not None:
                    yield Outcome(recording, old.request, unasked)
                else:
                    mount, path = found
                    new = runner.run(self._exchange(asked, self.targets[mount.upstream], path))
                    yield Outcome(recording, old.request, None, drift(old, new))

    async def _exchange(self, asked: Request, target: Target, path: bytes) -> Exchange:
        """Send a request and tape its answer."""
        options, failures = self.options, list[str]()
        upstream = await connect(target, connect_timeout_s=options.connect_timeout_s, clock=now)
        names = options.redaction.names.and_also(name.decode("latin-1") for name, _ in self.given)
        redaction = replace(options.redaction, names=names)
        taping = Taping(self.folder, replace(asked, body=b""), str(target), now(), failures.append, redaction)
        settled = asyncio.Event()
        client = cast(RawConnection, _Client())  # all of it that a relay needs
        relay = Relay(client, upstream, taping, options.limits, now, lambda _: settled.set())
        upstream.on_read, upstream.on_end = relay.on_read, relay.on_end
        line = target.target_of(path, absolute=upstream.absolute_form)
        try:
            upstream.write(_head(asked, line, target, options.accept_encoding, upstream.proxy_headers))
            taping.request_part(asked.body or b"")
            upstream.write(_framed(asked))
            await upstream.drain()
            relay.uploaded(complete=True)
            await settled.wait()
        finally:
            relay.stop(by_recorder=True)
            upstream.abort()
        if failures:
            raise MockllmError(failures[0])
        (exchange,) = files.read_all(Path(taping.path))
        return exchange


def recordings_of(paths: Iterable[Path], say: Callable[[str], None]) -> list[Recording]:
    """The recordings in files and folders, in order. Raises UsageError, CassetteError."""
    return [recording for recording, _ in files.scan(files.find(paths), say)]


def parse_header(text: str) -> tuple[bytes, bytes]:
    """`Name: value`. Raises UsageError, which does not repeat it: it may be a credential."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not re.fullmatch(r"[!-~]+", name) or re.search(r"[\r\n\0]", value):
        raise UsageError("--header takes a name, a colon and a value: --header 'Authorization: Bearer KEY'")
    return name.encode(), value.encode()


def resent(request: Request, given: Headers) -> Request:
    """The request as it can be sent again, with its length and a Host.

    Credentials are masked on a tape, so those headers and query parameters are left out; the given headers take the
    place of those of their name, or follow.
    """
    size = b"%d" % len(request.body or b"")  # JSON is kept as a value, and not spelled as it was
    headers: list[tuple[bytes, bytes]] = []
    left = list(given)
    for name, value in request.headers:
        own = [pair for pair in left if pair[0].lower() == name.lower()]
        if own:
            headers += own
            left = [pair for pair in left if pair not in own]
        elif MASKED not in value and all(name.lower() != other.lower() for other, _ in given):
            headers.append((name, size if name.lower() == b"content-length" else value))
    headers += left
    if request.body and not is_chunked(tuple(headers)) and header(tuple(headers), b"content-length") is None:
        headers.append((b"Content-Length", size))
    if header(tuple(headers), b"host") is None:
        headers.insert(0, (b"Host", b""))
    path, mark, query = request.target.partition(b"?")
    pairs = [pair for pair in query.split(b"&") if MASKED not in pair]
    target = path + mark + b"&".join(pairs) if any(pairs) or not query else path
    return Request(request.method, target, tuple(headers), request.body, cut=request.cut)


def _unsendable(request: Request) -> str | None:
    if request.body is None:
        return "its body is not on the tape"
    if request.cut:
        return "its body was never finished"
    if request.method == "CONNECT" or wants_websocket(request.headers):
        return "it asks for more than an answer"
    return None


def _head(request: Request, line: bytes, target: Target, coding: bytes | None, proxy_headers: bytes) -> bytes:
    return request_head(
        request.method,
        line,
        "1.1",
        request.headers,
        host=target.authority,
        accept_encoding=coding,
        proxy_headers=proxy_headers,
    )


def _framed(request: Request) -> bytes:
    """The body as it is sent."""
    body = request.body or b""
    if not is_chunked(request.headers):
        return body
    return (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"


class _Client:
    """A client that takes everything at once and never leaves."""

    congested = False

    def __init__(self) -> None:
        self.left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """The answer begins."""

    def write(self, _data: bytes) -> None:
        """It is on the tape already."""
