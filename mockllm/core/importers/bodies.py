"""What a body that curl shows tells of its framing: where its events end, whether it is whole.

It guesses only from what the body says, and says so. It must not know which kind of capture the body comes from.
"""

import json
from dataclasses import replace

from mockllm.core.decoding import decode
from mockllm.core.dialects import Meaning, meaning
from mockllm.core.events import Event, Kind, events, reader_for
from mockllm.core.exchange import header
from mockllm.core.http1 import Framing, Tracker
from mockllm.core.importers.heads import Shown, is_framed, true_for
from mockllm.core.response import End

_LAST_WORDS = Meaning.DONE | Meaning.FINISH | Meaning.ERROR


def fitting(shown: Shown, body: bytes, method: str, notes: list[str]) -> tuple[Shown, bytes]:
    """The head made true for the body, and the body no longer than it promises: curl shows no more than that."""
    shown = true_for(shown, method, body)
    notes += shown.notes
    length = shown.length(method)
    if shown.framing(method) is Framing.LENGTH and len(body) > length:
        notes.append(f"{len(body) - length} bytes after the {length} that Content-Length says are left out")
        body = body[:length]
    return shown, body


def cut_in_events(shown: Shown, body: bytes) -> list[bytes]:
    """The body cut where its events, comments and blank lines end; in one piece where it is no stream."""
    spans = events(body, _type(shown)) if not _coding(shown) else []
    pieces = [body[span.start : span.stop] for span in spans]
    return pieces or ([body] if body else [])


def how_it_ends(shown: Shown, body: bytes, method: str) -> tuple[End, str]:
    """How an answer ended of which only the bytes are known, and a note where that is a guess.

    It is complete where its framing says so, or where the framing is lost and the stream says it: by its protocol's
    own end, a finish reason or an error, with nothing unfinished behind. Else the server closed early.
    """
    framing = shown.framing(method)
    if framing is Framing.LENGTH and len(body) < shown.length(method):
        short = f"{len(body)} bytes of body where Content-Length says {shown.length(method)}"
        return End.FIN, f"{short}: written as closed early (for an answer to HEAD give --method HEAD)"
    if framing is Framing.CHUNKED and is_framed(body):
        tracker = Tracker(method)
        tracker.feed(0, shown.raw + body)
        return (End.COMPLETE, "") if tracker.done else (End.FIN, "no last chunk: written as closed early")
    if framing is Framing.CHUNKED and not says_whole(body, _type(shown), _coding(shown)):
        return End.FIN, "nothing in it says that the stream was whole: written as closed early (--end complete)"
    return End.COMPLETE, ""


def says_whole(body: bytes, content_type: bytes | None, coding: bytes) -> bool:
    """Does a body without framing say that it is whole? One that is neither a stream nor JSON is taken for whole."""
    decoded = decode(coding, [body])
    if decoded.problem is not None or not decoded.finished:
        return False
    text = decoded.pieces[0]
    if reader_for(content_type) is not None:
        return _stream_says_whole(events(text, content_type))
    return is_json(text) or b"json" not in (content_type or b"").lower()


def is_json(text: bytes) -> bool:
    """Is it one JSON value, read as tolerantly as clients do?"""
    try:
        json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _stream_says_whole(spans: list[Event]) -> bool:
    if not spans:
        return False
    # An editor that takes away the last blank line makes a tail of [DONE]: it is the end all the same.
    if Meaning.DONE in meaning(replace(spans[-1], kind=Kind.EVENT)):
        return True
    return spans[-1].kind is not Kind.TAIL and any(meaning(span) & _LAST_WORDS for span in spans)


def _type(shown: Shown) -> bytes | None:
    return header(shown.head.headers, b"content-type")


def _coding(shown: Shown) -> bytes:
    return b",".join(coding for coding in shown.head.values(b"content-encoding") if coding != b"identity")
