"""A recorder or a replay inside the test's own process, on a free port, in a thread: fast, and open to look into.

What a user sees of the command itself is tested through `tests.peers.command`.
"""

import asyncio
import gc
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from mockllm import files
from mockllm.bending import Bending
from mockllm.clock import HeapClock, now
from mockllm.core.exchange import Exchange
from mockllm.core.forward import Mount
from mockllm.core.rules import DEFAULT, Rules
from mockllm.guard import Guard
from mockllm.journal import Journal
from mockllm.library import Library
from mockllm.misses import Ask
from mockllm.record import Options as RecordOptions
from mockllm.record import Recorder
from mockllm.relay import Limits
from mockllm.replay import Options as ReplayOptions
from mockllm.replay import Replay
from mockllm.serve import RAW, ASGIApp, RawConnection, Receive, Scope, Send, Server
from mockllm.target import parse_target
from tests.peers.client import ask as ask_peer
from tests.peers.framing import answer_end


@dataclass(slots=True)
class Lines:
    """What was said or logged, line by line, from another thread."""

    lines: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, line: str) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def wait(self, count: int = 1, timeout_s: float = 15) -> list[str]:
        """All lines, once there are so many. AssertionError where they do not come."""
        with self.changed:
            came = self.changed.wait_for(lambda: len(self.lines) >= count, timeout_s)
            assert came, f"{len(self.lines)} lines instead of {count}: {self.lines}"
            return list(self.lines)


@dataclass(slots=True)
class Serving:
    """Where clients connect to, and what it logs: `log` a line an exchange, `said` what a person must know."""

    host: str
    port: int
    log: Lines
    said: Lines
    server: Server

    @property
    def url(self) -> str:
        return self.server.base_url


@dataclass(slots=True)
class Recording(Serving):
    """A recorder and its folder."""

    recorder: Recorder
    folder: Path

    def tapes(self, count: int = 1) -> list[Exchange]:
        """The exchanges on disk in the order of their files, once so many have ended."""
        self.log.wait(count)
        return load(self.folder)


@dataclass(slots=True)
class Replaying(Serving):
    """A replay. `writes` are those of all connections, in order; `alive` tells how many connections are in memory."""

    app: Replay
    library: Library
    writes: list[bytes]
    protocols: "weakref.WeakSet[Any]"

    def alive(self) -> int:
        gc.collect()
        return len(self.protocols)

    def control(self, method: str, path: str, body: str = "", *headers: str, host: str = "127.0.0.1") -> "Controlled":
        """Ask the control plane: `control("GET", "journal?miss=true")`."""
        lines = [f"{method} /_mockllm/{path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body.encode())}"]
        wire = "\r\n".join([*lines, *headers, "", body]).encode()
        answer = ask_peer(self.host, self.port, wire, answer_end).wire
        head, _, document = answer.partition(b"\r\n\r\n")
        return Controlled(int(head.split(b" ")[1]), json.loads(document), head.decode().lower().split("\r\n")[1:])

    def entries(self, count: int = 1, query: str = "") -> list[dict[str, Any]]:
        """The journal's entries that have ended, once there are so many. AssertionError where they do not come."""
        found = self.control("GET", f"journal/wait?ended=true&count={count}{query}")
        assert found.status == 200, found.document
        assert len(found.document) == count, found.document
        return found.document  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Controlled:
    """What the control plane answered; the lines of the head in lower case."""

    status: int
    document: Any
    head: list[str]

    @property
    def message(self) -> str:
        return str(self.document["error"]["message"])


@contextmanager
def recording(
    upstream: str,
    folder: Path,
    *,
    mounts: Sequence[tuple[bytes, str]] = (),
    idle_us: int | None = None,
    drain_us: int = 5_000_000,
    connect_timeout_s: float = 10,
    accept_encoding: bytes | None = None,
    loop: str = "auto",
    tapes: files.Folder | None = None,
) -> Iterator[Recording]:
    """A recorder before `upstream`, and before others behind `mounts`. No proxy of the environment is used."""
    log, said = Lines(), Lines()
    targets = [parse_target(url) for _, url in mounts] + [parse_target(upstream)]
    routes = [Mount(prefix, index) for index, (prefix, _) in enumerate(mounts)]
    routes.append(Mount(b"", len(mounts)))
    options = RecordOptions(connect_timeout_s, accept_encoding, Limits(idle_us, drain_us))
    where = tapes or files.Folder(folder)
    recorder = Recorder(targets, routes, where, options, now=now, say=said.add, log=log.add)
    with without_proxies(), _serving(recorder, loop, recorder.stop) as (server, host, port):
        yield Recording(host, port, log, said, server, recorder, folder)


@contextmanager
def replaying(
    *paths: Path,
    loop: str = "auto",
    faults: str | Sequence[str] = (),
    upstream: str | None = None,
    keep: Path | None = None,
    rules: Rules = DEFAULT,
    journal: Journal | None = None,
    guard: Guard | None = None,
    **options: Any,
) -> Iterator[Replaying]:
    """A replay of files and folders; `options` are those of `replay.Options`.

    `upstream` is asked on a miss, and taped into the folder `keep` if there is one.
    """
    log, said = Lines(), Lines()
    library = Library(paths, said.add, rules, empty_ok=upstream is not None)
    ask = recorder = None
    if upstream is not None:
        into = files.Nowhere() if keep is None else files.Folder(keep)
        targets, mounts = [parse_target(upstream)], [Mount(b"", 0)]
        recorder = Recorder(targets, mounts, into, RecordOptions(), now=now, say=said.add, log=log.add)
        ask = Ask(recorder, keeps=keep is not None)
    spec = Bending.parse([faults] if isinstance(faults, str) else faults)
    app = Replay(
        library,
        ReplayOptions(faults=spec, **options),
        lambda: HeapClock(asyncio.get_running_loop()),
        log.add,
        say=said.add,
        journal=journal,
        guard=guard,
        ask=ask,
    )
    writes: list[bytes] = []
    protocols: weakref.WeakSet[Any] = weakref.WeakSet()
    on_stop = None if recorder is None else recorder.stop
    with without_proxies(), _serving(_watched(app, writes, protocols), loop, on_stop) as (server, host, port):
        yield Replaying(host, port, log, said, server, app, library, writes, protocols)


@contextmanager
def without_proxies(**environment: str) -> Iterator[None]:
    """No proxy in the environment but those given."""
    names = [name for name in os.environ if name.lower().endswith("_proxy")]
    with mock.patch.dict(os.environ):
        for name in names:
            del os.environ[name]
        os.environ.update(environment)
        yield


def wait_until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    """What another thread does in a moment, with nothing to wait for but a look. AssertionError where it does not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def load(folder: Path) -> list[Exchange]:
    """Every exchange of a folder's tapes, in order."""
    return [exchange for path in sorted(folder.glob("*.jsonl")) for exchange in files.read_all(path)]


@contextmanager
def _serving(app: ASGIApp, loop: str, on_stop: Any = None) -> Iterator[tuple[Server, str, int]]:
    server = Server(app, "127.0.0.1", 0, on_stop=on_stop)
    server._uvicorn.config.loop = loop
    place = urlsplit(server.base_url)
    assert place.hostname
    assert place.port
    with server:
        yield server, place.hostname, place.port


class _Watched:
    """A raw connection whose writes are noted."""

    _connection: RawConnection
    _writes: list[bytes]

    def __init__(self, connection: RawConnection, writes: list[bytes]) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_writes", writes)

    def write(self, data: bytes) -> None:
        self._writes.append(data)
        self._connection.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, value)


def _watched(app: ASGIApp, writes: list[bytes], protocols: "weakref.WeakSet[Any]") -> ASGIApp:
    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["extensions"][RAW]
        protocols.add(connection._protocol)
        scope["extensions"][RAW] = _Watched(connection, writes)
        await app(scope, receive, send)

    return watched
