"""Borders and fields of events: against a reference written from the standard, in every segmentation."""

import time
from dataclasses import replace
from itertools import pairwise, takewhile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mockllm.core.events import Event, Kind, NdjsonReader, SseReader, events, reader_for
from tests.reference import Dispatched, reference

SSE = b"text/event-stream"
NDJSON = b"application/x-ndjson"


def dispatched(spans: list[Event]) -> list[Dispatched]:
    return [Dispatched(e.name, e.data, e.id, e.retry) for e in spans if e.kind is Kind.EVENT]


# ---------------------------------------------------------------- what bodies are made of

LINE_ENDS = [b"\n", b"\r", b"\r\n"]
NASTY = [
    b"\0",
    b"\xff",
    b"\xc3",
    "\u2028".encode(),
    "\u0085".encode(),
    b"\x85",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"\xef\xbb\xbf",
]
WORDS = [
    b"data",
    b"data:",
    b"data: ",
    b"data:  x",
    b"event:",
    b"id:",
    b"id",
    b"retry:",
    b"retry: 12",
    b":",
    b": ka 1/2",
    b" ",
]
JSONS = [b'{"a":1}', b'{"a":', b"[1]", b"null", b"12", b"{}", b"\t"]

bodies = st.lists(st.sampled_from(LINE_ENDS * 3 + NASTY + WORDS + JSONS) | st.binary(max_size=3), max_size=30).map(
    b"".join
)


@st.composite
def cut_bodies(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    body = draw(bodies)
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=8)))
    return body, pieces_at(body, cuts)


def pieces_at(body: bytes, cuts: list[int]) -> list[bytes]:
    borders = [0, *cuts, len(body)]
    return [body[a:b] for a, b in pairwise(borders)]


def read(reader: SseReader | NdjsonReader, pieces: list[bytes]) -> list[Event]:
    found: list[Event] = []
    for piece in pieces:
        found += reader.feed(piece)
    return found + reader.close()


def fold(body: bytes, spans: list[Event]) -> list[Event]:
    """Gives an LF that came late back to the span whose CR it follows."""
    folded: list[Event] = []
    for span in spans:
        late = span.kind is Kind.BLOCK and body[span.start : span.stop] == b"\n"
        if late and folded and body[span.start - 1] == 0x0D:
            folded[-1] = replace(folded[-1], stop=span.stop)
        else:
            folded.append(span)
    return folded


# ---------------------------------------------------------------- properties


@given(bodies)
def test_sse_dispatches_what_the_standard_says(body: bytes) -> None:
    assert dispatched(events(body, SSE)) == reference(body)


@given(cut_bodies(), st.sampled_from([SSE, NDJSON]))
@example((b"data\r\r\n\ndata", [b"data\r\r", b"\n", b"\ndata"]), SSE)
def test_spans_cover_the_body_without_gap_or_overlap(case: tuple[bytes, list[bytes]], content_type: bytes) -> None:
    body, pieces = case
    reader = reader_for(content_type)
    assert reader is not None
    spans = read(reader, pieces)
    assert b"".join(body[span.start : span.stop] for span in spans) == body
    assert all(span.start < span.stop for span in spans)
    assert reader.close() == []


@given(cut_bodies())
@example((b"data\r\n\r\ndata\r\r\n", [b"data\r\n\r", b"\ndata\r\r", b"\n"]))
@example((b"\xef\xbb\xbfdata\n\n", [b"\xef", b"\xbb", b"\xbfdata\n\n"]))
def test_sse_events_do_not_depend_on_the_segmentation(case: tuple[bytes, list[bytes]]) -> None:
    body, pieces = case
    assert fold(body, read(SseReader(), pieces)) == events(body, SSE)


@given(cut_bodies())
def test_ndjson_events_do_not_depend_on_the_segmentation(case: tuple[bytes, list[bytes]]) -> None:
    body, pieces = case
    assert read(NdjsonReader(), pieces) == events(body, NDJSON)


@given(bodies)
def test_each_event_is_reported_with_the_byte_that_ends_it(body: bytes) -> None:
    reader = SseReader()
    found: list[Event] = []
    for at in range(len(body)):
        found += reader.feed(body[at : at + 1])
        assert dispatched(found) == reference(body[: at + 1])


@given(bodies)
def test_each_span_alone_is_the_same_event(body: bytes) -> None:
    for span in events(body, SSE)[1:]:  # a byte order mark counts only at the stream's start
        alone = body[span.start : span.stop]
        if not alone.startswith(b"\xef\xbb\xbf"):
            assert events(alone, SSE) == [replace(span, start=0, stop=len(alone))]


@given(bodies)
def test_ndjson_has_an_event_for_each_line_that_is_not_blank(body: bytes) -> None:
    spans = events(body, NDJSON)
    lines = [line.removesuffix(b"\r") for line in body.split(b"\n")[:-1]]
    whole = [span for span in spans if body[span.start : span.stop].endswith(b"\n")]
    assert [span.data for span in whole] == lines
    assert [span.kind is Kind.EVENT for span in whole] == [any(byte not in b" \t\r" for byte in line) for line in lines]


@given(cut_bodies(), st.sampled_from([SSE, NDJSON]), st.integers(1, 12))
@example((b"data\r\n\r\n\n", [b"data\r\n\r", b"\n\n"]), SSE, 7)
@example((b"data\r\ndata\n\n", [b"data\r", b"\n", b"data\n\n"]), SSE, 5)
def test_a_reader_gives_up_at_the_first_span_beyond_its_limit(
    case: tuple[bytes, list[bytes]], content_type: bytes, limit: int
) -> None:
    body, pieces = case
    reader = reader_for(content_type, limit)
    assert reader is not None
    spans = events(body, content_type)

    def size(span: Event) -> int:
        """The LF of the CRLF that ends an event does not count: it may come too late to be counted."""
        crlf = content_type == SSE and span.kind is not Kind.TAIL and body[span.start : span.stop].endswith(b"\r\n")
        return span.stop - span.start - crlf

    expected = list(takewhile(lambda span: size(span) <= limit, spans))
    assert fold(body, read(reader, pieces)) == expected
    assert reader.gave_up == (len(expected) < len(spans))


# ---------------------------------------------------------------- tables


def event(name: bytes = b"", data: bytes = b"", **more: object) -> tuple[object, ...]:
    return (Kind.EVENT, name, data, more.get("id"), more.get("retry"), more.get("comments", ()))


def block(**more: object) -> tuple[object, ...]:
    return (Kind.BLOCK, more.get("name", b""), b"", more.get("id"), more.get("retry"), more.get("comments", ()))


def tail(name: bytes = b"", data: bytes = b"", **more: object) -> tuple[object, ...]:
    return (Kind.TAIL, name, data, more.get("id"), more.get("retry"), more.get("comments", ()))


TABLE = {
    # The examples of the standard.
    "stock ticker": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [event(data=b"YHOO\n+2\n10")]),
    "four blocks": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event",
        [
            block(comments=(b" test stream",)),
            event(data=b"first event", id=b"1"),
            event(data=b"second event", id=b""),
            tail(data=b" third event"),
        ],
    ),
    "fires two events": (b"data\n\ndata\ndata\n\ndata:", [event(data=b""), event(data=b"\n"), tail()]),
    "space after the colon": (b"data:test\n\ndata: test\n\n", [event(data=b"test"), event(data=b"test")]),
    # What servers send.
    "named": (b"event: ping\ndata: {}\n\n", [event(b"ping", b"{}")]),
    "last name wins": (b"event: a\nevent: b\ndata\n\n", [event(b"b")]),
    "name without data": (b"event: a\n\ndata: x\n\n", [block(name=b"a"), event(data=b"x")]),
    "llama ping": (b":\n\n", [block(comments=(b"",))]),
    "comment inside": (b"data: a\n: ka\ndata: b\n\n", [event(data=b"a\nb", comments=(b" ka",))]),
    "retry": (b"retry: 3000\n\nretry: 3s\n\nretry:\n\n", [block(retry=b"3000"), block(), block()]),
    "retry in other digits": ("retry: ٣\n\n".encode(), [block()]),
    "id with NUL": (b"id: a\0b\ndata\n\n", [event()]),
    "id kept": (b"id: a\nid: \0\ndata\n\n", [event(id=b"a")]),
    "unknown fields": (b"dat: x\nDATA: x\n data: x\n\n", [block()]),
    "colons in data": (b"data: a:b: c\n\n", [event(data=b"a:b: c")]),
    "blank lines": (b"\n\n\r\n\r", [block()] * 4),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [event(data=b"a"), event(data=b"b")]),
    "CR": (b"data: a\r\rdata: b\r\r", [event(data=b"a"), event(data=b"b")]),
    "mixed ends": (b"data: a\r\ndata: b\rdata: c\n\r\n", [event(data=b"a\nb\nc")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [event(data=b"a")]),
    "two byte order marks": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", [block()]),
    "byte order mark alone": (b"\xef\xbb\xbf\n", [block()]),
    "byte order mark later": (b"data: a\n\xef\xbb\xbfdata: b\n\n", [event(data=b"a")]),
    "half a byte order mark": (b"\xef\xbb", [tail()]),
    "not line ends": (
        "data: a\u2028b\u0085c\x0b\x0c\x1cd\0\n\n".encode(),
        [event(data="a\u2028b\u0085c\x0b\x0c\x1cd\0".encode())],
    ),
    "bad UTF-8": (b"data: \xff\xc3\n\n", [event(data=b"\xff\xc3")]),
    "no blank line": (b"data: a\n", [tail(data=b"a")]),
    "no line end": (b"event: x\ndata: a", [tail(b"x", b"a")]),
    "half a field": (b"data: a\nda", [tail(data=b"a")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("case", TABLE)
def test_sse_table(case: str) -> None:
    body, expected = TABLE[case]
    assert [(e.kind, e.name, e.data, e.id, e.retry, e.comments) for e in events(body, SSE)] == expected


def test_spans_hold_the_blank_line() -> None:
    body = b"\xef\xbb\xbfdata: a\r\n\r\n: ka\n\ndata: b"
    assert [(e.start, e.stop) for e in events(body, SSE)] == [(0, 14), (14, 20), (20, 27)]


def test_an_lf_after_a_reported_cr_is_a_block_of_its_own() -> None:
    reader = SseReader()
    assert [(e.kind, e.stop) for e in reader.feed(b"data\r\n\r")] == [(Kind.EVENT, 7)]
    assert reader.feed(b"") == []
    assert reader.feed(b"\ndata\n\n") == [Event(Kind.BLOCK, 7, 8), Event(Kind.EVENT, 8, 14)]
    assert reader.close() == []


NDJSON_TABLE = {
    "two": (b'{"a":1}\n{"b":2}\n', [(Kind.EVENT, b'{"a":1}'), (Kind.EVENT, b'{"b":2}')]),
    "CRLF": (b'{"a":1}\r\n', [(Kind.EVENT, b'{"a":1}')]),
    "blank": (b'\n \t\r\n{"a":1}\n', [(Kind.BLOCK, b""), (Kind.BLOCK, b" \t"), (Kind.EVENT, b'{"a":1}')]),
    "CR inside": (b'{"a":\r1}\n', [(Kind.EVENT, b'{"a":\r1}')]),
    "separators inside": ('"\u2028\u0085"\n'.encode(), [(Kind.EVENT, '"\u2028\u0085"'.encode())]),
    "whole last line": (b'{"a":1}\n{"b":2}', [(Kind.EVENT, b'{"a":1}'), (Kind.EVENT, b'{"b":2}')]),
    "whole last line as lenient clients see it": (b'"\\ud83c"', [(Kind.EVENT, b'"\\ud83c"')]),
    "half a last line": (b'{"a":1}\n{"b":', [(Kind.EVENT, b'{"a":1}'), (Kind.TAIL, b'{"b":')]),
    "blank last line": (b'{"a":1}\n ', [(Kind.EVENT, b'{"a":1}'), (Kind.TAIL, b" ")]),
    "no JSON is still a line": (b"oops\n", [(Kind.EVENT, b"oops")]),
    "deep": (b"[" * 100_000, [(Kind.TAIL, b"[" * 100_000)]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("case", NDJSON_TABLE)
def test_ndjson_table(case: str) -> None:
    body, expected = NDJSON_TABLE[case]
    assert [(e.kind, e.data) for e in events(body, NDJSON)] == expected


@pytest.mark.parametrize(
    ("content_type", "reader"),
    [
        (b"text/event-stream", SseReader),
        (b"Text/Event-Stream; charset=utf-8", SseReader),
        (b" text/event-stream ;x", SseReader),
        (b"application/x-ndjson", NdjsonReader),
        (b"application/ndjson;charset=utf-8", NdjsonReader),
        (b"APPLICATION/JSONL", NdjsonReader),
        (b"application/json-lines", NdjsonReader),
        (b"application/json", type(None)),
        (b"text/event-streams", type(None)),
        (b"", type(None)),
        (None, type(None)),
    ],
)
def test_reader_for(content_type: bytes | None, reader: type) -> None:
    assert type(reader_for(content_type)) is reader


def test_no_events_in_other_bodies() -> None:
    assert events(b"data: x\n\n", b"application/json") == []


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,null]}', {"a": [1, None]}),
        (b'"\\ud83c"', "\ud83c"),
        (b'"a\xffb"', "a\ufffdb"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b"{", None),
        (b"", None),
        (b"1" * 5000, None),
        (b"[" * 100_000, None),
    ],
)
def test_json_is_read_as_clients_read_it(data: bytes, value: object) -> None:
    assert Event(Kind.EVENT, 0, 1, data=data).json() == value


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize("content_type", [SSE, NDJSON])
def test_a_huge_line_in_many_pieces_is_linear(content_type: bytes) -> None:
    # Copying what is there with each piece would move 50 GB; linear is about a tenth of a second.
    piece = b"data: " + b"x" * 994
    reader = reader_for(content_type)
    assert reader is not None
    began = time.perf_counter()
    for _ in range(10_000):
        assert reader.feed(piece) == []
    assert len(reader.feed(b"\n\n")) >= 1
    assert time.perf_counter() - began < 5


def test_a_megabyte_in_single_bytes_takes_seconds_at_most() -> None:
    body = (b'data: {"choices":[{"delta":{"content":"Hello"}}]}' + b" " * 200 + b"\n\n") * 4000
    reader = SseReader()
    began = time.perf_counter()
    found = read(reader, [body[i : i + 1] for i in range(len(body))])
    assert time.perf_counter() - began < 30
    assert len(found) == 4000


def test_a_reader_that_gave_up_holds_nothing_and_says_nothing() -> None:
    for reader in (SseReader(100), NdjsonReader(100)):
        assert len(reader.feed(b"data: x\n\n")) >= 1
        assert reader.feed(b"x" * 101) == []
        assert reader.gave_up
        assert reader.feed(b"\n\ndata: x\n\n") == []
        assert reader.close() == []
