"""Faults that put something else in the place of the answer, or change what stands around its body.

What takes the answer's place comes when the recording's first byte came, and has its HTTP version.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import ClassVar, Literal

from mockllm.core.dialects.errors import status_error, usual_code
from mockllm.core.exchange import Headers
from mockllm.core.faults.base import Fault, Meaningless, Micros, key
from mockllm.core.faults.coding import compressed
from mockllm.core.faults.head import change_head, with_header
from mockllm.core.faults.view import view
from mockllm.core.http1 import Head, scan
from mockllm.core.response import End, Response, Segment, Then

_FAMILY = "Instead of the stream"
Style = Literal["openai", "responses", "anthropic", "ollama", "vllm", "groq", "llama", "mlx", "gemini", "openrouter"]

_REASONS = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""As RFC 9110 has them: Python's own words change with its version."""
_REASONS |= {499: "Client Closed Request", 529: "Overloaded"}

_NGINX_REASONS = {413: "Request Entity Too Large", 503: "Service Temporarily Unavailable", 504: "Gateway Time-out"}
_NGINX_PAGE = (
    "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n"
    "<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)

_OF_THE_STREAM = frozenset(
    (
        *(b"content-length", b"content-encoding", b"content-language", b"content-range", b"transfer-encoding"),
        *(b"trailer", b"cache-control", b"x-accel-buffering", b"etag", b"last-modified", b"retry-after"),
    )
)
"""Headers that belong to the answer that is not sent."""
_FRAMING = (b"content-length", b"transfer-encoding")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_LINE = re.compile(r"[\r\n\0]")


@dataclass(frozen=True, slots=True)
class Status:
    """An error status and the body that goes with it, as that kind of server sends it.

    The recording's headers stay but for those of the stream. Without style= it is the recording's own family.
    """

    name: ClassVar[str] = "status"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "status:code=429,retry-after=1"

    code: int = key("the status, 200 to 599")
    retry_after: Micros | None = key("the time in a Retry-After header, in whole seconds", None, unit="s")
    style: Style | None = key("whose error it is", None)

    def __post_init__(self) -> None:
        _check_code(self.code, 200)
        if self.retry_after is not None and self.retry_after % 1_000_000:
            raise ValueError("retry-after takes whole seconds")

    def __call__(self, response: Response) -> Response:
        style = self.style or _family(response)
        after = [] if self.retry_after is None else [(b"Retry-After", b"%d" % (self.retry_after // 1_000_000))]
        return _error_answer(response, self.code, style, self.code, after)


@dataclass(frozen=True, slots=True)
class Html:
    """A proxy's error page instead of the answer: nginx, with its own head."""

    name: ClassVar[str] = "html"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "html:code=502"

    code: int = key("the status, 300 to 599", 502)

    def __post_init__(self) -> None:
        _check_code(self.code, 300)

    def __call__(self, response: Response) -> Response:
        reason = _NGINX_REASONS.get(self.code, _reason(self.code))
        page = _NGINX_PAGE.format(f"{self.code} {reason}").encode()
        recorded = scan(response).head
        dates = [pair for pair in recorded.headers if pair[0].lower() == b"date"] if recorded else []
        headers = [(b"Server", b"nginx"), *dates, (b"Content-Type", b"text/html")]
        headers += [(b"Content-Length", b"%d" % len(page)), (b"Connection", b"keep-alive")]
        return _answer(response, Head("1.1", self.code, reason.encode(), tuple(headers)), page)


@dataclass(frozen=True, slots=True)
class Json200:
    """An error object as the whole answer, under the status 200 and as JSON, to a request for a stream too."""

    name: ClassVar[str] = "json200"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "json200"

    style: Style | None = key("whose error it is; without it the recording's own family", None)
    code: int | None = key("the status that it speaks of; without it the one that is usual there", None)

    def __post_init__(self) -> None:
        if self.code is not None:
            _check_code(self.code, 400)

    def __call__(self, response: Response) -> Response:
        style = self.style or _family(response)
        return _error_answer(response, 200, style, self.code or usual_code(style), [])


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server closes the connection instead of answering: not a byte, then FIN."""

    name: ClassVar[str] = "refuse"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "refuse"

    def __call__(self, response: Response) -> Response:
        return _nothing(response, End.FIN)


@dataclass(frozen=True, slots=True)
class Reset:
    """The server resets the connection instead of answering: not a byte, then RST."""

    name: ClassVar[str] = "reset"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "reset"

    def __call__(self, response: Response) -> Response:
        return _nothing(response, End.RST)


@dataclass(frozen=True, slots=True)
class Header:
    """Another value for a header, or a header left out.

    name= and value= replace all headers of that name by one, at the place of the first; where there is none it is put
    at the end. drop= takes out all of that name. Names do not count case. Headers of framing are refused.
    """

    name: ClassVar[str] = "header"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "header:name=Content-Type,value=text/plain"

    # the class attribute `name` is the fault's own
    name_: str | None = key("the header to set", None)
    value: str | None = key("its value, which may be empty", None)
    drop: str | None = key("the header to leave out", None)

    def __post_init__(self) -> None:
        if (self.name_ is None) == (self.drop is None) or (self.name_ is None) != (self.value is None):
            raise ValueError("needs name= and value=, or drop= alone")
        wanted = self.drop or self.name_ or ""
        if not _TOKEN.fullmatch(wanted):
            raise ValueError(f"{wanted!r} is no header's name")
        if _NO_LINE.search(self.value or ""):
            raise ValueError("a value has no CR, LF or NUL")
        if wanted.lower().encode() in _FRAMING:
            raise ValueError(f"{wanted} frames the body: use framing")

    def __call__(self, response: Response) -> Response:
        wanted = (self.drop or self.name_ or "").encode()
        value = None if self.value is None else self.value.encode()
        return change_head(response, lambda lines: with_header(lines, wanted, value))


@dataclass(frozen=True, slots=True)
class Gzip:
    """The body compressed with gzip, flushed after each piece so that a client can read all that has come.

    Without meaning for a body that is compressed already. A body that was cut short is a gzip stream cut short.
    """

    name: ClassVar[str] = "gzip"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "gzip"

    def __call__(self, response: Response) -> Response:
        return compressed(response)


def _check_code(code: int, least: int) -> None:
    if not least <= code <= 599:
        raise ValueError(f"code is {least} to 599")


def _reason(code: int) -> str:
    known = {status.value: status.phrase for status in HTTPStatus} | _REASONS
    return known.get(code, "")


def _family(response: Response) -> str:
    """Whose dialect the recording is, also where it has no head or no body."""
    try:
        return view(response).family
    except Meaningless:
        return "openai"


def _first_at(response: Response) -> int:
    """When the first byte came (µs); where there is none, when the answer ended."""
    return response.segments[0].at if response.segments else response.end_at


def _nothing(response: Response, end: End) -> Response:
    at = _first_at(response)
    return replace(response, segments=(), end=end, end_at=at, then=Then.OPEN, then_at=0)


def _error_answer(
    response: Response, status: int, style: str, code: int, more: Sequence[tuple[bytes, bytes]]
) -> Response:
    content_type, body = status_error(style, code)
    recorded = scan(response).head or Head("1.1", status, b"", ())
    kept = [pair for pair in recorded.headers if pair[0].strip().lower() not in _OF_THE_STREAM]
    place = next((i for i, pair in enumerate(kept) if pair[0].lower() == b"content-type"), len(kept))
    name = kept[place][0] if place < len(kept) else b"Content-Type"
    own: Headers = ((name, content_type),)
    if style != "mlx":  # which sends errors without a length and closes
        own += ((b"Content-Length", b"%d" % len(body)),)
    headers = (*kept[:place], *own, *(pair for pair in kept[place:] if pair[0].lower() != b"content-type"), *more)
    return _answer(response, Head(recorded.version, status, _reason(status).encode(), headers), body)


def _answer(response: Response, head: Head, body: bytes) -> Response:
    """A whole answer in one write; the connection stays open where that is HTTP's way."""
    at = _first_at(response)
    if head.status in (204, 304):
        head = replace(head, headers=tuple(pair for pair in head.headers if pair[0].lower() != b"content-length"))
    if head.status in (204, 304) or response.method == "HEAD":
        body = b""
    segments = (Segment(at, before=head.render()), *((Segment(at, body),) if body else ()))
    counted = not body or head.values(b"content-length")
    closes = head.version == "1.0" or b"close" in head.values(b"connection") or not counted
    then, then_at = (Then.FIN, at) if closes else (Then.OPEN, 0)
    return replace(response, segments=segments, end=End.COMPLETE, end_at=at, then=then, then_at=then_at)


INSTEAD: tuple[type[Fault], ...] = (Status, Html, Json200, Refuse, Reset, Header, Gzip)
