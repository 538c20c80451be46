"""Where events begin and end in a body: server-sent events (WHATWG HTML §9.2) and newline-delimited JSON.

Incremental and exact in bytes: nothing is decoded to find a border, and the spans of the events cover the body
without gap or overlap. It must not know HTTP, compression, or what an event means.
"""

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n?|\n")
_NDJSON_TYPES = frozenset(
    (b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/json-lines")
)


class Kind(Enum):
    """What a span of the body is."""

    EVENT = "event"
    """A client gets it: an SSE block with at least one data field (`data:` alone is one), a line of NDJSON."""
    BLOCK = "block"
    """Finished, and dispatches nothing: comments, `retry:`, `id:`, `event:` without data, a blank line."""
    TAIL = "tail"
    """Unfinished when the stream ended."""


@dataclass(frozen=True, slots=True)
class Event:
    """One span of a body and what its lines say.

    `start` and `stop` are byte offsets in the body, the blank line or line end included. `name` is the event type,
    b"" for the default. `data` is the value of the data fields joined by LF, or an NDJSON line without its end.
    `id` and `retry` are the last valid ones of this block (an id with a NUL, a retry with anything but ASCII digits
    are ignored). `comments` are the bytes after the colon, a space included. In a TAIL they are what the lines say
    so far, the last one unfinished.
    """

    kind: Kind
    start: int
    stop: int
    name: bytes = b""
    data: bytes = b""
    id: bytes | None = None
    retry: bytes | None = None
    comments: tuple[bytes, ...] = ()

    def json(self) -> Any:
        """The data as JSON, None where they are none.

        As tolerant as clients are: bad UTF-8 becomes U+FFFD, lone surrogates and NaN pass.
        """
        try:
            return _json(self.data)
        except (ValueError, RecursionError):
            return None


def _json(data: bytes) -> Any:
    """Raises ValueError or RecursionError."""
    try:
        # Several times faster, but strict.
        return msgspec.json.decode(data)
    except ValueError:
        return json.loads(data.decode("utf-8", "replace"))


@dataclass(slots=True)
class _Block:
    """The fields of an SSE block while its lines come in."""

    start: int
    name: bytes = b""
    data: list[bytes] = field(default_factory=list)
    id: bytes | None = None
    retry: bytes | None = None
    comments: list[bytes] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """Interprets one line, without its end and not blank (WHATWG HTML §9.2.6)."""
        name, _, after = line.partition(b":")
        value = after.removeprefix(b" ")
        if name == b"data":
            self.data.append(value)
        elif not name:
            self.comments.append(after)
        elif name == b"event":
            self.name = value
        elif name == b"id" and b"\0" not in value:
            self.id = value
        elif name == b"retry" and value.isdigit():
            self.retry = value

    def event(self, kind: Kind, stop: int) -> Event:
        return Event(
            kind, self.start, stop, self.name, b"\n".join(self.data), self.id, self.retry, tuple(self.comments)
        )


class SseReader:
    """Finds server-sent events in a body that is fed in pieces of any size (WHATWG HTML §9.2).

    An event is reported in the feed that brings the byte which ends its blank line. Where that byte is a CR and the
    LF after it comes in a later feed, that LF becomes a BLOCK of its own: reported spans never change, and still
    cover the body. A body fed whole has the LF in the event's span. A byte order mark at the start belongs to the
    first span and to no field.

    `limit` bounds the bytes of one span: the first longer one makes the reader give up for good (`gave_up`), and feed
    and close return nothing more.
    """

    __slots__ = ("_at", "_block", "_cr", "_first", "_limit", "_line", "gave_up")

    def __init__(self, limit: int | None = None) -> None:
        self.gave_up = False
        self._limit = limit
        self._at = 0
        self._block = _Block(0)
        self._line = bytearray()
        self._cr = False
        self._first = True

    def feed(self, data: bytes) -> list[Event]:
        """The events and blocks that these bytes complete, in order."""
        found: list[Event] = []
        if self.gave_up or not data:
            return found
        base, begin = self._at, 0
        if self._cr and data[0] == 0x0A:
            begin = 1
            if self._block.start == base:
                found.append(self._close_block(base + 1))
        for match in _LINE_END.finditer(data, begin):
            line = data[begin : match.start()]
            begin = match.end()
            # An LF after a CR does not count here, or the limit would depend on how the body is cut.
            if self._too_long(base + match.start() + 1):
                return found
            if line := self._whole_line(line):
                self._block.take(line)
            else:
                found.append(self._close_block(base + begin))
        self._line += data[begin:]
        self._at = base + len(data)
        self._cr = data[-1] == 0x0D
        self._too_long(self._at)
        return found

    def close(self) -> list[Event]:
        """The stream has ended: its unfinished rest as a TAIL, if there is one."""
        if self.gave_up or self._block.start == self._at:
            return []
        if line := self._whole_line(b""):
            self._block.take(line)
        tail = self._block.event(Kind.TAIL, self._at)
        self._block = _Block(self._at)
        return [tail]

    def _whole_line(self, rest: bytes) -> bytes:
        """The line that ends with `rest`; without a byte order mark where it is the stream's first."""
        line = bytes(self._line) + rest if self._line else rest
        self._line.clear()
        if self._first:
            self._first = False
            return line.removeprefix(_BOM)
        return line

    def _close_block(self, stop: int) -> Event:
        event = self._block.event(Kind.EVENT if self._block.data else Kind.BLOCK, stop)
        self._block = _Block(stop)
        return event

    def _too_long(self, stop: int) -> bool:
        if self._limit is not None and stop - self._block.start > self._limit:
            self.gave_up = True
            self._block = _Block(stop)
            self._line = bytearray()
        return self.gave_up


class NdjsonReader:
    """Finds the lines of newline-delimited JSON in a body that is fed in pieces of any size.

    Only LF ends a line; a CR before it is not data. A line of nothing but JSON white space is a BLOCK. A last line
    without LF is an EVENT where it is a whole JSON value (clients take it), else a TAIL. `limit` and `gave_up` are
    as in SseReader.
    """

    __slots__ = ("_at", "_limit", "_line", "_start", "gave_up")

    def __init__(self, limit: int | None = None) -> None:
        self.gave_up = False
        self._limit = limit
        self._at = 0
        self._start = 0
        self._line = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """The lines that these bytes complete, in order."""
        found: list[Event] = []
        if self.gave_up:
            return found
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._line += piece
            self._at += len(piece) + 1
            if self._too_long():
                return found
            line = bytes(self._line).removesuffix(b"\r")
            self._line.clear()
            found.append(Event(Kind.EVENT if line.strip(b" \t\r") else Kind.BLOCK, self._start, self._at, data=line))
            self._start = self._at
        self._line += rest
        self._at += len(rest)
        self._too_long()
        return found

    def close(self) -> list[Event]:
        """The stream has ended: the line that had no LF, if there is one."""
        if self.gave_up or self._start == self._at:
            return []
        line = bytes(self._line)
        last = Event(Kind.EVENT if _is_json(line) else Kind.TAIL, self._start, self._at, data=line)
        self._line.clear()
        self._start = self._at
        return [last]

    def _too_long(self) -> bool:
        if self._limit is not None and self._at - self._start > self._limit:
            self.gave_up = True
            self._line = bytearray()
        return self.gave_up


def _is_json(line: bytes) -> bool:
    try:
        _json(line)
    except (ValueError, RecursionError):
        return False
    return True


def reader_for(content_type: bytes | None, limit: int | None = None) -> SseReader | NdjsonReader | None:
    """A new reader for a body of that Content-Type, or None where it is no stream of events.

    Case and parameters do not count.
    """
    media = (content_type or b"").partition(b";")[0].strip().lower()
    if media == b"text/event-stream":
        return SseReader(limit)
    return NdjsonReader(limit) if media in _NDJSON_TYPES else None


def events(body: bytes, content_type: bytes | None) -> list[Event]:
    """All the spans of a whole decoded body, in order; none where it is no stream of events."""
    reader = reader_for(content_type)
    return [] if reader is None else reader.feed(body) + reader.close()
