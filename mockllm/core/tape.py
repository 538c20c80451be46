"""Writes an exchange as the lines of a cassette, online: every line is final when it is written (cassettes/FORMAT.md).

A line is structured only where it renders to exactly the bytes that came; all other bytes are written verbatim. It
knows nothing of files; reading lines back is `cassette`'s work.
"""

import base64
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from mockllm.core.exchange import Exchange, Note, Request
from mockllm.core.http1 import Framing, Head, Tracker
from mockllm.core.jsonvalue import parse_json
from mockllm.core.response import End, Segment, Then

VERSION = 1
# Line ends to some readers of text (str.splitlines, editors), though not to JSON: escaped, so that a line stays one.
_ESCAPED = {character.encode(): b"\\u%04x" % ord(character) for character in "\u2028\u2029\u0085\u007f"}


class Tape:
    """The lines of one exchange, in the order they are asked for. Times are µs and absolute, as in Response.

    `tracker` follows the answer; `at` is the time of the last line.
    """

    def __init__(self, method: str) -> None:
        self.tracker = Tracker(method)
        self.at = 0
        self._headed = False

    def begin(self, request: Request, meta: Mapping[str, Any]) -> bytes:
        """The header line. `meta` holds its other keys; those of the request inside are under `request`."""
        line: dict[str, Any] = {"mockllm": VERSION, **meta}
        if request.early:
            line["early"] = True
        asked: dict[str, Any] = {"method": request.method, "target": text_or_base64(request.target)}
        asked["headers"] = [[name.decode(), text_or_base64(value)] for name, value in request.headers]
        kept = {} if request.early else body_fields(request.body)
        line["request"] = asked | kept | dict(meta.get("request", {}))
        return encode_line(line)

    def read(self, at: int, data: bytes) -> bytes:
        """The lines of one read from the server, or of a part of one, given at the same time."""
        return self.lines(self.tracker.feed(at, data))

    def lines(self, segments: Iterable[Segment]) -> bytes:
        """The lines of what the tracker made of a read; times never go back."""
        chunked = self.tracker.framing is Framing.CHUNKED
        return b"".join([self._line(segment, chunked, {}) for segment in segments])

    def segment(self, segment: Segment, extras: Mapping[str, Any]) -> bytes:
        """The line of one segment, however it was cut, with unknown keys that its line had."""
        self.tracker.feed(segment.at, segment.wire)
        return self._line(segment, self.tracker.framing is Framing.CHUNKED, extras)

    def request_body(self, request: Request, extras: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """The body of an early answer's request, before the end line, with unknown keys that its line had."""
        cut = {"cut": True} if request.cut else {}
        return encode_line([0, "request", body_fields(request.body) | cut | dict(extras)])

    def note(self, note: Note) -> bytes:
        """A line kept from the cassette it was read from."""
        self.at += note.interval
        return note.text.encode() + b"\n"

    def end(self, end: End, at: int, then: Then, then_at: int, meta: Mapping[str, Any]) -> bytes:
        """The end line. `meta` holds its other keys (`by`)."""
        at = max(at, self.at)
        if end is End.COMPLETE and self.tracker.framing is Framing.CLOSE:
            then, then_at = Then.FIN, at  # it was the close that ended it
        options: dict[str, Any] = {}
        if end is End.COMPLETE and then is not Then.OPEN:
            options = {"then": then.value, "then_ms": _ms(max(0, then_at - at))}
        options |= meta
        line = [self._interval(at), "end", end.value]
        return encode_line([*line, options] if options else line)

    def _interval(self, at: int) -> msgspec.Raw:
        interval = max(0, at - self.at)  # less only where a kept note's own interval comes between
        self.at += interval
        return _ms(interval)

    def _line(self, segment: Segment, chunked: bool, extras: Mapping[str, Any]) -> bytes:
        interval = self._interval(segment.at)
        if segment.data or segment.after:
            code, value = _coded("data", segment.data)
            options = _framing_options(segment, chunked) | dict(extras)
            return encode_line([interval, code, value, options] if options else [interval, code, value])
        if not self._headed and segment == self.tracker.head_segment:
            self._headed = True
            head = head_fields(self.tracker.head, segment.before)
            if head is not None:
                return encode_line([interval, "head", head | dict(extras)])
        code, value = _coded("wire", segment.before)
        return encode_line([interval, code, value, extras] if extras else [interval, code, value])


def dump(exchange: Exchange) -> bytes:
    """The lines of a whole exchange, its notes and unknown keys at their places."""
    request, response = exchange.request, exchange.response
    tape = Tape(request.method)
    after = len(response.segments)

    def notes(index: int) -> bytes:
        return b"".join(tape.note(note) for note in exchange.notes if note.index == index)

    parts = [notes(-1), tape.begin(request, exchange.meta)]
    for index, segment in enumerate(response.segments):
        parts += [notes(index), tape.segment(segment, exchange.extras.get(index, {}))]
    if request.early:
        parts += [notes(after), tape.request_body(request, exchange.extras.get(-1, {}))]
        after += 1
    parts.append(notes(after))
    parts.append(tape.end(response.end, response.end_at, response.then, response.then_at, exchange.end_meta))
    parts.append(notes(after + 1))
    return b"".join(parts)


def default_framing(data: bytes, chunked: bool) -> tuple[bytes, bytes]:
    """What stands before and after the data of a line that does not say so: a chunk's size and CRLF, or nothing."""
    return (b"%x\r\n" % len(data), b"\r\n") if chunked else (b"", b"")


def head_fields(head: Head | None, raw: bytes) -> dict[str, Any] | None:
    """A head as the value of a `head` line; None where that would not render to exactly these bytes."""
    if head is None or head.render() != raw or not _plain(head):
        return None
    fields: dict[str, Any] = {"version": head.version, "status": head.status}
    if head.reason is not None:
        fields["reason"] = head.reason.decode()
    return fields | {"headers": [[name.decode(), text_or_base64(value)] for name, value in head.headers]}


def _plain(head: Head) -> bool:
    """Could a person have written this head? Names and reason are text, and nothing in it looks like a line's end."""
    parts = [head.reason or b"", *(part for pair in head.headers for part in pair)]
    names = [head.reason or b"", *(name for name, _ in head.headers)]
    return not any(b"\r" in part for part in parts) and all(_text(name) is not None for name in names)


def body_fields(body: bytes | None) -> dict[str, Any]:
    """A request body under the one key that keeps it: json, text, base64, or body:any; no key where it is empty."""
    if body is None:
        return {"body": "any"}
    if not body:
        return {}
    try:
        return {"json": parse_json(body)}
    except ValueError:
        text = _text(body)
        return {"base64": base64.b64encode(body).decode()} if text is None else {"text": text}


def text_or_base64(value: bytes) -> str | dict[str, str]:
    """A string where the bytes are UTF-8, else {"base64": …}."""
    text = _text(value)
    return {"base64": base64.b64encode(value).decode()} if text is None else text


def encode_line(value: Any) -> bytes:
    """One JSON value as a line that every reader of lines sees as one."""
    line = msgspec.json.encode(value)
    for raw, escaped in _ESCAPED.items():
        if raw in line:
            line = line.replace(raw, escaped)
    return line + b"\n"


def _coded(code: str, data: bytes) -> tuple[str, str]:
    text = _text(data)
    return (code + "64", base64.b64encode(data).decode()) if text is None else (code, text)


def _framing_options(segment: Segment, chunked: bool) -> dict[str, Any]:
    if segment.data and (segment.before, segment.after) == default_framing(segment.data, chunked):
        return {}
    return {"before": segment.before.decode(), "after": segment.after.decode()}


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _ms(microseconds: int) -> msgspec.Raw:
    """µs as a JSON number of ms with no more decimals than it needs."""
    whole, rest = divmod(microseconds, 1000)
    return msgspec.Raw((f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)).encode())
