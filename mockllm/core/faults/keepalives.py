"""Heartbeats in the silences of a stream, between events only, whatever pieces the recording came in.

What a heartbeat says is the dialects' business; this decides when there is one.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import ClassVar, Literal

from mockllm.core.dialects.heartbeats import heartbeat, moment, usual
from mockllm.core.events import Kind, reader_for
from mockllm.core.exchange import header
from mockllm.core.faults.base import Fault, Forever, Meaningless, Micros, key
from mockllm.core.faults.body import Parts
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.insert import Block, insert, spelled
from mockllm.core.faults.sequence import sequence
from mockllm.core.faults.view import View
from mockllm.core.http1 import Framing
from mockllm.core.response import End, Response, Then

MOST = 4000
"""One fault puts in no more heartbeats than this; a stream that is held for ever is silent after them."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Heartbeats while the stream is silent, as servers send them while the model thinks.

    One comes after each every= of silence, counted from the last byte. A silence inside an event has none, and so has
    the time before the head. In a stream that hangs they go on. There are 4000 at most.

    before=N puts exactly N ahead of the first event, spread over the time from the head to it, in place of the ones
    that every= would put there. Where the head came with the first event, it is sent at the request's time instead.

    hold= sends the end of the answer (last chunk, close) that much later and heartbeats until then, or never. An answer
    with a Content-Length that is held for ever promises one heartbeat more than it sends.

    Without style= and text= they are those of the recording's own family, or FastAPI's. mlx counts up to the number of
    heartbeats; sse-starlette's date is the recording's Date header, or 2026-01-01 where there is none, plus the time
    since the head; responses repeats the sequence number of the event before it. blank is an empty line: it alone has a
    meaning in a stream of JSON lines, and before a body that is JSON, where the head is moved without before= too.
    """

    name: ClassVar[str] = "keepalive"
    family: ClassVar[str] = "Keepalives"
    example: ClassVar[str] = "keepalive:every=100ms,style=mlx"

    every: Micros = key("how long a silence has to be for one, at least 1ms", Micros(15_000_000))
    style: (
        Literal["mlx", "llama", "openrouter", "deepseek", "ping", "sse-starlette", "anthropic", "responses", "blank"]
        | None
    ) = key("whose heartbeat it is", None)
    text: str | None = key("a comment's text, in place of style=", None)
    before: int = key("how many come ahead of the first event", 0)
    hold: Micros | Forever | None = key("how much longer the stream stays open at its end", None)

    def __post_init__(self) -> None:
        if self.every < 1000:
            raise ValueError("every is at least 1ms")
        if self.text is not None and (self.style is not None or re.search(r"[\r\n]", self.text)):
            raise ValueError("text is one line, and stands in place of style")
        if self.before > MOST:
            raise ValueError(f"before is at most {MOST}")
        if isinstance(self.hold, int) and self.hold <= self.every:
            raise ValueError("hold is longer than every")

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._beating)

    def _beating(self, view: View) -> Response:
        streamed = reader_for(view.content_type) is not None
        self._check(view, streamed=streamed)
        parts, borders = view.parts, view.borders if streamed else [0]
        first = _first(view, streamed=streamed)
        moved = first.at == parts.head_at and (self.before > 0 or not streamed)
        since = 0 if moved else parts.head_at
        ahead = [
            _at_border(view, borders, since + (first.at - since) * number // (self.before + 1))
            for number in range(1, self.before + 1)
        ]
        silences = _silences(view, set(borders), since, self.hold)
        later = (silence for silence in silences if not self.before or silence.offset > first.offset)
        beats = [*ahead, *islice(_beats(later, self.every), MOST - len(ahead))]
        if not beats:
            return parts.response
        if moved:
            parts = replace(parts, head=tuple(replace(segment, at=0) for segment in parts.head))
        blocks = list(self._blocks(view, beats))
        if self.hold is not None:
            parts = _held(parts, self.hold, len(blocks[-1].data))
        return insert(view, blocks, parts)

    def _check(self, view: View, *, streamed: bool) -> None:
        """Raises Meaningless where such heartbeats have no place."""
        if not streamed and (self.style != "blank" or b"json" not in (view.content_type or b"").lower()):
            raise Meaningless("the body is no stream of events")
        if streamed and view.ndjson and self.style != "blank":
            raise Meaningless("in a stream of JSON lines only style=blank has a place")
        if self.hold is not None and not (streamed and view.borders[-1] == len(view.body)):
            raise Meaningless("the body does not end between events, so that no heartbeat can follow")

    def _blocks(self, view: View, beats: Sequence["_Beat"]) -> Iterator[Block]:
        style = self.style or usual(view.family)
        head = view.parts.found.head
        start = moment(header(head.headers, b"date") if head else None)
        number_before = sequence(view) if style == "responses" else None
        for number, beat in enumerate(beats, 1):
            if self.text is None:
                last = max(0, number_before(beat.offset)) if number_before else 0
                data = heartbeat(style, number, len(beats), last, start, beat.at - view.parts.head_at)
            else:
                data = spelled(view, [b": " + self.text.encode()])
            yield Block(beat.offset, beat.at, data)


@dataclass(frozen=True, slots=True)
class _Beat:
    """A place in the body and a time (µs)."""

    offset: int
    at: int


@dataclass(frozen=True, slots=True)
class _Silence:
    """At an offset, from one time to another (µs); until None: for ever."""

    offset: int
    since: int
    until: int | None


def _first(view: View, *, streamed: bool) -> _Beat:
    """Where and when the first event began, finished or not, or the body where it is no stream; else the end."""
    starts = [span.start for span in view.spans if span.kind is not Kind.BLOCK] if streamed else [0]
    if starts and view.parts.pieces:
        offset = max(starts[0], view.borders[0] if streamed else 0)
        return _Beat(offset, view.came_at(offset))
    return _Beat(len(view.body), view.parts.response.end_at)


def _at_border(view: View, borders: Sequence[int], at: int) -> _Beat:
    """A time and the border before which nothing comes earlier; in the middle of a block, the block's end."""
    offset = view.came_by(at)
    border = borders[bisect_left(borders, offset)]
    return _Beat(border, at if offset in (0, border) else view.came_at(border - 1))


def _silences(view: View, borders: set[int], since: int, hold: Micros | Forever | None) -> Iterator[_Silence]:
    """The silences at these borders, the first one after the head, which was sent at `since`."""
    parts, response = view.parts, view.parts.response
    end = parts.tail[0].at if parts.tail else response.end_at
    endless = hold == "forever" or response.end is End.HANG
    last = None if endless else end + (hold if isinstance(hold, int) else 0)
    times = [since, *(piece.at for piece in parts.pieces)]
    for offset, start, stop in zip([min(borders), *view.ends], times, [*times[1:], last], strict=True):
        if offset in borders:
            yield _Silence(offset, start, stop)


def _beats(silences: Iterable[_Silence], every: int) -> Iterator[_Beat]:
    for silence in silences:
        start = silence.since + every
        for at in count(start, every) if silence.until is None else range(start, silence.until, every):
            yield _Beat(silence.offset, at)


def _held(parts: Parts, hold: Micros | Forever, beat: int) -> Parts:
    """The parts with their end later, or without it; a heartbeat has so many bytes."""
    response = parts.response
    if hold != "forever":
        then_at = 0 if response.then is Then.OPEN else response.then_at + hold
        tail = tuple(replace(segment, at=segment.at + hold) for segment in parts.tail)
        later = replace(response, end_at=response.end_at + hold, then_at=then_at)
        return replace(parts, response=later, tail=tail)
    missing = parts.found.missing + (beat if parts.found.framing is Framing.LENGTH else 0)
    hung = replace(response, end=End.HANG, then=Then.OPEN, then_at=0)
    return replace(parts, response=hung, found=replace(parts.found, missing=missing), tail=())


KEEPALIVES: tuple[type[Fault], ...] = (Keepalive,)
