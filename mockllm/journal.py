"""What clients did: one entry a request, kept in a bounded ring, written to a file on request, and waited for.

An entry is there from the moment its request is; it ends when the answer does. It knows nothing of sockets and routes.
"""

import asyncio
import json
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from mockllm.clock import now
from mockllm.core.exchange import Request, header
from mockllm.core.loglines import Came, UnderWay, under_way
from mockllm.core.matching import path_of
from mockllm.core.redact import redact_headers, redact_target
from mockllm.core.tape import body_fields, text_or_base64

SIZE = 1000
"""Entries that are kept in memory."""
MAX_BODY = 64 * 1024
"""A larger request body is not kept, only counted (bytes)."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request and what became of it. Durations are µs; `to_json` gives them in ms.

    `match`: exact, repeat (all its recordings were played, the last one again), exhausted, closest, miss, recorded,
    forwarded, preflight, or refused (a bad fault spec, an unreadable recording); None while that is not decided.
    `stream_status`: complete, client_gone, reset_by_client, server_cut; None while the answer goes on, and where it is
    mockllm's own. `bytes_sent` grows as the answer is written; `body_bytes` is the size of the request's body, None
    where that was not even counted. `event_ends`: where in the answer each event ends, where that is known (bytes).
    """

    number: int
    session: str
    at: datetime
    request: Request
    body_bytes: int | None
    match: str | None = None
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
    event_ends: Sequence[int] = ()
    began: int = field(default_factory=now)
    first: int | None = None
    first_event: int | None = None

    @property
    def came(self) -> Came:
        """What the client got until now."""
        events = bisect_right(self.event_ends, self.bytes_sent) if self.event_ends else self.events_sent
        return Came(self.status, self.bytes_sent, self.first, events, self.first_event)

    @property
    def ended(self) -> bool:
        """Is the answer over?"""
        return self.duration is not None

    @property
    def miss(self) -> bool:
        """Did no recording answer?"""
        return self.match in ("miss", "exhausted")

    def wrote(self, data: bytes) -> None:
        """A part of the answer was written."""
        self.bytes_sent += len(data)
        if self.first is None:
            self.first = now() - self.began
        if self.first_event is None and self.event_ends and self.bytes_sent >= self.event_ends[0]:
            self.first_event = now() - self.began

    def to_json(self) -> dict[str, Any]:
        """The entry as /_mockllm/journal shows it, without secrets."""
        return {
            "number": self.number,
            "session": self.session,
            "at": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request": _shown(self.request, self.body_bytes),
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
        path = path_of(entry.request.target).decode(errors="replace")
        return (
            entry.number > self.after
            and self.session in (None, entry.session)
            and self.path in (None, path)
            and self.miss in (None, entry.miss)
            and self.ended in (None, entry.ended)
        )


class Journal:
    """The entries, the latest last. `keep` is told each line of JSON when its entry ends, for a file of all; `report`
    the same in short, for a log (`finished`).
    """

    def __init__(
        self,
        keep: Callable[[str], None] | None = None,
        report: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._entries: deque[Entry] = deque(maxlen=SIZE)
        self._ended: deque[Entry] = deque(maxlen=SIZE)  # in the order in which they did
        self._begun = self._ends = 0
        self._keep, self._report = keep, report
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, session: str, request: Request) -> Entry:
        """A request is there."""
        self._begun += 1
        size = None if request.body is None else len(request.body)
        if size is not None and size > MAX_BODY:
            request = replace(request, body=None)
        entry = Entry(self._begun, session, datetime.now(UTC), request, size)
        self._entries.append(entry)
        self._tell()
        return entry

    def end(self, entry: Entry, duration: int) -> None:
        """Its answer is over, `duration` µs after the request was there."""
        entry.duration = duration
        self._ended.append(entry)
        self._ends += 1
        if self._keep is not None:
            self._keep(json.dumps(entry.to_json(), ensure_ascii=False))
        if self._report is not None:
            self._report(finished(entry))
        self._tell()

    def under_way(self) -> list[UnderWay]:
        """A line for each request that is being answered, the oldest first."""
        going = (entry for entry in self._entries if not entry.ended and entry.stream_status is None)
        return [
            under_way(entry.request.method, redact_target(entry.request.target), entry.came, now() - entry.began)
            for entry in going
        ]

    def entries(self, which: Filter) -> list[Entry]:
        """Those that a filter takes, in order."""
        return [entry for entry in self._entries if which.takes(entry)]

    def delete(self, which: Filter) -> int:
        """Forget those that a filter takes; how many they were.

        One whose answer goes on is forgotten too: when it ends, only followers and the file are told of it.
        """
        kept = [entry for entry in self._entries if not which.takes(entry)]
        gone = len(self._entries) - len(kept)
        self._entries.clear()
        self._entries.extend(kept)
        return gone

    async def wait(self, which: Filter, count: int, timeout_s: float) -> list[Entry]:
        """Those that a filter takes, as soon as they are `count`; fewer where they do not come in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while len(found := self.entries(which)) < count:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or not await self._changed(left):
                return self.entries(which)
        return found

    def follow(self, which: Filter) -> AsyncIterator[Entry]:
        """Entries that a filter takes, as they end from this call on, for ever.

        None is left out, but for one who is more than SIZE of them behind.
        """
        return self._follow(which, self._ends)

    async def _follow(self, which: Filter, seen: int) -> AsyncIterator[Entry]:
        while True:
            new, seen = self._ends - seen, self._ends
            for entry in list(self._ended)[-new:] if new else ():
                if which.takes(entry):
                    yield entry
            if seen == self._ends:
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


def finished(entry: Entry) -> dict[str, Any]:
    """An entry that ended, for programs. These keys stay, null is what there is not; times count from the request.

    `method`, `target`, `status`, `events`, `bytes` (on the wire), `first_byte_ms`, `first_event_ms`, `duration_ms`,
    `end` (`stream_status`), `session`, `match`, `recording`, `faults` (specs that applied), `late_median_ms`,
    `late_max_ms`, `error` (why nothing was played).
    """
    return entry.came.as_object(entry.request.method, redact_target(entry.request.target)) | {
        "duration_ms": _ms(entry.duration),
        "end": entry.stream_status,
        "session": entry.session,
        "match": entry.match,
        "recording": entry.recording,
        "faults": [fault["fault"] for fault in entry.faults if fault["effect"]],
        "late_median_ms": _ms(entry.late_median),
        "late_max_ms": _ms(entry.late_max),
        "error": entry.message,
    }


def _shown(request: Request, size: int | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"method": request.method, "target": text_or_base64(redact_target(request.target))}
    shown["headers"] = [[name.decode(), text_or_base64(value)] for name, value in redact_headers(request.headers)]
    last = header(request.headers, b"last-event-id")
    if last is not None:
        shown["last_event_id"] = text_or_base64(last)
    if request.body is None:
        return shown | {"body_bytes": size}
    return shown | body_fields(request.body)


def _ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
