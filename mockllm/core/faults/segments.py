"""Faults of segments: the same body in other chunks, other writes, other framing.

The body's bytes stay; where they are cut and what stands between them changes.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import ClassVar, Literal

from mockllm.core.faults.base import Fault, Meaningless, Micros, key
from mockllm.core.faults.body import Parts, Piece, framed_chunk, put_together, take_apart
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.head import Lines, change_head, named, with_header
from mockllm.core.faults.view import View
from mockllm.core.http1 import Framing as Kind
from mockllm.core.response import End, Response, Segment, Then

_LONGEST = 64
"""Bytes of the longest piece that `split:random` makes."""
_IN_CHARACTER = re.compile(rb"(?<=[\x80-\xff])[\x80-\xbf]")
_IN_CRLF = re.compile(rb"(?<=\r)\n")


@dataclass(frozen=True, slots=True)
class Split:
    """Cuts the body: at each cut a new write begins, and in chunked framing a new chunk.

    bytes= cuts every read after so many bytes of body; inside=utf8 between the bytes of each character, inside=crlf
    between CR and LF, inside=event in the middle of each event (of the text, which is then compressed anew, where the
    body is compressed); random into pieces of 1 to 64 bytes. The writes are `gap` apart. What follows keeps its time
    unless it would be overtaken: then it comes one gap later.
    """

    name: ClassVar[str] = "split"
    family: ClassVar[str] = "Segments"
    example: ClassVar[str] = "split:inside=event,gap=5ms"

    bytes: int | None = key("after so many bytes", None)
    inside: Literal["utf8", "crlf", "event"] | None = key("inside of what", None)
    random: bool = key("anywhere", False)
    gap: Micros = key("between two writes, at least 1us", Micros(1000))
    seed: int = key("decides where random cuts", 0)

    def __post_init__(self) -> None:
        if (self.bytes is not None) + (self.inside is not None) + self.random != 1:
            raise ValueError("one of bytes=, inside= and random is needed")
        if self.bytes == 0:
            raise ValueError("bytes= must be 1 or more")
        if self.gap < 1:
            raise ValueError("gap= must be 1us or more (with none there would be one write)")

    def __call__(self, response: Response) -> Response:
        if self.inside is not None:
            find = _INSIDE[self.inside]
            return on_text(response, lambda plain: _split(plain.parts, find(plain), self.gap))
        parts = take_apart(response)
        cuts = _random_cuts(len(parts.body), self.seed) if self.bytes is None else _regular_cuts(parts, self.bytes)
        return _split(parts, cuts, self.gap)


@dataclass(frozen=True, slots=True)
class Join:
    """Joins the pieces of the body to one write, in chunked framing one chunk, that goes when its last byte came.

    With window= only pieces that came at most so long after the first of them.
    """

    name: ClassVar[str] = "join"
    family: ClassVar[str] = "Segments"
    example: ClassVar[str] = "join"

    window: Micros | None = key("how long after the first; without it, all", None)

    def __call__(self, response: Response) -> Response:
        parts = take_apart(response)
        return put_together(parts, _joined(parts, self.window))


@dataclass(frozen=True, slots=True)
class Framing:
    """The same body in another framing, and the head to match; the version of HTTP stays.

    What told of the old framing goes: Transfer-Encoding, Content-Length, last chunk, trailers, surplus. `close` says
    `Connection: close` where the head speaks of the connection or is HTTP/1.1, and closes when the answer ended. An
    answer that was cut short stays cut short: without a last chunk, or with a length that never comes.
    """

    name: ClassVar[str] = "framing"
    family: ClassVar[str] = "Segments"
    example: ClassVar[str] = "framing:as=close"

    as_: Literal["chunked", "length", "close"] = key("the framing")

    def __call__(self, response: Response) -> Response:
        parts = take_apart(response)
        head, kind = parts.found.head, Kind[self.as_.upper()]
        assert head is not None, "take_apart refuses a response without a head"
        if parts.found.bad or head.status == 101:
            raise Meaningless("the body is no HTTP")
        if head.values(b"transfer-encoding") not in ([], [b"chunked"]):
            raise Meaningless("the body has another transfer coding beside chunks")
        if parts.found.framing is kind:
            return response
        return _reframed(parts, kind, whole=parts.found.done or response.end is End.COMPLETE)


@dataclass(frozen=True, slots=True)
class Http:
    """Another version of HTTP in the status line.

    Framing and all else stay: there are servers that send chunks to HTTP/1.0 clients.
    """

    name: ClassVar[str] = "http"
    family: ClassVar[str] = "Segments"
    example: ClassVar[str] = "http:version=1.0"

    version: Literal["1.0", "1.1"] = key("the version", "1.0")

    def __call__(self, response: Response) -> Response:
        start = b"HTTP/" + self.version.encode()
        return change_head(response, lambda lines: [start + lines[0][len(start) :], *lines[1:]])


def _regular_cuts(parts: Parts, size: int) -> Iterator[int]:
    offset = 0
    for _, pieces in groupby(parts.pieces, key=attrgetter("at")):
        stop = offset + sum(len(piece.data) for piece in pieces)
        yield from range(offset + size, stop, size)
        offset = stop


def _random_cuts(length: int, seed: int) -> Iterator[int]:
    draw = random.Random(seed).random
    cut = 0
    while (cut := cut + 1 + int(draw() * _LONGEST)) < length:
        yield cut


def _inside_characters(plain: View) -> Iterator[int]:
    return (found.start() for found in _IN_CHARACTER.finditer(plain.body))


def _inside_crlf(plain: View) -> Iterator[int]:
    return (found.start() for found in _IN_CRLF.finditer(plain.body))


def _inside_events(plain: View) -> Iterator[int]:
    return ((event.start + event.stop) // 2 for event in plain.events)


_INSIDE: dict[str, Callable[[View], Iterator[int]]] = {
    "utf8": _inside_characters,
    "crlf": _inside_crlf,
    "event": _inside_events,
}


def _split(parts: Parts, cuts: Iterator[int], gap: int) -> Response:
    return put_together(parts, _cut_pieces(parts.pieces, cuts, gap))


def _cut_pieces(pieces: Iterable[Segment], cuts: Iterator[int], gap: int) -> Iterator[Segment | Piece]:
    cut = next(cuts, None)
    offset, last, read = 0, -1, -1  # last: when the piece before was sent (µs); read: when it came
    for piece in pieces:
        stop = offset + len(piece.data)
        new_write = cut == offset or piece.at != read
        at = piece.at if piece.at > last else last + gap if new_write else last
        if cut == offset:
            cut = next(cuts, None)
        start = offset
        while cut is not None and cut < stop:
            yield Piece(at, piece.data[start - offset : cut - offset])
            at += gap
            start, cut = cut, next(cuts, None)
        if start > offset:
            yield Piece(at, piece.data[start - offset :])
        else:
            yield piece if at == piece.at else replace(piece, at=at)
        offset, last, read = stop, at, piece.at


def _joined(parts: Parts, window: int | None) -> Iterator[Segment | Piece]:
    group: list[Segment] = []
    for piece in parts.pieces:
        if group and window is not None and piece.at - group[0].at > window:
            yield _one(group)
            group = []
        group.append(piece)
    if group:
        yield _one(group)


def _one(group: list[Segment]) -> Segment | Piece:
    return group[0] if len(group) == 1 else Piece(group[-1].at, b"".join(piece.data for piece in group))


def _reframed(parts: Parts, kind: Kind, *, whole: bool) -> Response:
    response, pieces = parts.response, [Segment(piece.at, piece.data) for piece in parts.pieces]
    length = sum(len(piece.data) for piece in pieces) + (0 if whole else max(1, parts.found.missing))
    bare = replace(response, segments=parts.head)
    segments = [*change_head(bare, lambda lines: _relabelled(lines, kind, length)).segments]
    segments += map(framed_chunk, pieces) if kind is Kind.CHUNKED else pieces
    # Who does not say a length beforehand shows the end only when it comes.
    told = kind is Kind.LENGTH or response.end is not End.COMPLETE
    end_at = segments[-1].at if told else response.end_at
    if kind is Kind.CHUNKED and whole:
        segments.append(Segment(end_at, before=b"0\r\n\r\n"))
    changed = replace(response, segments=tuple(segments))
    if not whole or response.end not in (End.COMPLETE, End.CLIENT):
        return changed
    if kind is Kind.CLOSE:
        return replace(changed, end=End.COMPLETE, end_at=end_at, then=Then.FIN, then_at=end_at)
    return replace(changed, end=End.COMPLETE, end_at=end_at)


def _relabelled(lines: Lines, kind: Kind, length: int) -> Lines:
    """The head's lines for a framing; the new header stands where the first of the old ones stood."""
    old = {*named(lines, b"content-length"), *named(lines, b"transfer-encoding")}
    place = min(old, default=len(lines) - 1)
    end = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    new = {Kind.CHUNKED: [b"Transfer-Encoding: chunked" + end], Kind.LENGTH: [b"Content-Length: %d" % length + end]}
    after = [line for index, line in enumerate(lines) if index >= place and index not in old]
    lines = [*lines[:place], *new.get(kind, []), *after]
    if kind is not Kind.CLOSE:
        return lines
    lines = with_header(lines, b"Keep-Alive", None)
    silent = lines[0].startswith(b"HTTP/1.0") and not named(lines, b"connection")
    return lines if silent else with_header(lines, b"Connection", b"close")


SEGMENTS: tuple[type[Fault], ...] = (Split, Join, Framing, Http)
