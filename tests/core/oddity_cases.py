"""One hand-made answer for each oddity, and how such answers are made in a few words."""

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any

import pytest

from mockllm.core.exchange import Exchange, Request
from mockllm.core.http1 import Tracker
from mockllm.core.response import End, Response, Segment, Then

OK = b"HTTP/1.1 200 OK\r\n"
SSE = b"Content-Type: text/event-stream\r\n"
CHUNKED = OK + SSE + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(*pieces: bytes) -> bytes:
    data = b"".join(pieces)
    return b"%x\r\n%b\r\n" % (len(data), data)


def data(value: Any) -> bytes:
    return b"data: %b\n\n" % (value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode())


def delta(content: Any = "Hel", finish: str | None = None, **more: Any) -> bytes:
    inner = more.pop("delta", {} if content is None else {"content": content})
    return data({"choices": [{"index": 0, "delta": inner, "finish_reason": finish}], **more})


HEL, STOP, DONE = delta(), delta(None, "stop"), data(b"[DONE]")
STREAM = (chunk(HEL), chunk(STOP), chunk(DONE) + LAST)
"""The end of a stream that nothing is odd about, without the head."""


def answer(
    *reads: bytes,
    end: End | None = None,
    then: Then = Then.OPEN,
    later: int = 0,
    step: int = 1000,
    method: str = "POST",
    target: bytes = b"/v1/chat/completions",
    request: dict[str, Any] | None = None,
    end_meta: dict[str, Any] | None = None,
) -> Exchange:
    """An exchange with these reads, `step` µs apart; complete where its framing says so, unless `end` is given."""
    tracker = Tracker(method)
    segments: list[Segment] = []
    for index, read in enumerate(reads, 1):
        segments += tracker.feed(index * step, read)
    if end is None:
        end = End.COMPLETE if tracker.eof() else End.FIN
    at = len(reads) * step
    response = Response(tuple(segments), end, at, then, at + later, method, target)
    return Exchange(Request(method, target, **(request or {})), response, end_meta=end_meta or {})


def stream(*pieces: bytes, last: bytes = LAST, head: bytes = CHUNKED, **options: Any) -> Exchange:
    """A stream with a chunk and a read for each piece, then what ends it."""
    chunks = [chunk(piece) for piece in pieces]
    chunks[-1] += last
    return answer(head, *chunks, **options)


def plain(body: bytes, kind: bytes = b"application/json", lines: bytes = b"", **options: Any) -> Exchange:
    """An answer with a length."""
    head = OK + (b"Content-Type: %b\r\n" % kind if kind else b"") + lines + b"Content-Length: %d\r\n\r\n" % len(body)
    return answer(head + body, **options)


@dataclass(frozen=True, slots=True)
class Case:
    check: str
    exchange: Exchange
    lines: tuple[str, ...]


def case(check: str, exchange: Exchange, *lines: str) -> Any:
    return pytest.param(Case(check, exchange, lines), id=f"{check}-{lines[0][:40] if lines else 'none'}")


GZIP = b"Content-Encoding: gzip\r\n"
EVENTS = HEL + STOP + DONE
FLUSHED = zlib.compressobj(wbits=31)
PART = FLUSHED.compress(EVENTS) + FLUSHED.flush(zlib.Z_SYNC_FLUSH)
TEXT = OK + b"Content-Type: text/event-stream\r\n\r\n"
TWO = "é".encode()

HEADS = [
    case("no_head", answer(), "nothing came, not even a head"),
    case("no_head", answer(b"\x16\x03\x01x"), 'the answer is no HTTP: it begins "\\u0016\\u0003\\u0001x"'),
    case("no_head", answer(OK + b"Server: x"), "the head never came to its end"),
    case(
        "version",
        stream(*[HEL, STOP, DONE], head=CHUNKED.replace(b"1.1", b"1.0")),
        "HTTP/1.0 with chunks, which HTTP/1.0 does not know",
    ),
    case("version", answer(b"HTTP/1.0 200 OK\r\n\r\n"), "HTTP/1.0, not 1.1"),
    case(
        "interim",
        answer(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CHUNKED, *STREAM),
        "an interim head (103) before the head",
    ),
    case("in_pieces", answer(CHUNKED[:20], CHUNKED[20:], *STREAM), "the head came in 2 reads"),
    case(
        "in_pieces", answer(CHUNKED.replace(b"\r\n", b"\n"), *STREAM), "lines of the head end with LF instead of CRLF"
    ),
    case("content_type", plain(b"{}", b""), "no Content-Type"),
    case("content_type", answer(CHUNKED.replace(SSE, b""), *STREAM), "no Content-Type"),
    case(
        "content_type",
        answer(CHUNKED.replace(b"event-stream", b"plain"), *STREAM),
        'Content-Type is "text/plain", but the body is server-sent events',
    ),
    case(
        "content_type",
        answer(CHUNKED.replace(b"event-stream", b"event-stream; charset=iso-8859-1"), *STREAM),
        'charset "iso-8859-1" for server-sent events, which are always UTF-8',
    ),
    case("content_type", answer(CHUNKED.replace(b"event-stream", b'event-stream; Charset="UTF-8"'), *STREAM)),
    case("content_type", plain(b"<html>"), 'Content-Type is "application/json", but the body is no JSON'),
    case("content_type", plain(b"<html>", b"text/html")),
    case(
        "duplicates",
        plain(b"{}", lines=b"X-A: 1\r\nx-a: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"),
        'header "x-a" is there 2 times',
    ),
    case(
        "duplicates",
        stream(HEL, STOP, DONE, head=CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n"),
        "both Transfer-Encoding and Content-Length",
    ),
    case(
        "compressed", plain(gzip.compress(EVENTS, mtime=0), b"text/event-stream", GZIP), "the body is compressed (gzip)"
    ),
    case(
        "compressed",
        answer(TEXT[:-2] + GZIP + b"\r\n" + PART),
        "the body is compressed (gzip)",
        "the compressed body never came to its end",
    ),
    case(
        "compressed",
        plain(b"abc", lines=b"Content-Encoding: br\r\n"),
        "the body is compressed (br)",
        "not all of the body can be read: compressed as br, which is not decoded here",
    ),
    case("compressed", plain(b"", lines=GZIP)),
]

ENDINGS = [
    case("cut", stream(HEL, last=b""), "cut: the server closed early, no last chunk"),
    case("cut", answer(CHUNKED, b"9\r\ndata"), "cut: the server closed early, 5 bytes short of its chunk"),
    case(
        "cut",
        answer(OK + b"Content-Length: 9\r\n\r\nabc", end=End.RST),
        "cut: the server reset the connection, 6 bytes short of Content-Length",
    ),
    case("cut", answer(TEXT + HEL, end=End.HANG), "cut: the server fell silent until somebody gave up"),
    case("cut", stream(HEL, last=b"", end=End.CLIENT), "the client left before the end, no last chunk"),
    case(
        "cut",
        stream(HEL, last=b"", end=End.CLIENT, end_meta={"by": "kill"}),
        "the recorder was killed in mid-answer, no last chunk",
    ),
    case(
        "cut",
        stream(HEL, last=b"", end=End.CLIENT, end_meta={"by": "recorder"}),
        "the recorder was stopped in mid-answer, no last chunk",
    ),
    case(
        "broken",
        answer(CHUNKED, chunk(HEL), b"zz\r\n"),
        "the chunks break off: from somewhere on the bytes are no chunks",
    ),
    case("broken", answer(b"\x16\x03\x01x")),
    case("surplus", answer(CHUNKED, *STREAM, b"more\x00"), '5 bytes after the end of the answer: "more\\u0000"'),
    case("surplus", answer(OK + b"Content-Length: 0\r\n\r\nx"), '1 byte after the end of the answer: "x"'),
    case(
        "chunks",
        answer(CHUNKED, b"%X;a=b\r\n%b\r\n" % (len(HEL), HEL), *STREAM[1:]),
        f'1 chunk size with an extension or oddly spelled: "{len(HEL):X};a=b\\r\\n"',
    ),
    case(
        "chunks",
        answer(CHUNKED, b"0%x\r\n%b\r\n" % (len(HEL), HEL), *STREAM[1:]),
        f'1 chunk size with an extension or oddly spelled: "0{len(HEL):x}\\r\\n"',
    ),
    case(
        "trailers",
        answer(CHUNKED, chunk(EVENTS) + b"0\r\nX-Sum: 1\r\n\r\n"),
        'trailers after the last chunk: "X-Sum: 1"',
    ),
    case("trailers", answer(CHUNKED, chunk(EVENTS) + LAST, b"\n0\r\nX-Sum: 1\r\n\r\n")),
    case("trailers", answer(CHUNKED, b"0\r\nX-Sum: 1\r\n\r\n"), 'trailers after the last chunk: "X-Sum: 1"'),
    case(
        "connection",
        answer(CHUNKED, *STREAM, then=Then.FIN, later=400),
        "the server closed the connection 400 µs after the end without having said so",
    ),
    case(
        "connection",
        answer(CHUNKED, *STREAM, then=Then.RST, later=400),
        "the connection was reset 400 µs after the end",
    ),
    case("connection", answer(CHUNKED[:-2] + b"Connection: close\r\n\r\n", *STREAM, then=Then.FIN, later=400)),
    case("request", plain(b"{}", request={"early": True}), "the answer began before the request was fully sent"),
    case("request", plain(b"{}", request={"early": True, "cut": True}), "the request was never finished"),
    case("empty", answer(CHUNKED, LAST), "200, and not a byte of body"),
    case("empty", answer(OK + b"Content-Length: 9\r\n\r\n", method="HEAD")),
]

BORDERS = [
    case("events_in_pieces", stream(HEL[:9], HEL[9:], STOP, DONE), "1 event over several chunks"),
    case("events_in_pieces", answer(TEXT, HEL[:9], HEL[9:] + STOP[:9], STOP[9:], DONE), "2 events over several reads"),
    case(
        "events_in_pieces", answer(CHUNKED, chunk(HEL)[:9], chunk(HEL)[9:], *STREAM[1:]), "1 event over several reads"
    ),
    case("several_in_one", stream(HEL, STOP + DONE), "1 chunk with several events (2 at most)"),
    case("several_in_one", answer(TEXT, HEL, STOP + HEL + DONE), "1 read with several events (3 at most)"),
    case(
        "several_in_one", answer(CHUNKED, *STREAM[:1], STREAM[1] + STREAM[2]), "1 read with several events (2 at most)"
    ),
    case(
        "half_characters",
        stream(HEL, b": " + TWO[:1], TWO[1:] + b"\n\n", STOP, DONE),
        "1 character cut in two at the border of a chunk",
    ),
    case(
        "half_characters",
        answer(TEXT, b": \xf0", b"\x9f", b"\x8e\x89\n\n"),
        "1 character cut in two at the border of a read",
    ),
    case(
        "half_characters",
        answer(TEXT, b": " + TWO, b"\x80\n\n", b"\x80", b"\xff\x81"),
    ),
    case(
        "half_characters",
        answer(TEXT, b"\xe2\x80", b"\xa8\xe2", b"\x80\xa9"),
        "2 characters cut in two at the border of a read",
    ),
    case(
        "unseen_time",
        answer(TEXT, HEL[:9], HEL[9:20], HEL[20:], STOP, DONE),
        "2.0 ms pass inside events: what reads lie there a client of events cannot see",
    ),
    case("silence", answer(TEXT, EVENTS, step=6_000_000), "silence of 6.00 s, 0 µs after the request"),
]

SPELLINGS = [
    case("mark", answer(TEXT + b"\xef\xbb\xbf" + EVENTS), "a byte order mark before the body"),
    case(
        "comments", stream(b": keepalive 1/2\n\n", b":\n\n", HEL, STOP, DONE), '2 comments, such as ": keepalive 1/2"'
    ),
    case("fields", stream(b"retry: 3000\n\n", b"id: 7\n" + HEL, STOP, DONE), "1 retry: field", "1 id: field"),
    case("fields", stream(b"data:\n\n", b"data\n\n", HEL, STOP, DONE), "2 events with empty data"),
    case("fields", stream(b"\n", HEL, b"\n\n", STOP, DONE), "3 blank lines between events"),
    case("fields", answer(TEXT + b"\xef\xbb\xbf\n" + EVENTS), "1 blank line between events"),
    case(
        "data_lines",
        stream(HEL.replace(b": ", b":", 1), STOP.replace(b": ", b":", 1), DONE),
        "2 data: lines without a space after the colon",
    ),
    case("data_lines", stream(b'data: {"a":\ndata: 1}\n\n', DONE), "1 event with several data: lines"),
    case("data_lines", stream(b'data: {"a":1\r\ndata\r\ndata: }\r\n\r\n', DONE), "1 event with several data: lines"),
    case("line_ends", answer(TEXT + EVENTS.replace(b"\n", b"\r\n")), "lines end with CRLF"),
    case("line_ends", answer(TEXT + EVENTS.replace(b"\n", b"\r")), "lines end with CR"),
    case("line_ends", answer(TEXT + HEL.replace(b"\n", b"\r\n") + STOP + DONE), "lines end with CRLF and LF"),
    case(
        "other_line_ends",
        stream(delta("a\u2028b\u0085"), STOP, DONE),
        '2 characters that some readers take for a line end: "\\u2028"',
    ),
    case("not_utf8", stream(b"data: \xff\n\n", DONE), "not UTF-8 at byte 6 of the body"),
    case("not_utf8", plain(b'{"a":"\xe9"}'), "not UTF-8 at byte 6 of the body"),
    case("not_utf8", plain(b"\xe9", b"audio/mpeg")),
    case("tail", stream(HEL, STOP, DONE, b"data: x"), 'the last event is not finished, no client gets it: "data: x"'),
    case(
        "tail",
        answer(OK + b'Content-Type: application/x-ndjson\r\n\r\n{"done":false}\n{"done":true}'),
        "the last JSON line has no line end",
    ),
    case("white_space", plain(b"\n\n {}"), "3 bytes of white space before the body"),
    case("white_space", plain(b"\n\n", b"text/plain")),
]

NDJSON = OK + b"Content-Type: application/x-ndjson\r\n\r\n"
USAGE = data({"choices": [], "usage": {"prompt_tokens": 1}})
CALL = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}
OTHER_CALL = {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}]}

MEANINGS = [
    case(
        "error_in_success",
        stream(HEL, data({"error": {"message": "over\x1bloaded"}})),
        "an error inside a 200: over\\u001bloaded",
    ),
    case("error_in_success", plain(b'{"error":"bad"}'), "an error inside a 200: bad"),
    case("error_in_success", plain(b'{"error":{"code":7}}'), "an error inside a 200"),
    case("error_in_success", answer(b'HTTP/1.1 400 Bad\r\nContent-Length: 15\r\n\r\n{"error":"bad"}')),
    case("no_end", stream(HEL, STOP), "no [DONE] at the end"),
    case("no_end", stream(data({"type": "content_block_delta", "delta": {"text": "a"}})), "no message_stop at the end"),
    case("no_end", stream(data({"candidates": [{"finishReason": "STOP"}]}))),
    case("no_end", answer(NDJSON + b'{"done":false}\n'), 'no "done":true at the end'),
    case("no_reason", stream(HEL, DONE), "no reason why the text stops (finish_reason)"),
    case("no_reason", stream(HEL, data({"error": "x"}), DONE)),
    case("reasons", stream(HEL, STOP, STOP, DONE), "the same choice finishes 2 times"),
    case("after_the_end", stream(HEL, STOP, DONE, USAGE, DONE), "2 events after the protocol's end"),
    case("pings", stream(b'event: ping\ndata: {"type": "ping"}\n\n', HEL, STOP, DONE), "1 ping as an event of its own"),
    case("no_json", stream(HEL, b"data: {oops\n\n", STOP, DONE), '1 event whose data are no JSON: "{oops"'),
    case(
        "nulls",
        stream(data(b"null"), delta(delta=None), delta(delta={"tool_calls": None}), STOP, DONE),
        "data is null in 1 event",
        "delta is null in 1 event",
        "tool_calls is null in 1 event",
    ),
    case("choices", stream(HEL, STOP, USAGE, DONE), "choices is empty in 1 event (with usage)"),
    case("choices", stream(data({"choices": []}), HEL, STOP, DONE), "choices is empty in 1 event"),
    case("choices", stream(data({"choices": [{"index": 0}]}), HEL, STOP, DONE), "1 choice without a delta"),
    case(
        "roles",
        stream(delta(delta={"role": "assistant", "content": "a"}), delta(delta={"role": "assistant"}), STOP, DONE),
        "the role is in 2 deltas",
    ),
    case(
        "tool_calls",
        stream(delta(delta=CALL), delta(delta=OTHER_CALL), STOP, DONE),
        "tool calls with different ids share 1 index",
    ),
    case("tool_calls", stream(delta(delta=CALL), delta(delta=CALL), STOP, DONE)),
    case(
        "half_surrogates",
        stream(
            data(rb'{"choices":[{"delta":{"content":"\ud83c"}}]}'),
            data(rb'{"choices":[{"delta":{"content":"\udf89"}}]}'),
            STOP,
            DONE,
        ),
        "half a character (a lone surrogate) in the text of 2 events",
    ),
]
CASES = [*HEADS, *ENDINGS, *BORDERS, *SPELLINGS, *MEANINGS]
