"""What every importer takes and gives, and how the bytes that it found become an exchange.

An importer reads one kind of capture, as bytes. It must not know files, nor who asked.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from mockllm.core.errors import UsageError
from mockllm.core.exchange import Exchange, Request
from mockllm.core.faults.base import Fault, Meaningless
from mockllm.core.faults.segments import Framing, Http
from mockllm.core.http1 import Tracker
from mockllm.core.matching import ANY_TARGET
from mockllm.core.response import End, Response, Segment, Then

As = Literal["chunked", "length", "close", "http1.0"]
"""How an answer can be framed, whatever its capture says. `http1.0` also closes to end the body."""
AS: tuple[As, ...] = get_args(As)
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"/[^\s\x00-\x20\x7f]*")
META = {"origin": "imported"}

_RECIPES: dict[As, tuple[Fault, ...]] = {
    "chunked": (Http("1.1"), Framing("chunked")),
    "length": (Http("1.1"), Framing("length")),
    "close": (Http("1.1"), Framing("close")),
    "http1.0": (Http("1.0"), Framing("close")),
}


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says because the source cannot know it; None where nothing was said.

    `gap_us` lies before each event, or before each read where the source knows reads but no times. `framing` is the one
    thing that may also contradict a source.
    """

    method: str | None = None
    path: str | None = None
    gap_us: int | None = None
    content_type: str | None = None
    end: End | None = None
    framing: As | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """`kind` names the source; `notes` say, a line each, what it could not know and what was made of that."""

    kind: str
    exchanges: tuple[Exchange, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ended (see Response). `end_at` and `then_at` are raised to the last read where they lie before."""

    end: End
    end_at: int = 0
    then: Then = Then.OPEN
    then_at: int = 0


def request_from(given: Given) -> Request:
    """The request of a source that holds none: any body, and any target unless one is given.

    Raises UsageError where method or path are none.
    """
    method, path = given.method or "POST", given.path
    if not _METHOD.fullmatch(method):
        raise UsageError(f"--method {method!r} is none, such as POST")
    if path is not None and not _PATH.fullmatch(path):
        raise UsageError(f"--path {path!r} is none: it begins with / and holds no space")
    target = ANY_TARGET if path is None else path.encode(errors="surrogateescape")
    return Request(method, target, body=None)


def request_note(request: Request) -> str:
    """What to say of a request that was made by `request_from`."""
    target = "any path" if request.target == ANY_TARGET else request.target.decode(errors="replace")
    return f"the request is not known: it answers {request.method} {target} with any body (--method, --path)"


def refuse_given(given: Given, kind: str, *names: str) -> None:
    """Raises UsageError where one of these fields was given though a source of this kind knows it itself."""
    for name in names:
        if getattr(given, name) is not None:
            option = name.removesuffix("_us").replace("_", "-")
            raise UsageError(f"--{option} makes no sense here: {kind} tells that itself")


def segments_of(reads: list[tuple[int, bytes]], method: str) -> tuple[tuple[Segment, ...], Tracker]:
    """Reads (µs, bytes), cut as the recorder cuts them, and the tracker that followed them."""
    tracker = Tracker(method)
    return tuple(segment for at, data in reads for segment in tracker.feed(at, data)), tracker


def exchange_of(
    request: Request, segments: tuple[Segment, ...], ending: Ending, framing: As | None, source: str
) -> Exchange:
    """The exchange, framed as asked. Raises UsageError where it cannot be framed so."""
    last = segments[-1].at if segments else 0
    end_at = max(ending.end_at, last)
    then_at = max(ending.then_at, end_at)
    response = Response(segments, ending.end, end_at, ending.then, then_at, request.method, request.target)
    if framing is not None:
        response = _reframed(response, framing, source)
    return Exchange(request, response, META)


def _reframed(response: Response, framing: As, source: str) -> Response:
    try:
        for fault in _RECIPES[framing]:
            response = fault(response)
    except Meaningless as reason:
        raise UsageError(f"{source}: cannot be written --as {framing}: {reason}") from None
    return response
