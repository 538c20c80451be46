"""The same response at another speed: times change, no byte does.

It must not know who wants it faster.
"""

from collections.abc import Callable
from dataclasses import replace

from mockllm.core.response import Response, Segment, Then


def moved(response: Response, move: Callable[[int], int]) -> Response:
    """Every time moved (µs to µs). Reads keep their order and stay at least 1 µs apart."""
    segments = []
    came, at = -1, -1  # of the last read: its time, and where that was moved to
    for segment in response.segments:
        if not segment.wire:
            continue
        if segment.at != came:
            came, at = segment.at, max(at + 1, move(segment.at))
        segments.append(Segment(at, segment.data, segment.before, segment.after))
    end_at = at if response.end_at == came else max(at, move(response.end_at))
    then_at = response.then_at if response.then is Then.OPEN else max(end_at, move(response.then_at))
    return replace(response, segments=tuple(segments), end_at=end_at, then_at=then_at)


def retimed(response: Response, *, speed: float = 1.0, max_gap_us: int | None = None) -> Response:
    """Every silence cut to `max_gap_us`, then every time divided by `speed`.

    Silences are those before a read, before the end, and before what the server did then. At speed 0 everything comes
    at once, in one read. Raises ValueError where one of them is negative.
    """
    if not speed >= 0 or (max_gap_us is not None and max_gap_us < 0):
        raise ValueError(f"cannot play at speed {speed} with gaps of at most {max_gap_us} µs")
    if speed == 1 and max_gap_us is None:
        return response
    if speed:
        return moved(response, _scale(speed, max_gap_us))
    segments = tuple(Segment(0, segment.data, segment.before, segment.after) for segment in response.segments)
    return replace(response, segments=segments, end_at=0, then_at=0)


def _scale(speed: float, max_gap_us: int | None) -> Callable[[int], int]:
    """A function from recorded to played times; it must be given them in their order."""
    last = kept = 0  # µs: the last time given, and what the cap made of it

    def scale(at: int) -> int:
        nonlocal last, kept
        gap = max(0, at - last)
        last = max(last, at)
        kept += gap if max_gap_us is None else min(gap, max_gap_us)
        # From the sum, not by interval: roundings must not add up.
        return round(kept / speed)

    return scale
