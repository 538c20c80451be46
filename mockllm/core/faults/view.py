"""What faults ask of a response: its body, its events, and where a position lies.

All positions refer to the response as it enters the fault. It changes nothing and knows no fault.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from mockllm.core.dialects import family
from mockllm.core.events import Event, Kind, NdjsonReader, events, reader_for
from mockllm.core.exchange import header
from mockllm.core.faults.base import Meaningless, Position, Unit
from mockllm.core.faults.body import Parts, take_apart
from mockllm.core.response import Response

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class View:
    """A response as a client reads it. Offsets are body bytes without framing, times µs."""

    parts: Parts

    @cached_property
    def body(self) -> bytes:
        return self.parts.body

    @cached_property
    def content_type(self) -> bytes | None:
        head = self.parts.found.head
        assert head is not None, "take_apart refuses a response without a head"
        return header(head.headers, b"content-type")

    @property
    def ndjson(self) -> bool:
        """Is it a stream of JSON lines (Ollama) rather than of server-sent events?"""
        return isinstance(reader_for(self.content_type), NdjsonReader)

    @cached_property
    def spans(self) -> list[Event]:
        """Everything the body is made of: events, blocks that dispatch nothing, an unfinished tail.

        Raises Meaningless.
        """
        if reader_for(self.content_type) is None:
            raise Meaningless("the body is no stream of events")
        return events(self.body, self.content_type)

    @cached_property
    def events(self) -> list[Event]:
        """The events that a client gets. Raises Meaningless where the body is no stream of events."""
        return [span for span in self.spans if span.kind is Kind.EVENT]

    @cached_property
    def family(self) -> str:
        """Whose dialect it is, by its events, else by the request's target."""
        try:
            found = self.events
        except Meaningless:
            found = []
        return family(self.parts.response.target, self.content_type, found)

    @cached_property
    def ends(self) -> list[int]:
        """Where each piece of the body ends."""
        return list(accumulate(len(piece.data) for piece in self.parts.pieces))

    def came_at(self, offset: int) -> int:
        """When the body byte at an offset came; for the end, when the last one did (when the head did, if none)."""
        pieces = self.parts.pieces
        if not pieces:
            return self.parts.head_at
        return pieces[min(bisect_right(self.ends, offset), len(pieces) - 1)].at

    def came_by(self, at: int) -> int:
        """How many body bytes had come before a time."""
        count = bisect_left([piece.at for piece in self.parts.pieces], at)
        return self.ends[count - 1] if count else 0

    def offset(self, position: Position) -> int | None:
        """The body offset of a position; None where it lies beyond the end. Raises Meaningless for events without a
        stream.

        After so many events means after the blank line of the last of them; a time, after what came before it.
        """
        if position.unit is Unit.EVENTS:
            count = int(position.value)
            if count > len(self.events):
                return None
            return self.events[count - 1].stop if count else 0
        if position.unit is Unit.TIME:
            late = position.value > self.parts.response.end_at
            return None if late else self.came_by(int(position.value))
        length = len(self.body)
        whole = position.unit is Unit.BYTES
        found = int(position.value) if whole else int(length * position.value / 100)
        return found if found <= length else None

    def border(self, position: Position) -> int | None:
        """The first border between events at or after a position; None where it lies beyond the end.

        Raises Meaningless.
        """
        offset = self.offset(position)
        if offset is None:
            return None
        index = bisect_left(self.borders, offset)
        return self.borders[index] if index < len(self.borders) else None

    @cached_property
    def borders(self) -> list[int]:
        """Where something can be inserted: before the first span (after a byte order mark) and after each finished one.

        A last JSON line without its line end is not finished. Raises Meaningless.
        """
        ends = b"\n" if self.ndjson else b"\r\n"
        spans = [span for span in self.spans if span.kind is not Kind.TAIL and self.body[span.stop - 1] in ends]
        marked = not self.ndjson and self.body.startswith(BOM)
        return [len(BOM) if marked else 0, *(span.stop for span in spans)]


def view(response: Response) -> View:
    """Raises Meaningless where the response has no whole head or can have no body."""
    return View(take_apart(response))
