"""Changes bytes of a body by their offsets; everything else stays where and when it was.

It knows no event and no fault.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mockllm.core.faults.body import Parts, Piece, put_together
from mockllm.core.response import Response, Segment


@dataclass(frozen=True, slots=True)
class Edit:
    """The body bytes from `start` to `stop` become `data`.

    Without `at` (µs) the new bytes come with the ones they replace; inserted ones (start == stop) with those before
    them, at the start of the body with the first. With `at` they are sent then, as a piece of their own.
    """

    start: int
    stop: int
    data: bytes
    at: int | None = None


def edit(parts: Parts, edits: Iterable[Edit]) -> Response:
    """The response with all the edits, which may not overlap; several at one place stand in their order."""
    ordered = sorted(edits, key=lambda change: (change.start, change.stop))
    return put_together(parts, _merged(parts.pieces, ordered, parts.head_at))


def _merged(pieces: Sequence[Segment], edits: Sequence[Edit], head_at: int) -> Iterator[Segment | Piece]:
    waiting = list(reversed(edits))
    offset = 0
    skip = 0  # the body is dropped up to here
    for piece in pieces:
        stop = offset + len(piece.data)
        here: list[Edit] = []
        while waiting and _belongs(waiting[-1], stop):
            here.append(waiting.pop())
        if not here and skip <= offset:
            yield piece
        else:
            yield from _changed(piece, offset, here, skip)
            skip = max(skip, here[-1].stop) if here else skip
        offset = stop
    for change in reversed(waiting):
        yield Piece(change.at if change.at is not None else head_at, change.data)


def _belongs(change: Edit, stop: int) -> bool:
    """Does a change begin in the piece that ends at stop, or earlier? An insertion belongs to the piece before it."""
    return change.start < stop or change.start == change.stop == stop


def _changed(piece: Segment, offset: int, edits: Sequence[Edit], skip: int) -> Iterator[Segment | Piece]:
    done = max(offset, skip)
    kept: list[bytes] = []
    for change in edits:
        kept.append(piece.data[done - offset : max(done, change.start) - offset])
        if change.at is None:
            kept.append(change.data)
        else:
            yield _left(piece, kept)
            yield Piece(change.at, change.data)
            kept.clear()
        done = max(done, change.stop)
    kept.append(piece.data[done - offset :])
    yield _left(piece, kept)


def _left(piece: Segment, kept: Sequence[bytes]) -> Segment | Piece:
    """What is left of a piece: itself, where that is all of it."""
    data = b"".join(kept)
    return piece if data == piece.data else Piece(piece.at, data)
