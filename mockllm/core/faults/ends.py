"""Faults of the end: where an answer stops, how the connection ends, and what comes after it."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from mockllm.core.faults.base import Fault, Meaningless, Micros, Position, Unit, key
from mockllm.core.faults.body import Parts, Piece, framed
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.spread import with_length
from mockllm.core.faults.timing import split_at
from mockllm.core.faults.view import View, view
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Segment, Then


@dataclass(frozen=True, slots=True)
class Cut:
    """Ends the answer at exactly that byte, event or time: what comes before is sent first, nothing after.

    fin closes the connection, rst resets it, hang keeps it open in silence; what chunk sizes and lengths promise stays
    unfulfilled. complete re-frames, so that the shorter answer looks whole. A cut at the end of a chunk sends the
    chunk's CRLF, never a last chunk. At a time before the head nothing is sent. A compressed body is compressed anew,
    flushed after the event, for a cut at an event; at bytes and times it is cut as it is.
    """

    name: ClassVar[str] = "cut"
    family: ClassVar[str] = "Ends"
    example: ClassVar[str] = "cut:at=2ev,end=rst"

    at: Position = key("where")
    end: Literal["complete", "fin", "rst", "hang"] = key("how", "fin")

    def __call__(self, response: Response) -> Response:
        if self.at.unit is Unit.EVENTS:
            return on_text(response, self._in_view)
        if self.at.unit is not Unit.TIME:
            return self._in_view(view(response))
        at = int(self.at.value)
        if at > response.end_at and response.end is not End.HANG:
            return response
        if self.end == "complete":
            return _completed(view(response), at)
        return _ended(response, [segment for segment in response.segments if segment.at < at], End(self.end), at)

    def _in_view(self, seen: View) -> Response:
        offset, parts = seen.offset(self.at), seen.parts
        if offset is None or _ends_so(parts, offset, End(self.end)):
            return parts.response
        before, _ = split_at(parts, offset)
        if self.end == "complete":
            return shortened(parts, offset, before[-1].at)
        return _ended(parts.response, before, End(self.end), before[-1].at)


@dataclass(frozen=True, slots=True)
class IdleClose:
    """The server closes a connection that it had kept open, some time after the answer ended.

    A request that the client sends just then gets no answer.
    """

    name: ClassVar[str] = "idle-close"
    family: ClassVar[str] = "Ends"
    example: ClassVar[str] = "idle-close:after=1s"

    after: Micros = key("how long after the end")

    def __call__(self, response: Response) -> Response:
        if not scan(response).done or response.end not in (End.COMPLETE, End.CLIENT):
            raise Meaningless("the answer does not end in a way that keeps the connection open")
        if response.end is End.COMPLETE and response.then is not Then.OPEN:
            raise Meaningless("the server closes the connection anyway")
        then_at = response.end_at + self.after
        return replace(response, end=End.COMPLETE, then=Then.FIN, then_at=then_at)


@dataclass(frozen=True, slots=True)
class Surplus:
    """More bytes after the end of the answer, in the same write as its last ones."""

    name: ClassVar[str] = "surplus"
    family: ClassVar[str] = "Ends"
    example: ClassVar[str] = "surplus:bytes=junk"

    bytes: str = key("the bytes, as text")

    def __post_init__(self) -> None:
        if not self.bytes:
            raise ValueError("bytes= needs at least one")

    def __call__(self, response: Response) -> Response:
        found = scan(response)
        if found.framing is Framing.CLOSE:
            raise Meaningless("nothing can follow a body that goes on until the connection closes")
        if not found.done:
            raise Meaningless("the answer never ends")
        last = response.segments[-1]
        return replace(response, segments=(*response.segments, Segment(last.at, before=self.bytes.encode())))


def _ended(response: Response, segments: list[Segment], end: End, at: int) -> Response:
    return replace(response, segments=tuple(segments), end=end, end_at=at, then=Then.OPEN, then_at=0)


def _ends_so(parts: Parts, offset: int, end: End) -> bool:
    """Is a cut there no other than the end that the answer has?"""
    response = parts.response
    whole = response.end is End.COMPLETE and parts.found.framing is not Framing.CHUNKED
    closes = whole and response.then.value == end.value
    return offset == len(parts.body) and (closes or response.end is end)


def _completed(seen: View, at: int) -> Response:
    if at <= seen.parts.head_at:
        raise Meaningless("an answer without a head cannot look whole")
    return shortened(seen.parts, seen.came_by(at), at)


def shortened(parts: Parts, offset: int, at: int) -> Response:
    """A whole answer with the first `offset` bytes of the body, which ends at that time (µs)."""
    pieces: list[Segment | Piece] = []
    left = offset
    for piece in parts.pieces:
        if left >= len(piece.data):
            pieces.append(piece)
        elif left:
            pieces.append(Piece(piece.at, piece.data[:left]))
        left = max(0, left - len(piece.data))
    response, framing = parts.response, parts.found.framing
    body = framed(replace(parts, unfinished=False), pieces)
    head = with_length(parts.head, offset) if framing is Framing.LENGTH else parts.head
    tail = [Segment(at, before=b"0\r\n\r\n")] if framing is Framing.CHUNKED else []
    then = response.then if response.end is End.COMPLETE else Then.OPEN
    then_at = 0 if then is Then.OPEN else at + response.then_at - response.end_at
    if framing is Framing.CLOSE:
        then, then_at = Then.FIN, at
    return replace(response, segments=(*head, *body, *tail), end=End.COMPLETE, end_at=at, then=then, then_at=then_at)


ENDS: tuple[type[Fault], ...] = (Cut, IdleClose, Surplus)
