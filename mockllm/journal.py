"""What clients did: one entry a request, kept in a bounded ring, written to a file on request, and waited for.

An entry is there from the moment its request is; it ends when the answer does. It knows nothing of sockets and routes.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mockllm.core.exchange import Request, header
from mockllm.core.redact import redact_headers, redact_target
from mockllm.core.tape import body_fields, text_or_base64

SIZE = 1000
"""Entries that are kept in memory."""
MAX_BODY = 64 * 1024
"""A larger request body is only counted in an entry (bytes)."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request and what became of it. Durations are µs; `to_json` gives them in ms.

    `match`: exact, repeat (all its recordings were played, the last one again), exhausted, closest, miss, recorded,
    forwarded, preflight, or refused (a bad fault spec, an unreadable recording). `stream_status`: complete,
    client_gone, reset_by_client, server_cut; None while the answer goes on, and where none was played.
    """

    number: int
    session: str
    at: datetime
    request: Request
    match: str = "miss"
    recording: str | None = None
    faults: list[dict[str, Any]] = field(default_factory=list)
    message: str | None = None
    status: int | None = None
    bytes_sent: int = 0
    events_sent: int = 0
    stream_status: str | None = None
    left_after: int | None = None
    attempt: int = 1
    since_last: int | None = None
    late_max: int | None = None
    late_median: int | None = None
    duration: int | None = None

    @property
    def ended(self) -> bool:
        """Is the answer over?"""
        return self.duration is not None

    @property
    def miss(self) -> bool:
        """Did no recording answer?"""
        return self.match in ("miss", "exhausted")

    def to_json(self) -> dict[str, Any]:
        """The entry as /_mockllm/journal shows it, without secrets."""
        return {
            "number": self.number,
            "session": self.session,
            "at": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request": _shown(self.request),
            "match": self.match,
            "miss": self.miss,
            "recording": self.recording,
            "faults": self.faults,
            "message": self.message,
            "status": self.status,
            "ended": self.ended,
            "stream_status": self.stream_status,
            "bytes_sent": self.bytes_sent,
            "events_sent": self.events_sent,
            "left_after_ms": _ms(self.left_after),
            "attempt": self.attempt,
            "since_last_ms": _ms(self.since_last),
            "late_max_ms": _ms(self.late_max),
            "late_median_ms": _ms(self.late_median),
            "duration_ms": _ms(self.duration),
        }


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries are asked for; None: all of them. `path` is the request's, without its query."""

    session: str | None = None
    path: str | None = None
    miss: bool | None = None
    ended: bool | None = None
    after: int = 0

    def takes(self, entry: Entry) -> bool:
        """Is it one of them?"""
        path = entry.request.target.partition(b"?")[0].decode(errors="replace")
        return (
            entry.number > self.after
            and self.session in (None, entry.session)
            and self.path in (None, path)
            and self.miss in (None, entry.miss)
            and self.ended in (None, entry.ended)
        )


class Journal:
    """The entries, the latest last. `keep` is told each line of JSON when its entry ends, for a file of all."""

    def __init__(self, keep: Callable[[str], None] | None = None) -> None:
        self._entries: deque[Entry] = deque(maxlen=SIZE)
        self._keep = keep
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, session: str, request: Request) -> Entry:
        """A request is there."""
        self._count += 1
        entry = Entry(self._count, session, datetime.now(UTC), request)
        self._entries.append(entry)
        self._tell()
        return entry

    def end(self, entry: Entry, duration: int) -> None:
        """Its answer is over, `duration` µs after the request was there."""
        entry.duration = duration
        if self._keep is not None:
            self._keep(json.dumps(entry.to_json(), ensure_ascii=False))
        self._tell()

    def entries(self, which: Filter) -> list[Entry]:
        """Those that a filter takes, in order."""
        return [entry for entry in self._entries if which.takes(entry)]

    def delete(self, which: Filter) -> int:
        """Forget those that a filter takes; how many they were."""
        gone = self.entries(which)
        kept = [entry for entry in self._entries if entry not in set(gone)]
        self._entries.clear()
        self._entries.extend(kept)
        return len(gone)

    async def wait(self, which: Filter, count: int, timeout_s: float) -> list[Entry]:
        """Those that a filter takes, as soon as they are `count`; fewer where they do not come in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while len(found := self.entries(which)) < count:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or not await self._changed(left):
                return self.entries(which)
        return found

    async def follow(self, which: Filter) -> AsyncIterator[Entry]:
        """Entries that a filter takes as they end, for ever."""
        seen = {entry.number for entry in self.entries(which) if entry.ended}
        while True:
            for entry in self.entries(which):
                if entry.ended and entry.number not in seen:
                    seen.add(entry.number)
                    yield entry
            seen &= {entry.number for entry in self._entries}
            await self._changed(None)

    async def _changed(self, timeout_s: float | None) -> bool:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            done, _ = await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            self._waiting.discard(waiter)
        return bool(done)

    def _tell(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


def _shown(request: Request) -> dict[str, Any]:
    shown: dict[str, Any] = {"method": request.method, "target": text_or_base64(redact_target(request.target))}
    shown["headers"] = [[name.decode(), text_or_base64(value)] for name, value in redact_headers(request.headers)]
    last = header(request.headers, b"last-event-id")
    if last is not None:
        shown["last_event_id"] = text_or_base64(last)
    if request.body is None or len(request.body) > MAX_BODY:
        return shown | {"body_bytes": "too many" if request.body is None else len(request.body)}
    return shown | body_fields(request.body)


def _ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
