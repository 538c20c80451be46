"""Faults of time: the bytes stay as they are, only when they come changes.

Times in a fault are real time, whatever the speed of the replay. How segments are moved is `timing`'s.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import ClassVar

from mockllm.core.faults.base import Fault, Forever, Micros, Position, Unit, key
from mockllm.core.faults.body import Parts
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.timing import floored, held, split_at
from mockllm.core.faults.view import View, view
from mockllm.core.response import End, Response, Then
from mockllm.core.timing import moved

_WRITES_A_SECOND = 50
"""So finely `rate:bytes=` cuts what it slows down."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Every interval is divided by a factor: 2 is twice as fast, 0.5 half as fast.

    Reads stay apart, if only by 1 µs.
    """

    name: ClassVar[str] = "speed"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "speed:x=2"

    x: float = key("the factor, above 0")

    def __post_init__(self) -> None:
        if not self.x > 0:
            raise ValueError("x= must be above 0")

    def __call__(self, response: Response) -> Response:
        return moved(response, lambda at: round(at / self.x))


@dataclass(frozen=True, slots=True)
class Ttfb:
    """Silence before the status line: everything comes later."""

    name: ClassVar[str] = "ttfb"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "ttfb:add=3s"

    add: Micros = key("how much later")

    def __call__(self, response: Response) -> Response:
        return moved(response, lambda at: at + self.add)


@dataclass(frozen=True, slots=True)
class Ttft:
    """The head as recorded, then silence: the body comes later, also where both came in one read."""

    name: ClassVar[str] = "ttft"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "ttft:add=3s"

    add: Micros = key("how much later")

    def __call__(self, response: Response) -> Response:
        return held(response, *split_at(view(response).parts, 0), self.add)


@dataclass(frozen=True, slots=True)
class Rate:
    """No more than so many events, or body bytes, a second; what comes more slowly stays as it is.

    A read that brings more than a 50th of a second's bytes goes out in several writes. The bytes stay as they are, so
    that a chunk may come in pieces; only for events= is a compressed body compressed anew, flushed after each piece.
    """

    name: ClassVar[str] = "rate"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "rate:events=2"

    events: float | None = key("events a second", None)
    bytes: int | None = key("body bytes a second, as they are on the wire", None)

    def __post_init__(self) -> None:
        if (self.events is None) == (self.bytes is None):
            raise ValueError("either events= or bytes= is needed")
        if self.events == 0 or self.bytes == 0:
            raise ValueError("a rate must be above 0 (stall stops a stream)")

    def __call__(self, response: Response) -> Response:
        if self.events is not None:
            gap = 1_000_000 / self.events
            return on_text(response, lambda plain: floored(plain.parts, _event_marks(plain, gap)))
        assert self.bytes is not None, "one of them is given"
        parts = view(response).parts
        return floored(parts, _byte_marks(parts, self.bytes))


@dataclass(frozen=True, slots=True)
class Jitter:
    """Every read comes later by a random time; none overtakes another."""

    name: ClassVar[str] = "jitter"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "jitter:by=50ms"

    by: Micros = key("the most that a read is late")
    seed: int = key("decides the times", 0)

    def __call__(self, response: Response) -> Response:
        draw = random.Random(self.seed).random
        return moved(response, lambda at: at + int(draw() * (self.by + 1)))


@dataclass(frozen=True, slots=True)
class Stall:
    """Silence from a place in the stream on, with the connection open; then the rest as it was.

    The bytes stay as they are: a place inside a chunk leaves its rest to come. With for=forever nothing follows until
    the client leaves. Only for a place after an event is a compressed body compressed anew, flushed there.
    """

    name: ClassVar[str] = "stall"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "stall:at=1ev,for=3s"

    at: Position = key("where the silence begins")
    for_: Micros | Forever = key("how long it lasts", "forever")

    def __call__(self, response: Response) -> Response:
        if self.at.unit is Unit.EVENTS:
            return on_text(response, self._in_view)
        if self.at.unit is not Unit.TIME:
            return self._in_view(view(response))
        if self.at.value > response.end_at:
            return response
        before = [segment for segment in response.segments if segment.at < self.at.value]
        return held(response, before, list(response.segments[len(before) :]), self._by())

    def _in_view(self, seen: View) -> Response:
        offset = seen.offset(self.at)
        response = seen.parts.response
        return response if offset is None else held(response, *split_at(seen.parts, offset), self._by())

    def _by(self) -> int | None:
        return None if self.for_ == "forever" else self.for_


@dataclass(frozen=True, slots=True)
class Buffer:
    """A proxy that buffers: nothing comes until the answer is over, then all of it, head included, in one write.

    An answer that never ends never comes.
    """

    name: ClassVar[str] = "buffer"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "buffer"

    def __call__(self, response: Response) -> Response:
        if response.end is End.HANG:
            return replace(response, segments=())
        at = response.end_at
        return replace(response, segments=tuple(replace(segment, at=at) for segment in response.segments))


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """A proxy that closes the connection (FIN) at the first silence that is too long, as keepalives are to prevent.

    Every silence counts: before the status line, between reads, and before the end.
    """

    name: ClassVar[str] = "idle-timeout"
    family: ClassVar[str] = "Time"
    example: ClassVar[str] = "idle-timeout:after=300ms"

    after: Micros = key("the longest silence that passes", Micros(60_000_000))

    def __call__(self, response: Response) -> Response:
        times = [0, *(segment.at for segment in response.segments)]
        silent = [index for index, (one, next_) in enumerate(pairwise(times)) if next_ - one > self.after]
        count = silent[0] if silent else len(response.segments)
        if not silent and response.end is not End.HANG and response.end_at - times[-1] <= self.after:
            return response
        end_at = times[count] + self.after
        return replace(
            response, segments=response.segments[:count], end=End.FIN, end_at=end_at, then=Then.OPEN, then_at=0
        )


def _event_marks(plain: View, gap: float) -> Iterator[tuple[int, int]]:
    """Where the last piece of each event begins, and when it may go: `gap` µs after the one before it."""
    due = 0.0
    starts = [0, *plain.ends]
    for event in plain.events:
        due = max(plain.came_at(event.stop - 1), due)
        yield max(event.start, starts[bisect_right(plain.ends, event.stop - 1)]), round(due)
        due += gap


def _byte_marks(parts: Parts, rate: int) -> Iterator[tuple[int, int]]:
    """Where each slice of the body begins, and when a line of that rate (bytes a second) is free for it."""
    size = max(1, rate // _WRITES_A_SECOND)
    since = sent = offset = 0  # the line has been busy since then (µs), with so many bytes
    for at, pieces in groupby(parts.pieces, key=attrgetter("at")):
        length = sum(len(piece.data) for piece in pieces)
        if at * rate >= since * rate + sent * 1_000_000:
            since, sent = at, 0
        for start in range(0, length, size):
            yield offset + start, since + -(-sent * 1_000_000 // rate)
            sent += min(size, length - start)
        offset += length


TIME: tuple[type[Fault], ...] = (Speed, Ttfb, Ttft, Rate, Jitter, Stall, Buffer, IdleTimeout)
