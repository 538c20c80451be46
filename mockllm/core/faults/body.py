"""A response taken apart into head, pieces of body and what follows, and put together again with other pieces.

Whatever a fault does to the body, this keeps the framing true: chunk sizes and Content-Length follow the data, pieces
that stay as they were keep their own spelling, and what was promised but missing at the end stays missing. It knows no
event and no fault.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.spread import with_length
from mockllm.core.http1 import Framing, Scan, scan
from mockllm.core.response import Response, Segment, Then


@dataclass(frozen=True, slots=True)
class Piece:
    """Body bytes to be framed anew, and when they are sent (µs)."""

    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Parts:
    """`head`: all up to the body; `pieces`: the segments that hold body; `tail`: what comes after the last of them (a
    last chunk, trailers, surplus).

    `shared`: a chunk, or its framing, came in several reads, so that no chunk can stay as it is where others change.
    `unfinished`: the end of the last chunk that holds body never came.
    """

    response: Response
    found: Scan
    head: tuple[Segment, ...]
    pieces: tuple[Segment, ...]
    tail: tuple[Segment, ...]
    shared: bool = False
    unfinished: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    @property
    def head_at(self) -> int:
        """When the head was whole (µs)."""
        return self.head[-1].at


def take_apart(response: Response) -> Parts:
    """Raises Meaningless where there is no whole head or no body can be."""
    found = scan(response)
    if found.head is None:
        raise Meaningless("there is no whole head")
    if found.framing is Framing.NONE:
        raise Meaningless("an answer of this status or method has no body")
    head, rest = found.segments[: found.head_segments], found.segments[found.head_segments :]
    holding = [index for index, segment in enumerate(rest) if segment.data]
    pieces, tail = [rest[index] for index in holding], list(rest[holding[-1] + 1 :] if holding else rest)
    if found.framing is not Framing.CHUNKED or not pieces:
        return Parts(response, found, head, tuple(pieces), tuple(tail))
    scattered = holding[-1] + 1 > len(holding)
    shared = scattered or not all(map(_is_chunk, pieces[:-1])) or not _begins_chunk(pieces[-1])
    pieces, tail = with_chunk_end(pieces, tail)
    return Parts(response, found, head, tuple(pieces), tuple(tail), shared, not pieces[-1].after.endswith(b"\n"))


def put_together(parts: Parts, pieces: Iterable[Segment | Piece]) -> Response:
    """The response with these pieces of body, in order; Segments are the originals, kept as they are, or moved in time.

    A piece that comes before the one in front of it is moved back to that one's time, and so is what follows the body.
    """
    made = framed(parts, pieces)
    if len(made) == len(parts.pieces) and all(map(_same, made, parts.pieces)):
        return parts.response
    return assembled(parts, made)


def assembled(parts: Parts, body: Sequence[Segment]) -> Response:
    """The response with this body, which has its framing already, and a Content-Length that fits where it has one."""
    head, total = parts.head, sum(len(segment.data) for segment in body)
    if parts.found.framing is Framing.LENGTH and total != len(parts.body):
        head = with_length(head, total + parts.found.missing)
    segments = _in_order((*head, *body, *parts.tail))
    response, end_at = parts.response, max(parts.response.end_at, segments[-1].at)
    then_at = response.then_at if response.then is Then.OPEN else max(response.then_at, end_at)
    return replace(response, segments=segments, end_at=end_at, then_at=then_at)


def framed_chunk(piece: Segment | Piece) -> Segment:
    """A piece as a chunk of its own."""
    return Segment(piece.at, piece.data, b"%x\r\n" % len(piece.data), b"\r\n")


def framed(parts: Parts, pieces: Iterable[Segment | Piece]) -> list[Segment]:
    """The pieces with their framing; the last one stays unfinished where the recorded one was."""
    if parts.found.framing is not Framing.CHUNKED:
        return [p if isinstance(p, Segment) else Segment(p.at, p.data) for p in pieces if p.data]
    sizes: dict[int, bytes] = {}  # a body cut into single bytes has a million equal ones
    made: list[Segment] = []
    last: Segment | Piece | None = None
    for piece in pieces:
        if isinstance(piece, Segment) and not parts.shared and _is_chunk(piece):
            made.append(piece)
        elif size := len(piece.data):
            line = sizes.get(size) or sizes.setdefault(size, b"%x\r\n" % size)
            made.append(Segment(piece.at, piece.data, line, b"\r\n"))
        else:
            continue
        last = piece
    if last is not None and parts.unfinished:
        made[-1] = _unfinished(parts, last)
    return made


def _unfinished(parts: Parts, last: Segment | Piece) -> Segment:
    """The last piece, which promises as much more as the recorded one did."""
    recorded = parts.pieces[-1]
    if (
        isinstance(last, Segment)
        and not parts.shared
        and (last.before, last.after) == (recorded.before, recorded.after)
    ):
        return last
    return Segment(last.at, last.data, b"%x\r\n" % (len(last.data) + parts.found.missing))


def _begins_chunk(piece: Segment) -> bool:
    return piece.before.endswith(b"\n") and piece.before.count(b"\n") == 1


def _is_chunk(piece: Segment) -> bool:
    """Does it hold a whole chunk, its size line and its end included?"""
    return _begins_chunk(piece) and piece.after.endswith(b"\n")


def with_chunk_end(before: list[Segment], after: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Segments of a chunked body, and those after them, with the end of the last chunk among the first.

    Both stay as they are where the chunk does not end there.
    """
    end = before[-1].after
    rest = list(after)
    while rest and not end.endswith(b"\n"):
        found = rest[0].before[:1]
        if found not in ((b"\r", b"\n") if not end else (b"\n",)):
            break
        end += found
        left = replace(rest[0], before=rest[0].before[1:])
        rest[:1] = [left] if left.wire else []
    return [*before[:-1], replace(before[-1], after=end)], rest


def _same(made: Segment, piece: Segment) -> bool:
    return made.at == piece.at and made.data == piece.data


def _in_order(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    latest = accumulate((segment.at for segment in segments), max)
    return tuple(s if s.at == at else replace(s, at=at) for s, at in zip(segments, latest, strict=True))
