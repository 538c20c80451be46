"""Where one HTTP/1 answer begins and ends, and which of its bytes are body: sans-IO, online, never changing a byte.

Reads go in, the same bytes come out cut into segments. A parse error never raises: from there on the bytes are taken
as they come, until the connection closes. It knows nothing of sockets, of time beyond the numbers it is given, and of
what a body means.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from mockllm.core.exchange import Headers
from mockllm.core.response import Response, Segment

MAX_HEAD = 256 * 1024
"""Bytes of a head, and of a chunk's size line or trailer, that are looked at before the answer counts as garbage."""

_STATUS_LINE = re.compile(rb"HTTP/([0-9]\.[0-9]) ([1-9][0-9]{2})(?: ([^\r\n]*))?")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})[ \t]*(?:;.*)?")
_MAX_DIGITS = 20


class Framing(Enum):
    """How the end of a body is found (RFC 9112 §6.3)."""

    NONE = auto()
    """No body: HEAD, 204, 304."""
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


@dataclass(frozen=True, slots=True)
class Head:
    """A status line and its headers. `reason` is None where the line ended right after the status."""

    version: str
    status: int
    reason: bytes | None
    headers: Headers

    def render(self) -> bytes:
        """The head in its usual spelling: CRLF, one space after the colon."""
        reason = b"" if self.reason is None else b" " + self.reason
        lines = [b"HTTP/%s %d%s\r\n" % (self.version.encode(), self.status, reason)]
        lines += [b"%s: %s\r\n" % pair for pair in self.headers]
        return b"".join(lines) + b"\r\n"

    def values(self, name: bytes) -> list[bytes]:
        """The comma-separated values of a header, over all its lines, lower-cased and stripped."""
        found = [value for key, value in self.headers if key.strip().lower() == name]
        return [part.strip().lower() for part in b",".join(found).split(b",") if part.strip()]


def parse_head(raw: bytes) -> Head | None:
    """What a head says, read as leniently as clients do; None where its first line is no status line.

    Lines that are no header are passed over, so `parse_head(raw).render() == raw` holds only for the usual spelling.
    """
    lines = [line.removesuffix(b"\r") for line in raw.split(b"\n")]
    status = _STATUS_LINE.fullmatch(lines[0])
    if status is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t"):
            if headers and line.strip():  # a folded line (RFC 9112 §5.2)
                headers[-1] = (headers[-1][0], headers[-1][1] + b" " + line.strip())
        elif colon and name:
            headers.append((name, value.removeprefix(b" ")))
    return Head(status[1].decode(), int(status[2]), status[3], tuple(headers))


def framing_of(head: Head, method: str) -> tuple[Framing, int]:
    """How the body after this head ends, and its length where framing is LENGTH (RFC 9112 §6.3)."""
    if head.status == 101:  # nobody asked for it (mockllm strips Upgrade): what follows is not HTTP
        return Framing.CLOSE, 0
    if method == "HEAD" or head.status in (204, 304):
        return Framing.NONE, 0
    codings = head.values(b"transfer-encoding")
    if codings:
        return (Framing.CHUNKED if codings[-1] == b"chunked" else Framing.CLOSE), 0
    lengths = set(head.values(b"content-length"))
    if len(lengths) == 1 and (length := lengths.pop()).isdigit() and len(length) <= _MAX_DIGITS:
        return Framing.LENGTH, int(length)
    return Framing.CLOSE, 0


class Tracker:
    """Follows one answer through its reads.

    `head` and `framing` are None until the final head (no 1xx) was seen; `head_segment` is the segment that ended it.
    `done`: the message ended as its framing says. `bad`: it broke its own framing. `body_length` counts body bytes so
    far, without framing; `left` those that are to come in this chunk, or in an answer with a length.
    """

    def __init__(self, method: str) -> None:
        self.head: Head | None = None
        self.head_segment: Segment | None = None
        self.framing: Framing | None = None
        self.done = False
        self.bad = False
        self.body_length = 0
        self.left = 0
        self._method = method
        self._state: Callable[[bytes, int], int] = self._in_head
        self._pending = bytearray()  # an unfinished line or head from earlier reads
        self._out: list[Segment] = []
        self._at = 0
        self._mark = 0  # where, in this read, the bytes begin that are in no segment yet

    def feed(self, at: int, data: bytes) -> list[Segment]:
        """Cut one read into segments. Their `wire`, joined, is `data`; bytes after the message's end are included."""
        self._out, self._at, self._mark = [], at, 0
        position = 0
        while position < len(data):
            position = self._state(data, position)
        self._flush(data, position)
        return self._out

    def eof(self) -> bool:
        """The server closed: was the answer whole?"""
        return self.done or self.framing is Framing.CLOSE

    def fork(self) -> "Tracker":
        """Another one that is where this one is, and goes on by itself."""
        other = Tracker(self._method)
        other.__dict__.update(self.__dict__)
        other._pending = bytearray(self._pending)
        other._state = getattr(other, self._state.__name__)
        return other

    def stands_like(self, other: "Tracker") -> bool:
        """Will both cut all that follows in the same way?"""
        return (self._state.__name__, self._pending, self.framing, self.left, self.body_length, self.bad) == (
            other._state.__name__,
            other._pending,
            other.framing,
            other.left,
            other.body_length,
            other.bad,
        )

    def _flush(self, data: bytes, stop: int) -> None:
        if stop > self._mark:
            self._out.append(Segment(self._at, before=data[self._mark : stop]))
            self._mark = stop

    def _line(self, data: bytes, position: int) -> tuple[bytes | None, int]:
        """The line that ends in this read, with what earlier reads held of it; None while it is unfinished."""
        stop = data.find(b"\n", position) + 1
        self._pending += data[position : stop or len(data)]
        if len(self._pending) > MAX_HEAD:
            return None, self._give_up(data)
        if not stop:
            return None, len(data)
        line, self._pending = bytes(self._pending), bytearray()
        return line, stop

    def _give_up(self, data: bytes) -> int:
        self.bad, self._pending, self._state = True, bytearray(), self._as_it_comes
        return len(data)

    def _in_head(self, data: bytes, position: int) -> int:
        start = len(self._pending)
        self._pending += data[position:]
        stop = _head_end(self._pending, max(0, start - 3))
        if not stop:
            garbage = not b"HTTP/".startswith(bytes(self._pending[:5]))
            return self._give_up(data) if garbage or len(self._pending) > MAX_HEAD else len(data)
        raw, self._pending = bytes(self._pending[:stop]), bytearray()
        head = parse_head(raw)
        if head is None:
            return self._give_up(data)
        position += stop - start
        self._flush(data, position)
        if head.status == 101 or head.status >= 200:
            self.head_segment = self._out[-1]
            self._begin_body(head)
        return position

    def _begin_body(self, head: Head) -> None:
        self.head = head
        self.framing, self.left = framing_of(head, self._method)
        if self.framing is Framing.CHUNKED:
            self._state = self._in_size
        elif self.framing is Framing.CLOSE:
            self._state = self._in_open_body
        elif self.left:
            self._state = self._in_counted_body
        else:
            self._finish()

    def _finish(self) -> None:
        self.done, self._state = True, self._as_it_comes

    def _in_size(self, data: bytes, position: int) -> int:
        line, position = self._line(data, position)
        if line is None:
            return position
        size = _SIZE_LINE.fullmatch(line.rstrip(b"\r\n"))
        if size is None:
            return self._give_up(data)
        self.left = int(size[1], 16)
        self._state = self._in_counted_body if self.left else self._in_trailer
        return position

    def _in_counted_body(self, data: bytes, position: int) -> int:
        stop = min(len(data), position + self.left)
        self.left -= stop - position
        self._body(data, position, stop)
        if not self.left:
            if self.framing is Framing.CHUNKED:
                self._state = self._in_chunk_end
            else:
                self._finish()
        return stop

    def _in_open_body(self, data: bytes, position: int) -> int:
        self._body(data, position, len(data))
        return len(data)

    def _body(self, data: bytes, start: int, stop: int) -> None:
        before = data[self._mark : start]
        if not _is_text(before):  # the tape has no place for it beside the data: a segment of its own
            self._flush(data, start)
            before = b""
        self._out.append(Segment(self._at, data[start:stop], before))
        self.body_length += stop - start
        self._mark = stop

    def _in_chunk_end(self, data: bytes, position: int) -> int:
        line, stop = self._line(data, position)
        if line is None:
            # all that may stand here is CRLF: do not wait for a line's end that never comes
            return stop if self._pending == b"\r" else self._give_up(data)
        if line not in (b"\r\n", b"\n"):
            return self._give_up(data)
        if self._out:  # the chunk's data ended in this read, right before
            last = self._out[-1]
            self._out[-1] = Segment(last.at, last.data, last.before, line)
            self._mark = stop
        self._state = self._in_size
        return stop

    def _in_trailer(self, data: bytes, position: int) -> int:
        line, position = self._line(data, position)
        if line in (b"\r\n", b"\n"):
            self._flush(data, position)
            self._finish()
        return position

    def _as_it_comes(self, data: bytes, _position: int) -> int:
        return len(data)


def _head_end(raw: bytearray, search_from: int) -> int:
    """Where the head ends, after its blank line; 0 while it has not come. Bare LF counts, as clients let it."""
    ends = [found + len(blank) for blank in (b"\n\r\n", b"\n\n") if (found := raw.find(blank, search_from)) >= 0]
    return min(ends, default=0)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Scan:
    """What is found in the bytes of a whole response. `body` is without framing, in the wire's encoding.

    `done`: length or terminator was fulfilled (never so for a close-delimited body: there the close decides).
    `whole`: the answer is complete if the server closes now. `missing`: body bytes that are promised and did not come.
    `segments` are the tracker's own cuts; the first `head_segments` of them hold all up to the end of the head.
    """

    head: Head | None
    framing: Framing | None
    done: bool
    whole: bool
    bad: bool
    missing: int
    head_segments: int
    segments: tuple[Segment, ...]

    @property
    def body(self) -> bytes:
        return b"".join(segment.data for segment in self.segments)


def scan(response: Response) -> Scan:
    """Read a whole response as a client would."""
    tracker = Tracker(response.method)
    segments: list[Segment] = []
    head_segments = 0
    for at, data in response.reads():
        headless = tracker.head is None
        cut = tracker.feed(at, data)
        if headless and tracker.head_segment is not None:
            head_segments = len(segments) + cut.index(tracker.head_segment) + 1
        segments += cut
    return Scan(
        tracker.head,
        tracker.framing,
        tracker.done,
        tracker.eof(),
        tracker.bad,
        0 if tracker.bad else tracker.left,
        head_segments,
        tuple(segments),
    )
