"""Faults that put more into a stream, or take something out: comments, fields, whole events.

They know events by what they mean, never by their text; JSON is not re-written.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from mockllm.core.dialects import Meaning, meaning
from mockllm.core.events import Event
from mockllm.core.faults.base import Fault, Meaningless, Micros, Position, Unit, key
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.edit import Edit, edit
from mockllm.core.faults.insert import Block, insert, line_end, place, spelled
from mockllm.core.faults.view import BOM, View
from mockllm.core.response import Response

_FAMILY = "More events"
_AFTER_FIRST = Position(Unit.EVENTS, 1)
_LINES = re.compile(r"\r\n?|\n")


def put_block(response: Response, at: Position, lines: Callable[[View], list[bytes]]) -> Response:
    """The response with a block of these lines at a position, spelled as the stream is.

    It stays as it is where the position lies beyond the end. Raises Meaningless.
    """

    def change(view: View) -> Response:
        new, found = lines(view), place(view, at)
        return view.parts.response if found is None else insert(view, [Block(*found, spelled(view, new))])

    return on_text(response, change)


def lines_of(text: str, field: bytes) -> list[bytes]:
    """A text as lines of a field, one for each line it has."""
    return [field + line.encode() for line in _LINES.split(text)]


def want_sse(view: View) -> None:
    """Raises Meaningless where the body is no stream of server-sent events."""
    borders = view.borders  # raises where there are no events at all
    if borders and view.ndjson:
        raise Meaningless("a stream of JSON lines has no such thing")


def _sse_lines(*lines: bytes) -> Callable[[View], list[bytes]]:
    """Lines that have a meaning among server-sent events only."""

    def checked(view: View) -> list[bytes]:
        want_sse(view)
        return list(lines)

    return checked


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment between two events.

    `: text` and a blank line; a text of several lines gives several comment lines. Clients must pass over it.
    """

    name: ClassVar[str] = "comment"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "comment:text=hello,at=1ev"

    text: str = key("what it says", "comment")
    at: Position = key("where; the next border between events", _AFTER_FIRST)

    def __call__(self, response: Response) -> Response:
        return put_block(response, self.at, _sse_lines(*lines_of(self.text, b": ")))


@dataclass(frozen=True, slots=True)
class Retry:
    """A `retry:` field between two events, which tells a client how long to wait before it connects again."""

    name: ClassVar[str] = "retry"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "retry:ms=3000,at=1ev"

    ms: Micros = key("the time, in whole ms", Micros(3_000_000), unit="ms")
    at: Position = key("where; the next border between events", _AFTER_FIRST)

    def __post_init__(self) -> None:
        if self.ms % 1000:
            raise ValueError("ms takes whole milliseconds")

    def __call__(self, response: Response) -> Response:
        return put_block(response, self.at, _sse_lines(b"retry: %d" % (self.ms // 1000)))


@dataclass(frozen=True, slots=True)
class Ids:
    """An `id:` on each event, counted from 1.

    It stands before the event's own lines. An event that has an id keeps its own.
    """

    name: ClassVar[str] = "ids"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "ids"

    def __call__(self, response: Response) -> Response:
        return on_text(response, _with_ids)


def _with_ids(view: View) -> Response:
    want_sse(view)
    end = line_end(view)
    edits = []
    for number, event in enumerate(view.events, 1):
        if event.id is None:
            start = max(event.start, view.borders[0])
            field = b"id: %d%b%b" % (number, end, view.body[start : start + 1])
            # in place of the event's first byte, so that it comes with the event and not with what is before it
            edits.append(Edit(start, start + 1, field))
    return edit(view.parts, edits)


@dataclass(frozen=True, slots=True)
class Empty:
    """An event without content: `data:` alone, in a stream of JSON lines an empty line."""

    name: ClassVar[str] = "empty"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "empty:at=1ev"

    at: Position = key("where; the next border between events", _AFTER_FIRST)

    def __call__(self, response: Response) -> Response:
        return put_block(response, self.at, lambda view: [b"" if view.ndjson else b"data:"])


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that no client expects.

    Several lines of data become several `data:` lines. In a stream of JSON lines the data stand alone on a line.
    """

    name: ClassVar[str] = "event"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "event:name=vendor_x,data=tick,at=1ev"

    # the class attribute `name` is the fault's own
    name_: str = key("its type; empty for none", "vendor_x")
    data: str = key("its data", "tick")
    at: Position = key("where; the next border between events", _AFTER_FIRST)

    def __post_init__(self) -> None:
        if _LINES.search(self.name_):
            raise ValueError("a name is one line")

    def __call__(self, response: Response) -> Response:
        return put_block(response, self.at, self._lines)

    def _lines(self, view: View) -> list[bytes]:
        if not view.ndjson:
            named = [b"event: " + self.name_.encode()] if self.name_ else []
            return named + lines_of(self.data, b"data: ")
        if _LINES.search(self.data):
            raise Meaningless("a JSON line is one line")
        return [self.data.encode()]


@dataclass(frozen=True, slots=True)
class Bom:
    """A byte order mark before the first event."""

    name: ClassVar[str] = "bom"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "bom"

    def __call__(self, response: Response) -> Response:
        return on_text(response, _marked)


def _marked(view: View) -> Response:
    want_sse(view)
    if not view.body:
        raise Meaningless("the body is empty")
    if view.body.startswith(BOM):
        return view.parts.response
    return edit(view.parts, [Edit(0, 1, BOM + view.body[:1])])


@dataclass(frozen=True, slots=True)
class Dup:
    """An event twice, the second time right after the first.

    By what it means: the last event with a finish reason, the last with usage, the protocol's own end; or by number.
    """

    name: ClassVar[str] = "dup"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "dup:event=finish"

    event: Literal["finish", "done", "usage"] | int = key("which event; the first is 1", "finish")

    def __post_init__(self) -> None:
        if self.event == 0:
            raise ValueError("events count from 1")

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._doubled)

    def _doubled(self, view: View) -> Response:
        event = chosen(view, self.event)
        if event is None:
            return view.parts.response
        text = view.body[max(event.start, view.borders[0]) : event.stop]
        if event.stop in view.borders:
            return insert(view, [Block(event.stop, view.came_at(event.stop - 1), text)])
        # a last JSON line without its end stays so
        return edit(view.parts, [Edit(event.start, event.start + 1, text + line_end(view) + text[:1])])


@dataclass(frozen=True, slots=True)
class Drop:
    """An event left out, whatever else it carries.

    By what it means: the protocol's own end, the last event with usage, the first with a role; or by number.
    """

    name: ClassVar[str] = "drop"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "drop:event=done"

    event: Literal["done", "usage", "role"] | int = key("which event; the first is 1", "done")

    def __post_init__(self) -> None:
        if self.event == 0:
            raise ValueError("events count from 1")

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._without)

    def _without(self, view: View) -> Response:
        event = chosen(view, self.event)
        if event is None:
            return view.parts.response
        return edit(view.parts, [Edit(max(event.start, view.borders[0]), event.stop, b"")])


def chosen(view: View, which: str | int) -> Event | None:
    """The event of that number (from 1; None beyond the last) or meaning: the first with a role, else the last.

    Raises Meaningless where no event means that.
    """
    if isinstance(which, int):
        return view.events[which - 1] if which <= len(view.events) else None
    wanted = Meaning[which.upper()]
    found = [event for event in view.events if wanted in meaning(event)]
    if not found:
        raise Meaningless(f"no event means {which}")
    return found[0] if wanted is Meaning.ROLE else found[-1]


MORE: tuple[type[Fault], ...] = (Comment, Retry, Ids, Empty, NewEvent, Bom, Dup, Drop)
