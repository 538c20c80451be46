"""The figures of an exchange, and its timeline, in literal numbers."""

import gzip
from typing import Any

import pytest

from mockllm import files
from mockllm.core.cassette import loads
from mockllm.core.events import Event, Kind, events
from mockllm.core.exchange import Exchange, Request
from mockllm.core.http1 import Framing
from mockllm.core.look import Look, says_close
from mockllm.core.response import End, Then
from mockllm.core.summary import summarize
from mockllm.core.timeline import BAR, Row, described, timeline
from tests.core.oddity_cases import (
    CHUNKED,
    DONE,
    GZIP,
    HEL,
    LAST,
    NDJSON,
    OK,
    STOP,
    TEXT,
    answer,
    chunk,
    data,
    plain,
    stream,
)

PING = b"event: ping\ndata: {}\n\n"


def shipped(name: str) -> Exchange:
    [exchange] = loads((files.shipped() / name).read_bytes(), name)
    return exchange


def test_figures_of_the_stream_that_started_it_all() -> None:
    found = summarize(shipped("quirks/keepalive-19-33.jsonl"))
    assert (found.method, found.target, found.status, found.version) == ("POST", b"/v1/chat/completions", 200, "1.0")
    assert (found.framing, found.content_type) == (Framing.CLOSE, b"text/event-stream")
    assert (found.events, found.bytes, found.reads) == (4, 804, 6)
    assert (found.ttft_us, found.events_per_s, found.duration_us) == (302_500, 60.0, 352_900)
    assert (found.end, found.then) == (End.COMPLETE, Then.FIN)
    assert found.text == "Vous pouvez noter les faits."
    assert found.usage == {"prompt_tokens": 3000, "completion_tokens": 5, "total_tokens": 3005}


@pytest.mark.parametrize(
    ("exchange", "first", "rate"),
    [
        (answer(), None, None),
        (answer(CHUNKED), None, None),
        (answer(TEXT, b": x\n\n", PING, HEL, DONE), 4000, 1000.0),  # a ping is an event, but no first one
        (answer(TEXT, HEL + DONE), 2000, None),  # no time between them
        (answer(TEXT, HEL[:5], HEL[5:]), 3000, None),
        (answer(OK + b"Content-Length: 2\r\n\r\n", b"h", b"i"), 2000, None),
        (answer(NDJSON, b'{"done":false}\n', b'{"done":true}'), 2000, 1000.0),
    ],
    ids=["nothing", "no-body", "pings", "one-read", "in-pieces", "plain", "ndjson"],
)
def test_first_event_and_rate(exchange: Exchange, first: int | None, rate: float | None) -> None:
    found = summarize(exchange)
    assert (found.ttft_us, found.events_per_s) == (first, rate)


def test_what_a_compressed_body_says_is_read() -> None:
    body = gzip.compress(HEL + data({"choices": [{"delta": {"content": "lo"}}]}) + DONE, mtime=0)
    found = summarize(plain(body, b"text/event-stream", GZIP))
    assert (found.text, found.events, found.bytes) == ("Hello", 3, len(body))


def test_usage_of_several_events_is_put_together() -> None:
    start = data({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}})
    delta = data({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}})
    assert summarize(answer(TEXT, start, delta)).usage == {"input_tokens": 9, "output_tokens": 7}


def test_a_stream_under_another_type_is_read_as_one() -> None:
    assert summarize(answer(CHUNKED.replace(b"event-stream", b"plain"), chunk(HEL) + LAST)).events == 1


def test_the_timeline_of_a_shipped_cassette() -> None:
    assert timeline(shipped("quirks/keepalive-19-33.jsonl")) == [
        Row(2500, 2500, 248, "HTTP/1.0 200 OK"),
        Row(152_500, 150_000, 19, ": keepalive 19/33"),
        Row(272_500, 120_000, 19, ": keepalive 33/33"),
        Row(302_500, 30_000, 255, '"Vous pouvez"'),
        Row(327_500, 25_000, 261, '" noter les faits."'),
        Row(352_500, 25_000, 250, "usage 3000/5 [DONE]"),
        Row(352_900, 400, 0, "complete, then closed"),
    ]


def texts(exchange: Exchange) -> list[str]:
    return [row.text for row in timeline(exchange)]


@pytest.mark.parametrize(
    ("exchange", "said"),
    [
        (answer(), ["fin: closed early by the server"]),
        (answer(b"\x16\x03", end=End.RST), ['"\\u0016\\u0003"', "rst: reset"]),
        (
            answer(OK + b"Ser", b"ver: x", end=End.HANG),
            ["(part of the head)"] * 2 + ["hang: silence until somebody gave up"],
        ),
        (answer(b"HTTP/1.1 abc\r\n\r\n", end=End.CLIENT), ["", "client: the client left"]),
        (
            answer(b"HTTP/1.1 103 Early Hints\r\n\r\n", OK + b"Content-", b"Length: 2\n\nhi", b"more"),
            [
                "HTTP/1.1 103 Early Hints",
                "(part of the head)",
                'HTTP/1.1 200 OK "hi"',
                '(after the end) "more"',
                "complete",
            ],
        ),
        (
            stream(HEL[:9], HEL[9:] + STOP, DONE, then=Then.RST, later=400),
            [
                "HTTP/1.1 200 OK",
                "(part of an event)",
                '"Hel" finish stop',
                "[DONE] (last chunk)",
                "complete, then reset 400 µs later",
            ],
        ),
        (
            answer(CHUNKED, b"5\r\n", b"\n\n\n\n\n\r\n" + LAST),
            ["HTTP/1.1 200 OK", '(framing) "5\\r\\n"', "(blank) " * 5 + "(last chunk)", "complete"],
        ),
        (
            answer(CHUNKED, chunk(HEL), b"00;x\r\n", b"\r\n"),
            ["HTTP/1.1 200 OK", '"Hel"', "(last chunk)", '(framing) "\\r\\n"', "complete"],
        ),
        (
            answer(OK + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\n", b"abc", then=Then.FIN),
            ["HTTP/1.1 200 OK", "(3 compressed bytes)", "complete, then closed"],
        ),
    ],
    ids=["nothing", "garbage", "half-a-head", "no-http", "heads", "pieces", "blank", "last-chunk", "compressed"],
)
def test_rows(exchange: Exchange, said: list[str]) -> None:
    assert texts(exchange) == said


def sse(text: bytes) -> Event:
    return events(text, b"text/event-stream")[0]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (sse(b": a\n:b\ndata: [DONE]\n\n"), ": a :b [DONE]"),
        (sse(b"retry: 3000\n\n"), "retry 3000"),
        (sse(b"id: 7\n\n"), "(blank)"),
        (sse(b"data: {x"), '(unfinished) "{x"'),
        (sse(data({"choices": [{"delta": {"role": "assistant"}}]})), "role"),
        (
            sse(data({"choices": [{"delta": {"role": "a", "content": 'x"\n', "reasoning": "y"}}]})),
            '"x\\"\\n" reasoning',
        ),
        (sse(data({"error": {"message": "full"}})), "error: full"),
        (sse(b"event: message_start\n" + data({"type": "message_start"})), "message_start"),
        (sse(PING), "ping"),
        (sse(b"event: ping\ndata: x\n\n"), "ping"),
        (sse(data({"usage": {"completion_tokens": 4}})), "usage ?/4"),
        (sse(b"data: oops\n\n"), '"oops"'),
        (Event(Kind.EVENT, 0, 9, data=b'{"done":true,"done_reason":"stop","response":"a"}'), '"a" finish stop'),
    ],
)
def test_what_a_span_says(event: Event, said: str) -> None:
    assert described(event) == said


@pytest.mark.parametrize(
    ("gap_us", "cells"),
    [(0, 0), (999, 0), (1000, 1), (9_999, 4), (10_000, 5), (1_000_000, 13), (5_000_000, 15), (3_600_000_000, BAR)],
)
def test_bars_are_logarithmic(gap_us: int, cells: int) -> None:
    assert Row(0, gap_us, 0, "").bar == cells


def head(lines: bytes, version: bytes = b"1.1") -> Any:
    found = Look(answer(b"HTTP/%b 200 OK\r\n%b\r\n" % (version, lines))).found.head
    assert found is not None
    return found


def test_a_head_that_says_close() -> None:
    assert says_close(head(b"Connection: Keep-Alive, close\r\n"))
    assert says_close(head(b"", b"1.0"))
    assert not says_close(head(b""))
    assert not says_close(head(b"Connection: keep-alive\r\n", b"1.0"))


def test_chunks_and_reads_are_numbered() -> None:
    wire = [CHUNKED, b"4\r\nab", b"cd", b"\r\n2\r\n", b"ef\r\n1\r\ng\r\n" + LAST]
    look = Look(answer(*wire))
    assert [piece.data for piece in look.pieces] == [b"ab", b"cd", b"ef", b"g"]
    assert look.chunks == [1, 1, 2, 3]
    assert look.reads == [1, 2, 3, 3]
    assert Look(answer(TEXT, b"ab", b"cd")).chunks == [1, 2]


def test_the_request_of_a_summary() -> None:
    found = summarize(Exchange(Request("PUT", b"/\xff"), answer(OK + b"\r\n").response))
    assert (found.method, found.target) == ("PUT", b"/\xff")
