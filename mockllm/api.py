"""mockllm for Python programs: `mockllm.replay`, `mockllm.record` and `mockllm.load`.

Re-exported from the package, which imports this only when one of them is used.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mockllm import files
from mockllm.core.errors import UsageError
from mockllm.core.prefix import session_name
from mockllm.core.redaction import redaction
from mockllm.entries import Entry, entry_of
from mockllm.environment import environment
from mockllm.hosting import Host, Serving, SharedClock, result
from mockllm.journal import Filter
from mockllm.loading import Cassette, Event, Recorded, load
from mockllm.record import Options as RecordOptions
from mockllm.record import Recorder
from mockllm.relay import Limits
from mockllm.replay import Replay
from mockllm.wishes import AnyPath, Wishes, micros, recorder

__all__ = [
    "Cassette",
    "Entry",
    "Event",
    "RecordServer",
    "Recorded",
    "ReplayServer",
    "load",
    "record",
    "replay",
    "shipped",
]

SHIPPED = "mlx_lm.server"
"""Whose recordings are played where none are named."""


@dataclass(frozen=True)
class ReplayServer:
    """A replay that is being served, or what one session of it sees. May be used from any thread.

    `base_url` is what to give to clients, `openai_base_url` to those of OpenAI's API.
    """

    base_url: str
    _host: Host
    _app: Replay
    _session: str | None = None

    @property
    def openai_base_url(self) -> str:
        """`base_url` with `/v1`."""
        return f"{self.base_url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """MOCKLLM_BASE_URL, OPENAI_BASE_URL, ANTHROPIC_BASE_URL and OLLAMA_HOST, for a program of its own."""
        return environment(self.base_url)

    @property
    def journal(self) -> list[Entry]:
        """The requests so far, and what came of them: the last thousand of all sessions, or of this one."""
        return self._host.call(lambda: self._entries(Filter(session=self._session)))

    @property
    def misses(self) -> list[Entry]:
        """The requests that nothing answered; `entry.unmet` says why."""
        return [entry for entry in self.journal if entry.unmet is not None]

    @property
    def unused(self) -> list[str]:
        """The recordings that no session asked for: `FILE:LINE`."""
        return self._host.call(lambda: list(map(str, self._app.desk.unused())))

    def assert_no_misses(self) -> None:
        """Raises AssertionError that says what was asked and how the nearest recording differs."""
        found = [str(entry) for entry in self.misses]
        if found:
            raise AssertionError("\n".join((f"{len(found)} requests were answered by no recording:", *found)))

    def faults(self, spec: str | None) -> None:
        """Bend the answers of this session (of requests that name none) from now on; None: as it was at the start.

        `"none"` bends nothing. Raises SpecError.
        """
        desk = self._app.desk
        if spec is None:
            self._host.call(lambda: desk.delete_faults(self._session))
        else:
            self._host.call(lambda: desk.put_faults(self._session, spec))

    def reset(self) -> None:
        """Play from the beginning again, and forget the journal: of this session, or of all of them."""
        self._host.call(lambda: self._app.desk.reset(self._session))

    def session(self, name: str) -> "ReplayServer":
        """The same server as a session sees it that has its own place in the recordings, faults and journal.

        Clients name it by its `base_url`, or by the header `mockllm-session`. Raises UsageError for no name.
        """
        return replace(self, base_url=f"{self.base_url}/~session={session_name(name)}", _session=name)

    def wait(
        self,
        count: int = 1,
        *,
        timeout_s: float = 10,
        path: str | None = None,
        miss: bool | None = None,
        ended: bool | None = True,
    ) -> list[Entry]:
        """The entries of that kind, as soon as there are `count`; `ended=None`: whether their answers are over or not.

        Raises TimeoutError.
        """
        which = Filter(self._session, path, miss, ended)
        found = result(self._host.begin(lambda: self._waited(which, count, timeout_s)))
        return self._enough(found, which, count, timeout_s)

    async def wait_async(
        self,
        count: int = 1,
        *,
        timeout_s: float = 10,
        path: str | None = None,
        miss: bool | None = None,
        ended: bool | None = True,
    ) -> list[Entry]:
        """`wait`, for async code."""
        which = Filter(self._session, path, miss, ended)
        begun = self._host.begin(lambda: self._waited(which, count, timeout_s))
        if begun is not None:
            await asyncio.wait([asyncio.wrap_future(begun)])
        return self._enough(result(begun), which, count, timeout_s)

    def _entries(self, which: Filter) -> list[Entry]:
        return [entry_of(entry.to_json()) for entry in self._app.journal.entries(which)]

    async def _waited(self, which: Filter, count: int, timeout_s: float) -> list[Entry]:
        await self._app.journal.wait(which, count, timeout_s)
        return self._entries(which)

    def _enough(self, found: list[Entry] | None, which: Filter, count: int, timeout_s: float) -> list[Entry]:
        entries = self._host.call(lambda: self._entries(which)) if found is None else found
        if len(entries) < count:
            raise TimeoutError(f"{len(entries)} of {count} requests came within {timeout_s} s: {self.journal}")
        return entries

    def __repr__(self) -> str:
        return f"<a replay at {self.base_url}>"


@dataclass(frozen=True)
class RecordServer:
    """A recorder that is being served. `base_url` is what to give to clients, `folder` has the tapes."""

    base_url: str
    folder: Path
    _host: Host
    _app: Recorder

    @property
    def openai_base_url(self) -> str:
        """`base_url` with `/v1`."""
        return f"{self.base_url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """MOCKLLM_BASE_URL, OPENAI_BASE_URL, ANTHROPIC_BASE_URL and OLLAMA_HOST, for a program of its own."""
        return environment(self.base_url)

    @property
    def count(self) -> int:
        """Exchanges that have ended, and so are on disk."""
        return self._host.call(self._app.ends.total)

    @property
    def failed(self) -> bool:
        """Whether a tape could not be written; the log says which."""
        return self._app.failed

    @property
    def cassette(self) -> Cassette:
        """What the folder holds. Raises UsageError where that is nothing."""
        return load(self.folder)

    def __repr__(self) -> str:
        return f"<a recorder at {self.base_url} into {self.folder}>"


def replay(
    *paths: AnyPath,
    faults: str = "",
    speed: float = 1.0,
    max_gap: str | None = None,
    match: str = "method,path,query,body",
    ignore: Sequence[str] = (),
    ignore_query: Sequence[str] = (),
    on_miss: Literal["error", "closest", "record", "forward"] | None = None,
    upstream: str | None = None,
    exhausted: Literal["repeat", "error"] = "repeat",
    on_client: Literal["cut", "hang"] = "cut",
    cors: bool = False,
    journal: AnyPath | None = None,
    redact: Sequence[str] = (),
    redact_json: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 0,
) -> Serving[ReplayServer]:
    """Be the recorded server while a `with` (or `async with`) goes on, in a thread of its own, on a free port.

    The options are those of `mockllm replay`; without `paths` the recordings that come with mockllm are played, the
    closest to what is asked. Requests that nothing answers get a 404 and do not raise at the end: `server.misses` has
    them, `server.assert_no_misses()` raises. Raises UsageError, SpecError and CassetteError at once.

    >>> import httpx, mockllm
    >>> hello = {"model": "default_model", "stream": True, "temperature": 0,
    ...          "messages": [{"role": "user", "content": "Say hello"}]}
    >>> with mockllm.replay(mockllm.shipped() / "hello.jsonl", speed=0, faults="crlf") as server:
    ...     answer = httpx.post(f"{server.openai_base_url}/chat/completions", json=hello)
    ...     (entry,) = server.journal
    >>> answer.text.endswith("data: [DONE]\\r\\n\\r\\n")
    True
    >>> entry.match, entry.status, entry.json["temperature"], entry.faults[0]["effect"]
    ('exact', 200, 0, True)

    Outside of a `with`, and with sessions that do not disturb each other:

    >>> serving = mockllm.replay(mockllm.shipped() / "hello.jsonl", speed=0)
    >>> server = serving.start()
    >>> session = server.session("mine")
    >>> session.faults("status:code=429")
    >>> httpx.post(f"{session.openai_base_url}/chat/completions", json=hello).status_code
    429
    >>> httpx.post(f"{server.openai_base_url}/models").status_code
    404
    >>> [entry.target for entry in server.misses], len(session.journal)
    (['/v1/models'], 1)
    >>> serving.close()
    """
    wishes = Wishes(
        faults=faults,
        speed=speed,
        max_gap=max_gap,
        match=match,
        ignore=ignore,
        ignore_query=ignore_query,
        on_miss=on_miss or ("error" if paths else "closest"),
        upstream=upstream,
        exhausted=exhausted,
        on_client=on_client,
        cors=cors,
        journal=journal,
        redact=redact,
        redact_json=redact_json,
    )
    found = tuple(map(Path, paths)) or (shipped(),)
    recording = wishes.recorder(found)
    app = wishes.replay(wishes.library(found), wishes.ask(recording), SharedClock(), host)
    on_stop = None if recording is None else recording.stop
    return Serving(Host(app, on_stop, host=host, port=port), lambda host: ReplayServer(host.base_url, host, app))


def record(
    upstream: str | None = None,
    *,
    to: AnyPath,
    mounts: Mapping[str, str] | None = None,
    connect_timeout: str = "10s",
    idle_timeout: str | None = None,
    drain: str = "5s",
    accept_encoding: str | None = None,
    redact: Sequence[str] = (),
    redact_json: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 0,
) -> Serving[RecordServer]:
    """Stand before the server at `upstream` while a `with` (or `async with`) goes on, and tape every answer.

    `to` is a folder, made if need be, that gets a file an exchange; `mounts` are further servers by the path that they
    are behind. The other options are those of `mockllm record`. Raises UsageError at once.

    >>> import httpx, mockllm, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with mockllm.replay() as real, mockllm.record(real.base_url, to=folder.name) as server:
    ...     status = httpx.get(f"{server.openai_base_url}/models").status_code
    >>> mockllm.load(folder.name)[0]
    <GET /v1/models: 200, 0 events, complete, from ...000001-get-v1-models.jsonl:1>
    """
    upstreams = dict(mounts or {}) | ({"": upstream} if upstream is not None else {})
    if not upstreams:
        raise UsageError("name the server to record: mockllm.record('http://127.0.0.1:8080', to='tapes')")
    options = RecordOptions(
        connect_timeout_s=micros("connect_timeout", connect_timeout) / 1e6,
        accept_encoding=None if accept_encoding is None else accept_encoding.encode(),
        limits=Limits(None if idle_timeout is None else micros("idle_timeout", idle_timeout), micros("drain", drain)),
        redaction=redaction(redact, redact_json),
    )
    folder = Path(to)
    app = recorder(upstreams, files.Folder(folder), options)
    serving = Host(app, app.stop, host=host, port=port)
    return Serving(serving, lambda host: RecordServer(host.base_url, folder, host, app))


def shipped(server: str = SHIPPED) -> Path:
    """The folder of the cassettes of a server that come with mockllm. Raises UsageError where there are none."""
    return files.shipped_of(server)
