"""Faults that spell the same events in another way, and two that take away what separates them.

They change line ends, the space after a field's colon, or white space between JSON's tokens; no other byte of a value.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from mockllm.core.events import Event, Kind
from mockllm.core.faults.base import Fault, Meaningless, key
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.edit import Edit, edit
from mockllm.core.faults.insert import line_end
from mockllm.core.faults.more import want_sse
from mockllm.core.faults.view import View
from mockllm.core.response import Response

_FAMILY = "Spelling"
_LF = re.compile(rb"\r?\n")
"""The line ends that are changed. A CR on its own stays: it ends a line only for clients that follow the standard."""
_LAST_END = re.compile(rb"(?:\r\n|\r|\n)\Z")
_SPACED = re.compile(rb"(?:(?<=[\r\n])|\A(?:\xef\xbb\xbf)?)(?:data|event|id|retry):( )(?! )")
_DATA_LINE = re.compile(rb"(?:(?<=[\r\n])|\A(?:\xef\xbb\xbf)?)(data: ?)([^\r\n]*)")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+')


@dataclass(frozen=True, slots=True)
class Crlf:
    """Every line ends with CR LF, in a stream of JSON lines too.

    A CR on its own stays as it is.
    """

    name: ClassVar[str] = "crlf"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "crlf"

    def __call__(self, response: Response) -> Response:
        return on_text(response, lambda view: _with_ends(view, b"\r\n"))


@dataclass(frozen=True, slots=True)
class Cr:
    """Every line ends with CR alone."""

    name: ClassVar[str] = "cr"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "cr"

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._changed)

    def _changed(self, view: View) -> Response:
        want_sse(view)
        return _with_ends(view, b"\r")


def _with_ends(view: View, end: bytes) -> Response:
    found = _LF.finditer(view.body) if view.spans else iter(())
    return edit(view.parts, [Edit(*match.span(), end) for match in found if match[0] != end])


@dataclass(frozen=True, slots=True)
class Mixed:
    """Every line ends in a way of its own: LF, CR or CR LF, drawn from the seed.

    After a CR the next line end is never LF alone: the two would be one.
    """

    name: ClassVar[str] = "mixed"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "mixed:seed=1"

    seed: int = key("decides which", 0)

    def __call__(self, response: Response) -> Response:
        return on_text(response, lambda view: edit(view.parts, self._edits(view)))

    def _edits(self, view: View) -> Iterator[Edit]:
        want_sse(view)
        draw = random.Random(self.seed)
        done, last = 0, b""
        for match in _LF.finditer(view.body):
            before = view.body[match.start() - 1 : match.start()] if match.start() > done else last
            end = draw.choice((b"\r", b"\r\n") if before == b"\r" else (b"\r", b"\r\n", b"\n"))
            if end != match[0]:
                yield Edit(*match.span(), end)
            done, last = match.end(), end[-1:]


@dataclass(frozen=True, slots=True)
class NoSpace:
    """No space after the colon of a field: `data:{`.

    A value that begins with a space itself stays as it is, and so do comments.
    """

    name: ClassVar[str] = "nospace"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "nospace"

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._changed)

    def _changed(self, view: View) -> Response:
        want_sse(view)
        return edit(view.parts, [Edit(*match.span(1), b"") for match in _SPACED.finditer(view.body)])


@dataclass(frozen=True, slots=True)
class Multiline:
    """The JSON of each event over two `data:` lines.

    It breaks between the two tokens nearest to the middle, where a line end is white space to JSON. What is no JSON
    object or array, or has several lines already, stays as it is.
    """

    name: ClassVar[str] = "multiline"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "multiline"

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._changed)

    def _changed(self, view: View) -> Response:
        want_sse(view)
        return edit(view.parts, [change for event in view.events for change in _broken(view, event)])


def _broken(view: View, event: Event) -> Iterator[Edit]:
    lines = list(_DATA_LINE.finditer(view.body, event.start, event.stop))
    if len(lines) != 1 or not isinstance(event.json(), dict | list):
        return
    start, stop = lines[0].span(2)
    ends = [match.end() for match in _TOKEN.finditer(view.body, start, stop)][:-1]
    place = min(ends, key=lambda end: abs(2 * end - start - stop))
    # in place of the byte after it, so that it comes with that one
    yield Edit(place, place + 1, line_end(view) + lines[0][1] + view.body[place : place + 1])


@dataclass(frozen=True, slots=True)
class NoGap:
    """No blank line between events: the `data:` lines follow each other with one line end between them.

    Every blank line goes but the one after the last event. A client that follows the standard then gets one event with
    the data of all; one that reads line by line gets them all.
    """

    name: ClassVar[str] = "nogap"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "nogap"

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._changed)

    def _changed(self, view: View) -> Response:
        want_sse(view)
        if not view.events:
            raise Meaningless("there is no event")
        last = view.events[-1].stop
        return edit(view.parts, [_last_end(view, span.stop) for span in view.spans if span.stop < last])


@dataclass(frozen=True, slots=True)
class Tail:
    """The last event without its blank line (strip=1), or without its last line end too (strip=2).

    In a stream of JSON lines the last line loses its line end either way. Without meaning where the stream ends
    unfinished, or with something else than an event.
    """

    name: ClassVar[str] = "tail"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "tail:strip=1"

    strip: int = key("how many line ends are missing, 1 or 2", 1)

    def __post_init__(self) -> None:
        if self.strip not in (1, 2):
            raise ValueError("strip is 1 or 2")

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._changed)

    def _changed(self, view: View) -> Response:
        last = view.spans[-1] if view.spans else None
        if last is None or last.kind is not Kind.EVENT or last.stop != view.borders[-1]:
            raise Meaningless("the stream does not end with a whole event")
        edits = [_last_end(view, last.stop)]
        if self.strip == 2 and not view.ndjson:
            edits.append(_last_end(view, edits[0].start))
        return edit(view.parts, edits)


def _last_end(view: View, stop: int) -> Edit:
    """Takes away the line end that stands before an offset."""
    found = _LAST_END.search(view.body[max(0, stop - 2) : stop])
    assert found is not None, "a span ends with a line end"
    return Edit(stop - len(found[0]), stop, b"")


SPELLING: tuple[type[Fault], ...] = (Crlf, Cr, Mixed, NoSpace, Multiline, NoGap, Tail)
