"""A raw response as `curl -isN` prints it, with or without its head, or several of them after each other.

Such a capture has no request, no times and, but for --raw, no chunks; where its stream ends is guessed from what the
stream says.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.events import reader_for
from mockllm.core.exchange import Exchange, Request
from mockllm.core.http1 import Framing
from mockllm.core.importers.base import (
    Ending,
    Given,
    Imported,
    exchange_of,
    refuse_given,
    request_from,
    request_note,
    segments_of,
)
from mockllm.core.importers.bodies import cut_in_events, fitting, how_it_ends, is_json, says_whole
from mockllm.core.importers.heads import (
    LAST_CHUNK,
    STATUS_LINE,
    Shown,
    chunk,
    head_end,
    is_framed,
    next_head,
    shown_head,
)
from mockllm.core.look import says_close, sniffed
from mockllm.core.response import End, Then
from mockllm.core.timing import retimed

KIND = "a raw response"
NDJSON, JSON = b"application/x-ndjson", b"application/json"

_TYPE = re.compile(rb"[!-~]+/[!-~]+(?:[ \t]*;[ -~]*)?")
_BEHIND_PROXY = re.compile(rb"(?i)connection established")


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of a capture. `interim` are the heads (103) before its own that belong to it."""

    shown: Shown
    body: bytes
    interim: bytes = b""


def read_raw(data: bytes, source: str, given: Given) -> Imported:
    """Read a capture. Raises MockllmError where it is neither an answer nor a stream, UsageError for bad options."""
    request = request_from(given)
    notes: list[str] = [request_note(request)] if given.method is None or given.path is None else []
    if STATUS_LINE.match(data):
        refuse_given(given, "the head", "content_type")
        answers = list(_answers(data, source, notes))
    else:
        answers = [_bare(data, source, given, notes)]
    if not answers:
        raise MockllmError(f"{source}: holds heads of curl's own steps only, and no answer")
    exchanges = tuple(_exchange(answer, request, given, source, notes) for answer in answers)
    return Imported(KIND, exchanges, tuple(dict.fromkeys(notes)))


def _answers(data: bytes, source: str, notes: list[str]) -> Iterator[_Answer]:
    """Every answer in a capture; heads that stand for steps of curl's own are left out, and said."""
    position, interim = 0, b""
    while position < len(data):
        stop = head_end(data, position)
        shown = shown_head(data[position:stop])
        if shown is None:
            raise MockllmError(f"{source}: the head at byte {position} is cut off: no blank line ends it")
        after = data.startswith(b"HTTP/", stop)
        if 100 <= shown.head.status < 200 and shown.head.status != 101:
            interim += b"" if shown.head.status == 100 else shown.raw
            if shown.head.status == 100:
                notes.append("100 Continue left out: it answers curl's own Expect header")
        elif after and (why := _why_left_out(shown)):
            notes.append(f"{shown.head.status} left out: {why}")
        else:
            position = stop
            stop = next_head(data, position)
            yield _Answer(shown, data[position:stop], interim)
            interim = b""
        position = stop


def _why_left_out(shown: Shown) -> str:
    """Why a head that another one follows is no answer of its own, "" if it is."""
    if 300 <= shown.head.status < 400 and shown.head.values(b"location"):
        return "curl followed the redirect and did not keep its body"
    if shown.head.status in (401, 407):
        return "curl logged in and did not keep its body"
    if shown.head.status == 200 and _BEHIND_PROXY.search(shown.head.reason or b""):
        return "it is the proxy's answer to CONNECT"
    return ""


def _bare(body: bytes, source: str, given: Given, notes: list[str]) -> _Answer:
    """An answer around a body that came without its head."""
    kind = _seen_type(body) if given.content_type is None else given.content_type.encode()
    if kind is None:
        what = "neither a response with its head, nor server-sent events, JSON lines or JSON"
        raise MockllmError(f"{source}: {what}: capture with curl -isN, or say what it is with --content-type")
    whole = reader_for(kind) is None and says_whole(body, kind, b"")
    framing = b"Content-Length: %d" % len(body) if whole else b"Transfer-Encoding: chunked"
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (kind, framing)
    shown = shown_head(raw)
    if shown is None or not _TYPE.fullmatch(kind):
        raise UsageError(f"--content-type {given.content_type!r} is none, such as text/event-stream")
    notes.append(f"no head: written as a 200 of {kind.decode()}, {'with its length' if whole else 'in chunks'}")
    return _Answer(shown, body)


def _seen_type(body: bytes) -> bytes | None:
    if sniffed(body) is not None:
        return sniffed(body)
    if body.lstrip()[:1] not in (b"{", b"["):
        return None
    if is_json(body):
        return JSON
    return NDJSON if is_json(body.lstrip().partition(b"\n")[0]) else JSON


def _exchange(answer: _Answer, request: Request, given: Given, source: str, notes: list[str]) -> Exchange:
    method = request.method
    shown, body = fitting(answer.shown, answer.body, method, notes)
    unchunked = shown.framing(method) is Framing.CHUNKED and not is_framed(body)
    pieces = [answer.interim + shown.raw, *_pieces(shown, body, method)]
    end, why = (given.end, "") if given.end is not None else how_it_ends(shown, body, method)
    if unchunked:
        notes.append("curl took the chunks away: written with one for each event")
        if end is End.COMPLETE:
            pieces[-1] += LAST_CHUNK
    notes += [why] if why else []
    step = max(given.gap_us or 0, 1)
    segments, tracker = segments_of([(index * step, piece) for index, piece in enumerate(pieces)], method)
    if end is End.COMPLETE and not tracker.eof():
        raise UsageError(f"{source}: --end complete makes no sense: the answer is shorter than its head promises")
    closes = says_close(shown.head) or tracker.framing is Framing.CLOSE
    then = Then.FIN if end is End.COMPLETE and closes else Then.OPEN
    exchange = exchange_of(request, segments, Ending(end, then=then), given.framing, source)
    if given.gap_us:
        return exchange
    notes.append("the times are not known: everything comes at once (--gap 20ms puts so much before each event)")
    return replace(exchange, response=retimed(exchange.response, speed=0))


def _pieces(shown: Shown, body: bytes, method: str) -> list[bytes]:
    """The body as it stood on the wire, cut where events, or its chunks, end."""
    if shown.framing(method) is not Framing.CHUNKED:
        return cut_in_events(shown, body)
    if not is_framed(body):
        return [chunk(piece) for piece in cut_in_events(shown, body)]
    segments, _ = segments_of([(0, shown.raw), (1, body)], method)
    return [segment.wire for segment in segments if segment.at]
