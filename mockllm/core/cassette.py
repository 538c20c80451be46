"""Reads a cassette's text: where its exchanges stand, and each of them as a value (cassettes/FORMAT.md).

What cannot be read is refused with file, line, what was found and what was expected; nothing is skipped silently. It
opens no file; `tape` writes the same lines.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from mockllm.core.errors import CassetteError
from mockllm.core.exchange import Exchange, Note, Request
from mockllm.core.fields import convert, decode_json, flag, kind, plain_text, shown, text_of
from mockllm.core.http1 import Framing, Tracker, framing_of, scan
from mockllm.core.lines import Lines
from mockllm.core.response import End, Response, Segment
from mockllm.core.tape import VERSION

_HEADER = b'{"mockllm"'
_BOM = b"\xef\xbb\xbf"
HEADER_KEYS = ("mockllm", "early", "request")
"""The keys of a header line that mean something; it keeps the others."""
BODY_KEYS = ("json", "text", "base64", "body")
"""The keys of a request that hold its body, one of them at most."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"(\A|\n)([0-9A-Fa-f]+)([^\r\n]*\r?\n)\Z")
_LENGTH = re.compile(rb"(?i)(?<=\n)(content-length:[ \t]*)[0-9]+(?=[ \t]*\r?\n)")
_Text = str | dict[str, str]


class Asked(msgspec.Struct):
    """A request in a header line, without its body."""

    method: str
    target: _Text
    headers: list[tuple[str, _Text]] = []


@dataclass(frozen=True, slots=True)
class Place:
    """Where an exchange stands in a file: bytes start to stop; its first line (counted from 1); its header's line."""

    start: int
    stop: int
    line: int
    header_line: int


@dataclass(frozen=True, slots=True)
class Index:
    """The exchanges of a file. `torn` is the number of an unfinished last line that was dropped, or None."""

    places: tuple[Place, ...]
    torn: int | None


def index(data: bytes, source: str) -> Index:
    """Find the exchanges of a cassette by how its lines start. Raises CassetteError for a line that starts wrongly."""
    places: list[Place] = []
    position = start = len(_BOM) if data.startswith(_BOM) else 0
    number, first, header = 0, 1, 0
    torn = None
    joinable = data.count(_HEADER) > data.count(b"\n" + _HEADER) + data.startswith(
        _HEADER
    )  # else no line is looked into
    while position < len(data):
        number += 1
        stop = data.find(b"\n", position) + 1 or len(data)
        if stop == len(data) and _is_torn(data[position:]):
            data, torn = data[:position], number
            break
        kind = data[position : position + 1]
        if kind == b"{":
            if header:
                cut = _comments_before(data, position)
                places.append(Place(start, cut, first, header))
                start, first = cut, number - data.count(b"\n", cut, position)
            header = number
        elif kind not in b"#[\r\n" or (kind == b"[" and not header):
            raise CassetteError(source, number, _shown(data[position:stop]), _expected(header))
        joined = joinable and kind in b"[{" and data.find(_HEADER, position + 1, stop) > 0
        if joined and not _is_json(data[position:stop]):
            found = "a header line behind another line's text"
            raise CassetteError(source, number, found, "a line end between them (were files joined?)")
        position = stop
    if header:
        places.append(Place(start, len(data), first, header))
    return Index(tuple(places), torn)


def load(data: bytes, place: Place, source: str, *, strict: bool = True) -> Exchange:
    """Read the exchange at a place of a file's bytes. Raises CassetteError. `strict` False lets wrong lengths pass."""
    text = data[place.start : place.stop].removesuffix(b"\n").split(b"\n")
    above = place.header_line - place.line
    notes = [Note(-1, plain_text(source, number, line)) for number, line in enumerate(text[:above], place.line)]
    request, meta = header(text[above], place.header_line, source)
    lines = Lines(source, request.method, strict=strict)
    for number, line in enumerate(text[above + 1 :], place.header_line + 1):
        lines.feed(number, line)
    if lines.request_line is not None:
        request, rest = _late_body(request, *lines.request_line, source)
        if rest:
            lines.extras[-1] = rest
    elif request.early:
        request = replace(request, cut=True)
    response = replace(lines.response(), target=request.target)
    return Exchange(request, response, meta, lines.end_meta, lines.extras, (*notes, *lines.notes))


def request_at(data: bytes, place: Place, source: str) -> Request:
    """The request of the exchange at a place, without reading its response unless it is early. Raises CassetteError."""
    lines = data[place.start : place.stop].split(b"\n", place.header_line - place.line + 1)
    request, _ = header(lines[place.header_line - place.line], place.header_line, source)
    return load(data, place, source).request if request.early else request


def loads(data: bytes, source: str = "cassette") -> list[Exchange]:
    """Every exchange of a cassette. Raises CassetteError."""
    return [load(data, place, source) for place in index(data, source).places]


def header(line: bytes, number: int, source: str) -> tuple[Request, dict[str, Any]]:
    """A header line: the request (an early answer's without its body) and the other keys. Raises CassetteError."""
    fields = decode_json(source, number, line)
    _check_version(fields, source, number)
    asked = fields.get("request")
    if not isinstance(asked, dict):
        raise CassetteError(source, number, "a header line without a request", '"request":{"method":…,"target":…}')
    typed = convert(source, number, asked, Asked, "$.request")
    if not _TOKEN.fullmatch(typed.method):
        raise CassetteError(source, number, f"method {shown(typed.method)}", "a method such as POST")
    headers = tuple((name.encode(), text_of(source, number, value)) for name, value in typed.headers)
    early = flag(source, number, fields, "early")
    if early and any(key in asked for key in BODY_KEYS):
        raise CassetteError(source, number, "early, and a body", 'the body in a line [0,"request",{…}] before the end')
    body = _body(asked, source, number)
    meta = {key: value for key, value in fields.items() if key not in HEADER_KEYS}
    rest = {key: value for key, value in asked.items() if key not in (*Asked.__struct_fields__, *BODY_KEYS)}
    if rest:
        meta["request"] = rest
    return Request(typed.method, text_of(source, number, typed.target), headers, body, early), meta


def repair(exchange: Exchange) -> Exchange:
    """The exchange with its Content-Length and chunk sizes as its data lines have it, where they contradict them.

    What cannot be told is left as it is: a head or a chunk in several lines, several lengths in one header.
    """
    response = exchange.response
    found = scan(response)
    segments: tuple[Segment, ...] = response.segments
    if found.head is not None and found.framing is Framing.LENGTH:
        length = _length_of_data(response)
        too_short = response.end is End.COMPLETE and not found.whole
        if too_short or length > framing_of(found.head, response.method)[1]:
            segments = tuple(_with_length(response, length))
    elif found.framing is Framing.CHUNKED:
        before = (None, *segments)
        segments = tuple(_sized(segment, last) for segment, last in zip(segments, before, strict=False))
    return replace(exchange, response=replace(response, segments=segments))


def _length_of_data(response: Response) -> int:
    """How long the body is, up to the last byte that a line calls data."""
    tracker = Tracker(response.method)
    length = total = 0
    for segment in response.segments:
        if tracker.head is not None:
            total += len(segment.wire)
        if segment.data:
            length = total
        tracker.feed(segment.at, segment.wire)
    return length


def _with_length(response: Response, length: int) -> Iterator[Segment]:
    tracker = Tracker(response.method)
    by = b"\\g<1>%d" % length
    for segment in response.segments:
        yield segment if tracker.head is not None else replace(segment, before=_LENGTH.sub(by, segment.before))
        tracker.feed(segment.at, segment.wire)


def _sized(segment: Segment, last: Segment | None) -> Segment:
    """A chunk that is whole in its line, under the size that it has."""
    size = _SIZE.search(segment.before)
    whole = segment.data and segment.after.endswith(b"\n")
    if size is None or not whole or int(size[2], 16) == len(segment.data):
        return segment
    if not size[1] and last is not None and not last.wire.endswith(b"\n"):
        return segment  # the size began in the line before
    before = segment.before[: size.start(2)] + b"%x" % len(segment.data) + size[3]
    return replace(segment, before=before)


def _check_version(fields: dict[str, Any], source: str, number: int) -> None:
    version = fields.get("mockllm")
    if version is None:
        raise CassetteError(source, number, 'a header line without "mockllm"', f'"mockllm":{VERSION} first')
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise CassetteError(source, number, f'"mockllm":{shown(version)}', f'"mockllm":{VERSION}')
    if version > VERSION:
        expected = f"version {VERSION}: a newer mockllm wrote this file, upgrade with pip install -U mockllm-cassette"
        raise CassetteError(source, number, f"format version {version}", expected)


def _late_body(request: Request, number: int, fields: dict[str, Any], source: str) -> tuple[Request, dict[str, Any]]:
    """The request of an early answer with the body of its own line, and the unknown keys of that line."""
    if not request.early:
        raise CassetteError(source, number, "a request line", 'one only where the header line says "early":true')
    body = _body(fields, source, number)
    cut = flag(source, number, fields, "cut")
    rest = {key: value for key, value in fields.items() if key not in (*BODY_KEYS, "cut")}
    return replace(request, body=body, cut=cut), rest


def _body(fields: dict[str, Any], source: str, number: int) -> bytes | None:
    kept = [key for key in BODY_KEYS if key in fields]
    if len(kept) > 1:
        raise CassetteError(source, number, f"{' and '.join(kept)} in one request", "one of them")
    match [(key, fields[key]) for key in kept]:
        case []:
            return b""
        case [("json", value)]:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        case [("text", str() as text)]:
            return text.encode()
        case [("base64", str() as text)]:
            return text_of(source, number, {"base64": text})
        case [("body", "any")]:
            return None
    if kept == ["body"]:
        raise CassetteError(source, number, f"body {shown(fields['body'])}", '"any", or json, text or base64')
    raise CassetteError(source, number, f"{kept[0]} that is {kind(fields[kept[0]])}", "a string")


def _is_torn(line: bytes) -> bool:
    """Is this last line of a file the unfinished one of a recorder that was killed? It has no end and is no JSON."""
    return line[:1] in (b"[", b"{") and not line.endswith(b"\n") and not _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _comments_before(data: bytes, position: int) -> int:
    """Where the comments begin that stand right before the second or later header at `position`: they belong to it."""
    while True:
        previous = data.rfind(b"\n", 0, position - 1) + 1
        if data[previous : previous + 1] not in (b"#", b"\r", b"\n"):
            return position
        position = previous


def _shown(line: bytes) -> str:
    return f"a line that begins {line.rstrip().decode(errors='replace')[:40]!r}"


def _expected(header: int) -> str:
    return 'a line that begins with "[", "{" or "#"' if header else 'a header line {"mockllm":1,…} first'
