"""A raw response as `curl -isN` prints it, with or without its head, or several of them after each other.

Such a capture has no request, no times and, but for --raw, no chunks; where its stream ends is guessed from what the
stream says.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from mockllm.core.decoding import decode
from mockllm.core.dialects import Meaning, meaning
from mockllm.core.errors import MockllmError
from mockllm.core.events import Kind, events, reader_for
from mockllm.core.exchange import Exchange, Request, header
from mockllm.core.http1 import Framing, Tracker
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
from mockllm.core.importers.heads import (
    LAST_CHUNK,
    STATUS_LINE,
    Shown,
    chunk,
    head_end,
    is_framed,
    next_head,
    shown_head,
    true_for,
)
from mockllm.core.jsonvalue import parse_json
from mockllm.core.response import End, Segment, Then
from mockllm.core.timing import retimed

KIND = "a raw response"
SSE, NDJSON, JSON = b"text/event-stream", b"application/x-ndjson", b"application/json"

_SSE_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_BEHIND_PROXY = re.compile(rb"(?i)connection established")
_SAID = Meaning.DONE | Meaning.FINISH | Meaning.ERROR


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
    kind = given.content_type.encode() if given.content_type is not None else _seen_type(body)
    if kind is None:
        what = "neither a response with its head, nor server-sent events, JSON lines or JSON"
        raise MockllmError(f"{source}: {what}: capture with curl -isN, or say what it is with --content-type")
    whole = reader_for(kind) is None and _says_whole(body, kind, b"")
    framing = b"Content-Length: %d" % len(body) if whole else b"Transfer-Encoding: chunked"
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (kind, framing)
    shown = shown_head(raw)
    if shown is None or shown.raw != raw:
        raise MockllmError(f"{source}: --content-type {given.content_type!r} is none")
    notes.append(f"no head: written as a 200 of {kind.decode(errors='replace')}, {'chunked' if not whole else 'whole'}")
    return _Answer(shown, body)


def _seen_type(body: bytes) -> bytes | None:
    if _SSE_START.match(body):
        return SSE
    if body.lstrip()[:1] not in (b"{", b"["):
        return None
    if _is_json(body):
        return JSON
    return NDJSON if _is_json(body.lstrip().partition(b"\n")[0]) else JSON


def _is_json(text: bytes) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _exchange(answer: _Answer, request: Request, given: Given, source: str, notes: list[str]) -> Exchange:
    method = request.method
    shown = true_for(answer.shown, method, answer.body)
    notes += shown.notes
    chunked = shown.framing(method) is Framing.CHUNKED
    framed = chunked and is_framed(answer.body)
    pieces = _wire_pieces(shown, answer.body, method, chunked=chunked, framed=framed)
    end, why = _end(shown, answer.body, method, framed=framed)
    if given.end is not None:
        end, why = given.end, ""
    if chunked and not framed:
        notes.append("curl took the chunks away: written with one for each event")
        if end is End.COMPLETE:
            pieces[-1] += LAST_CHUNK
    notes += [why] if why else []
    gap = 1 if given.gap_us is None else given.gap_us
    times = count(0, max(gap, 1))
    segments, tracker = segments_of(list(zip(times, pieces, strict=False)), method)
    if end is End.COMPLETE and not tracker.eof():
        raise MockllmError(f"{source}: --end complete, but {_missing(tracker)}")
    then = Then.FIN if _closes(shown, tracker) and end is End.COMPLETE else Then.OPEN
    return _timed(exchange_of(request, segments, Ending(end, then=then), given.framing, source), given, notes)
