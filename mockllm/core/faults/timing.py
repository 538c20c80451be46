"""Moves what was sent in time, without touching a byte of it: the wire is the same, but for where its writes end.

It knows no event and no fault.
"""

from collections.abc import Iterable
from dataclasses import replace

from mockllm.core.faults.body import Parts, with_chunk_end
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Segment, Then

Segments = list[Segment]


def split_at(parts: Parts, offset: int) -> tuple[Segments, Segments]:
    """The segments before and after a body offset.

    The CRLF of a chunk that ends there is before it; the last chunk, which holds nothing, is after it.
    """
    segments = parts.found.segments
    index, left = len(parts.head), offset
    while left and left >= len(segments[index].data):
        left -= len(segments[index].data)
        index += 1
    before, after = list(segments[:index]), list(segments[index:])
    if left:
        cut = after[0]
        before.append(replace(cut, data=cut.data[:left], after=b""))
        after[0] = replace(cut, before=b"", data=cut.data[left:])
    elif offset and parts.found.framing is Framing.CHUNKED:
        return with_chunk_end(before, after)
    return before, after


def held(response: Response, before: Segments, after: Segments, by: int | None) -> Response:
    """The response with what comes after a place held back `by` so many µs (None: forever), its end included."""
    if not after and _nothing_follows(response):
        return response
    at = before[-1].at if before else 0
    if by is None:
        return replace(response, segments=tuple(before), end=End.HANG, end_at=at, then=Then.OPEN, then_at=0)
    later = [replace(segment, at=segment.at + by) for segment in after]
    # An answer that was whole before that place has ended; only what the server then does comes later.
    over = not after and response.end is End.COMPLETE and scan(response).done
    end_at = response.end_at if over else response.end_at + by
    then_at = response.then_at if response.then is Then.OPEN else response.then_at + by
    return replace(response, segments=(*before, *later), end_at=end_at, then_at=then_at)


def _nothing_follows(response: Response) -> bool:
    return response.end is End.HANG or (response.end is End.COMPLETE and response.then is Then.OPEN)


def floored(parts: Parts, marks: Iterable[tuple[int, int]]) -> Response:
    """The response with nothing sent too early: a mark (offset, µs) says when the body from there on may go.

    Offsets and times of the marks may not go back. A segment is cut only where its parts go at different times.
    """
    waiting = iter(marks)
    mark = next(waiting, None)
    made: Segments = list(parts.head)
    offset = floor = 0
    for segment in parts.found.segments[len(parts.head) :]:
        begin, size = 0, len(segment.data)
        while mark is not None and mark[0] < offset + size:
            place, now = mark[0] - offset, max(segment.at, floor)
            if place > begin and mark[1] > now:
                before = segment.before if not begin else b""
                made.append(Segment(now, segment.data[begin:place], before))
                begin = place
            floor = max(floor, mark[1])
            mark = next(waiting, None)
        at = max(segment.at, floor)
        if begin:
            made.append(Segment(at, segment.data[begin:], after=segment.after))
        else:
            made.append(segment if segment.at == at else replace(segment, at=at))
        offset += size
    response, end_at = parts.response, max(parts.response.end_at, made[-1].at)
    then_at = response.then_at if response.then is Then.OPEN else max(response.then_at, end_at)
    return replace(response, segments=tuple(made), end_at=end_at, then_at=then_at)
