"""What is odd about an answer as a message: cut off, surplus, odd chunks, promises that the server did not keep."""

import re
from collections.abc import Iterator

from mockllm.core.http1 import Framing
from mockllm.core.loglines import duration
from mockllm.core.look import Look, says_close
from mockllm.core.oddities.base import Check, counted
from mockllm.core.response import End, Then
from mockllm.core.shown import shown_bytes

_HOW = {
    End.FIN: "cut: the server closed early",
    End.RST: "cut: the server reset the connection",
    End.HANG: "cut: the server fell silent until somebody gave up",
    End.CLIENT: "the client left before the end",
}
_USUAL_SIZE = re.compile(rb"(?:\r\n)?(?:0|[1-9a-f][0-9a-f]*)\r\n")
_TRAILERS = re.compile(rb"(?:\A|\n)0+[ \t]*(?:;[^\n]*)?\r?\n([^\r\n]+)")


def cut(look: Look) -> Iterator[str]:
    """An answer that did not come to its end, and what was missing."""
    end = look.response.end
    if end is End.COMPLETE:
        return
    by = look.exchange.end_meta.get("by")
    how = {"kill": "the recorder was killed in mid-answer", "recorder": "the recorder was stopped in mid-answer"}.get(
        str(by), _HOW[end]
    )
    yield f"{how}{_missing(look)}"


def _missing(look: Look) -> str:
    found = look.found
    if found.head is None or found.bad or found.done or found.framing is Framing.CLOSE:
        return ""
    if found.framing is Framing.LENGTH:
        return f", {found.missing} bytes short of Content-Length"
    return f", {found.missing} bytes short of its chunk" if found.missing else ", no last chunk"


def broken(look: Look) -> Iterator[str]:
    """Framing that is not HTTP's any more."""
    if look.found.bad and look.found.head is not None:
        yield "the chunks break off: from somewhere on the bytes are no chunks"


def surplus(look: Look) -> Iterator[str]:
    """Bytes after the end."""
    extra = b"".join(segment.wire for segment in look.surplus)
    if extra:
        yield f"{counted(len(extra), 'byte')} after the end of the answer: {shown_bytes(extra)}"


def chunks(look: Look) -> Iterator[str]:
    """Sizes spelled unusually, extensions."""
    if look.found.framing is not Framing.CHUNKED:
        return
    unusual = [
        piece.before for piece in look.pieces if piece.before.strip() and not _USUAL_SIZE.fullmatch(piece.before)
    ]
    if unusual:
        yield f"{counted(len(unusual), 'chunk size')} with an extension or oddly spelled: {shown_bytes(unusual[0])}"


def trailers(look: Look) -> Iterator[str]:
    """Headers after the last chunk."""
    if look.found.framing is not Framing.CHUNKED or look.found.bad:
        return
    segments = look.found.segments[: len(look.found.segments) - len(look.surplus)]
    last = max((place for place, segment in enumerate(segments) if segment.data), default=look.found.head_segments - 1)
    found = _TRAILERS.search(b"".join(segment.before for segment in segments[last + 1 :]))
    if found:
        yield f"trailers after the last chunk: {shown_bytes(found[1])}"


def connection(look: Look) -> Iterator[str]:
    """A connection that was closed without notice, or reset, after a complete answer."""
    response, head = look.response, look.found.head
    if response.end is not End.COMPLETE or head is None or look.found.framing is Framing.CLOSE:
        return
    wait = response.then_at - response.end_at
    later = f"{duration(wait)} after" if wait else "right at"
    if response.then is Then.RST:
        yield f"the connection was reset {later} the end"
    elif response.then is Then.FIN and not says_close(head):
        yield f"the server closed the connection {later} the end without having said so"


def request(look: Look) -> Iterator[str]:
    """An answer that did not wait for its request."""
    if look.exchange.request.cut:
        yield "the request was never finished"
    elif look.exchange.request.early:
        yield "the answer began before the request was fully sent"


def empty(look: Look) -> Iterator[str]:
    """Success, and nothing in it."""
    head = look.found.head
    if head is not None and head.status == 200 and look.found.framing is not Framing.NONE and not look.pieces:
        yield "200, and not a byte of body"


CHECKS: tuple[Check, ...] = (request, cut, broken, surplus, chunks, trailers, connection, empty)
