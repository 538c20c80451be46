"""The lines that follow a header line, read back into a response (cassettes/FORMAT.md): the mirror of `tape`.

Every line is rendered to the bytes it stands for; whether they are what the line says they are is for `agreement`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from mockllm.core.agreement import Agreement
from mockllm.core.errors import CassetteError
from mockllm.core.exchange import Note
from mockllm.core.fields import base64_of, convert, decode_json, kind, plain_text, shown, text_of
from mockllm.core.http1 import Framing, Head
from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.tape import default_framing

MAX_INTERVAL_MS = 366 * 24 * 3600 * 1000
"""An interval longer than a year is a mistake."""
FRAMING_KEYS = ("before", "after")
"""The options of a data line that mean something."""
END_KEYS = ("then", "then_ms")
"""The options of an end line that mean something."""
_USUAL = 'a line such as [2.5,"data","…"]'


class HeadFields(msgspec.Struct):
    """The value of a `head` line."""

    status: int
    version: str = "1.1"
    reason: str | None = None
    headers: list[tuple[str, str | dict[str, str]]] = []


class Lines:
    """Reads the lines of one answer in order. `strict` False lets a wrong length pass, for repair.

    After the last line: `response()`, and beside it `notes`, `extras`, `end_meta` and, if early, `request_line`: its
    number and its value.
    """

    def __init__(self, source: str, method: str, *, strict: bool = True) -> None:
        self.notes: list[Note] = []
        self.extras: dict[int, Mapping[str, Any]] = {}
        self.end_meta: dict[str, Any] = {}
        self.request_line: tuple[int, dict[str, Any]] | None = None
        self._source, self._method = source, method
        self._number = 0
        self._at = 0
        self._segments: list[Segment] = []
        self._agreement = Agreement(source, method, strict=strict)
        self._end: End | None = None
        self._then, self._then_at = Then.OPEN, 0

    def feed(self, number: int, line: bytes) -> None:
        """Take line `number`. Raises CassetteError."""
        self._number = number
        if not line.strip() or line.startswith(b"#"):
            self._note(line)
            return
        if self._end is not None:
            self._refuse("a line after the end line", "a header line, a comment or the end of the file")
        interval, code, value, options = self._split(decode_json(self._source, number, line))
        self._at += interval
        if code in CODES:
            CODES[code](self, value, options)
        else:
            self._note(line, interval)

    def response(self) -> Response:
        """The response of all lines; without an end line (the recorder was killed) it ends as `client`, by `kill`."""
        if self._end is None:
            self._end, self.end_meta = End.CLIENT, {"by": "kill"}
        return Response(tuple(self._segments), self._end, self._at, self._then, self._then_at, self._method)

    def _refuse(self, found: str, expected: str) -> NoReturn:
        raise CassetteError(self._source, self._number, found, expected)

    def _note(self, line: bytes, interval: int = 0) -> None:
        place = len(self._segments) + (self.request_line is not None) + (self._end is not None)
        self.notes.append(Note(place, plain_text(self._source, self._number, line), interval))

    def _split(self, value: Any) -> tuple[int, str, Any, dict[str, Any]]:
        match value:
            case [int() | float() as interval, str() as code, *rest] if not isinstance(interval, bool):
                return self._microseconds(interval, "an interval"), code, *self._content(code, rest)
            case _:
                self._refuse(f"a line that begins {shown(value)}", _USUAL)

    def _content(self, code: str, rest: list[Any]) -> tuple[Any, dict[str, Any]]:
        if code not in CODES:
            return None, {}
        match rest:
            case [content]:
                return content, {}
            case [content, dict() as options]:
                return content, options
            case _:
                after = ", ".join(kind(value) for value in rest) or "nothing"
                self._refuse(f"{after} after {shown(code)}", f"one value, then options in {{}} if any: {_USUAL}")

    def _microseconds(self, ms: float, what: str) -> int:
        if not 0 <= ms <= MAX_INTERVAL_MS:
            self._refuse(f"{what} of {ms} ms", "0 or more, a year at most")
        if round(ms, 3) != ms:
            self._refuse(f"{what} of {ms} ms", "three decimals at most (microseconds)")
        return round(ms * 1000)

    def _append(self, segment: Segment, extras: Mapping[str, Any]) -> None:
        if extras:
            self.extras[len(self._segments)] = extras
        self._segments.append(segment)

    def _string(self, value: Any, what: str) -> bytes:
        if not isinstance(value, str):
            self._refuse(f"{what} that is {kind(value)}", "a string")
        return value.encode()

    def _base64(self, value: Any, what: str) -> bytes:
        return base64_of(self._source, self._number, self._string(value, what).decode(), what)

    def _on_head(self, value: Any, options: dict[str, Any]) -> None:
        fields = convert(self._source, self._number, value, HeadFields, "$[2]")
        if not 100 <= fields.status <= 999:
            self._refuse(f"status {fields.status}", "a status of three digits")
        if not re.fullmatch(r"[0-9]\.[0-9]", fields.version):
            self._refuse(f"version {shown(fields.version)}", 'a version such as "1.1"')
        reason = None if fields.reason is None else fields.reason.encode()
        headers = tuple(
            (self._name(name), text_of(self._source, self._number, value)) for name, value in fields.headers
        )
        for part in (reason or b"", *(part for pair in headers for part in pair)):
            if b"\r" in part or b"\n" in part:
                self._refuse("a line break inside a head", 'one header a pair; other bytes go into a "wire" line')
        head = Head(fields.version, fields.status, reason, headers)
        segment = Segment(self._at, before=head.render())
        self._agreement.head(self._number, head, segment)
        known = HeadFields.__struct_fields__
        self._append(segment, {key: kept for key, kept in value.items() if key not in known} | options)

    def _name(self, name: str) -> bytes:
        if not name or name[0] in " \t" or ":" in name:
            self._refuse(f"a header named {shown(name)}", "a name without a colon, not empty, no space in front")
        return name.encode()

    def _on_data(self, value: Any, options: dict[str, Any]) -> None:
        self._body(self._string(value, "data"), options)

    def _on_data64(self, value: Any, options: dict[str, Any]) -> None:
        self._body(self._base64(value, "data64"), options)

    def _body(self, data: bytes, options: dict[str, Any]) -> None:
        chunked = self._agreement.tracker.framing is Framing.CHUNKED
        if chunked and not data and "before" not in options:
            self._refuse("empty data in a chunked body", 'some data (a "wire" line holds the last chunk)')
        usual = dict(zip(FRAMING_KEYS, default_framing(data, chunked), strict=True))
        before, after = (self._string(options[key], key) if key in options else usual[key] for key in FRAMING_KEYS)
        segment = Segment(self._at, data, before, after)
        self._agreement.data(self._number, segment)
        self._append(segment, {key: kept for key, kept in options.items() if key not in FRAMING_KEYS})

    def _on_wire(self, value: Any, options: dict[str, Any]) -> None:
        self._wire(self._string(value, "wire"), options)

    def _on_wire64(self, value: Any, options: dict[str, Any]) -> None:
        self._wire(self._base64(value, "wire64"), options)

    def _wire(self, data: bytes, options: dict[str, Any]) -> None:
        segment = Segment(self._at, before=data)
        self._agreement.wire(self._number, segment)
        self._append(segment, options)

    def _on_request(self, value: Any, options: dict[str, Any]) -> None:
        if not isinstance(value, dict):
            self._refuse(f"a request that is {kind(value)}", "an object with json, text or base64")
        if self.request_line is not None:
            self._refuse("a second request line", "one, before the end line")
        self.request_line = self._number, value | options

    def _on_end(self, value: Any, options: dict[str, Any]) -> None:
        try:
            end = End(value)
        except ValueError:
            self._refuse(f"end {shown(value)}", f"one of {', '.join(end.value for end in End)}")
        self.end_meta = {key: kept for key, kept in options.items() if key not in END_KEYS}
        then, wait = self._what_then(options)
        if end is End.COMPLETE:
            self._agreement.complete(self._number)
            if self._agreement.tracker.framing is Framing.CLOSE:
                if "then" in options and (then, wait) != (Then.FIN, 0):
                    self._refuse("another then where the close ends the body", '"then":"fin","then_ms":0, or neither')
                then, wait = Then.FIN, 0
        elif len(self.end_meta) < len(options):
            self._refuse(f"then beside {shown(value)}", 'then only beside "complete"')
        self._end, self._then = end, then
        self._then_at = 0 if then is Then.OPEN else self._at + wait

    def _what_then(self, options: dict[str, Any]) -> tuple[Then, int]:
        try:
            then = Then(options.get("then", "open"))
        except ValueError:
            self._refuse(f"then {shown(options['then'])}", f"one of {', '.join(then.value for then in Then)}")
        then_ms = options.get("then_ms", 0)
        if isinstance(then_ms, bool) or not isinstance(then_ms, int | float):
            self._refuse(f"then_ms that is {kind(then_ms)}", "a number of milliseconds")
        return then, self._microseconds(then_ms, "then_ms")


CODES: Mapping[str, Callable[[Lines, Any, dict[str, Any]], None]] = {
    "head": Lines._on_head,
    "data": Lines._on_data,
    "data64": Lines._on_data64,
    "wire": Lines._on_wire,
    "wire64": Lines._on_wire64,
    "request": Lines._on_request,
    "end": Lines._on_end,
}
"""What each code of a line means. A line with another code is kept as it is."""
