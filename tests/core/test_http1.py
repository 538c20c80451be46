"""Where an answer begins and ends is found as clients find it, however its bytes are cut, and no byte is lost."""

import time

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.http1 import MAX_HEAD, Framing, Head, Tracker, framing_of, parse_head, scan
from mockllm.core.response import End, Response, Segment
from tests.captures import Capture, captures
from tests.core.nasties import (
    CHUNKED,
    LAST,
    NASTIES,
    OK,
    Nasty,
    answers,
    chunk,
    counted,
    cuttings,
    lawful,
)
from tests.core.roundtrip import singly

Verdict = tuple[bytes, bool, bool]
"""The body, whether its end was seen, and whether it is whole if the server closes now."""

REFUSED_BY_H11 = {
    "not-a-status-line",
    "garbage",
    "garbage-that-begins-like-http",
    "garbage-then-a-head",
    "blank-line-first",
    "lone-cr-in-status-line",
    "http2-preface",
    "bare-lf-chunks",
    "chunk-size-is-no-number",
    "size-of-21-digits",
    "chunk-size-is-negative",
    "chunk-size-has-underscore",
    "chunk-longer-than-its-size",
    "chunk-ends-with-cr-only",
    "empty-line-for-a-size",
    "chunked-not-last",
    "gzip-then-chunked",
    "upgrade-nobody-asked-for",
    "lengths-that-conflict",
    "length-that-is-no-number",
    "length-with-many-digits",
    "folded-without-a-header",
    "header-without-colon",
    "space-before-colon",
    "header-name-not-utf8",
    "odd-header-value",
    "lone-cr-in-a-header",
}
"""Nasties that h11 will not read, and mockllm must all the same."""


def ours(method: str, pieces: list[bytes]) -> Verdict:
    """What the tracker makes of an answer."""
    tracker = Tracker(method)
    body = b""
    for at, piece in enumerate(pieces):
        segments = tracker.feed(at, piece)
        assert b"".join(segment.wire for segment in segments) == piece
        assert all(segment.at == at for segment in segments)
        body += b"".join(segment.data for segment in segments)
    assert tracker.body_length == len(body)
    return body, tracker.done, tracker.eof()


def by_h11(method: str, pieces: list[bytes]) -> Verdict | None:
    """What h11 makes of an answer as a client; None where it refuses it."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1_000_000)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    connection.send(h11.EndOfMessage())
    body = b""
    try:
        for piece in filter(None, pieces):
            connection.receive_data(piece)
            while (event := connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Data):
                    body += event.data
                if isinstance(event, h11.EndOfMessage):
                    return body, True, True
    except h11.RemoteProtocolError:
        return None
    try:
        connection.receive_data(b"")
        whole = isinstance(connection.next_event(), h11.EndOfMessage)
    except h11.RemoteProtocolError:
        whole = False
    return body, False, whole


@pytest.mark.parametrize("nasty", NASTIES, ids=str)
def test_a_nasty_is_read_as_it_should_be(nasty: Nasty) -> None:
    for pieces in (list(nasty.reads), [nasty.wire], singly(nasty.wire)):
        tracker = Tracker(nasty.method)
        body = b"".join(segment.data for piece in pieces for segment in tracker.feed(0, piece))
        assert (body, tracker.eof()) == (nasty.body, nasty.whole)
        assert (None if tracker.head is None else tracker.head.status) == nasty.status


@pytest.mark.parametrize("nasty", NASTIES, ids=str)
def test_h11_agrees_about_each_nasty_that_it_reads(nasty: Nasty) -> None:
    for pieces in (list(nasty.reads), [nasty.wire], singly(nasty.wire)):
        found = by_h11(nasty.method, pieces)
        assert (found is None) == (nasty.name in REFUSED_BY_H11)
        assert found is None or found == ours(nasty.method, pieces)


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_h11_agrees_about_each_capture(capture: Capture) -> None:
    reads = [data for _, data in capture.reads]
    found = by_h11(capture.method, reads)
    assert found is not None
    assert found == ours(capture.method, reads) == ours(capture.method, [capture.response])
    assert found == ours(capture.method, singly(capture.response)) == by_h11(capture.method, singly(capture.response))


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_h11_agrees_about_each_capture_that_breaks_off(capture: Capture) -> None:
    for stop in range(0, len(capture.response), 1 + len(capture.response) // 300):
        broken = [capture.response[:stop]]
        assert by_h11(capture.method, broken) == ours(capture.method, broken)


@given(st.data())
def test_h11_agrees_about_any_lawful_answer(data: st.DataObject) -> None:
    method, wire = data.draw(lawful())
    pieces = [piece for _, piece in data.draw(cuttings(wire))]
    found = by_h11(method, pieces)
    assert found is not None
    assert found == ours(method, pieces) == ours(method, singly(wire))


@given(st.data())
def test_any_answer_is_read_alike_however_it_is_cut(data: st.DataObject) -> None:
    method, wire = data.draw(answers())
    pieces = [piece for _, piece in data.draw(cuttings(wire))]
    assert ours(method, pieces) == ours(method, [wire]) == ours(method, singly(wire))


HEADS = [
    (b"HTTP/1.1 200 OK\r\n\r\n", Head("1.1", 200, b"OK", ())),
    (b"HTTP/1.0 404 Not  Found \r\nA: b\r\n\r\n", Head("1.0", 404, b"Not  Found ", ((b"A", b"b"),))),
    (b"HTTP/1.1 200\r\n\r\n", Head("1.1", 200, None, ())),
    (b"HTTP/1.1 200 \r\n\r\n", Head("1.1", 200, b"", ())),
    (
        b"HTTP/1.1 200 OK\r\na:  b \r\nA: \r\nA: x:y\r\n\r\n",
        Head("1.1", 200, b"OK", ((b"a", b" b "), (b"A", b""), (b"A", b"x:y"))),
    ),
]
"""Heads that render to the bytes they were read from."""


@pytest.mark.parametrize(("raw", "head"), HEADS)
def test_a_usual_head_reads_and_renders_alike(raw: bytes, head: Head) -> None:
    assert parse_head(raw) == head
    assert head.render() == raw


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (b"HTTP/1.1 200 OK\nA: b\n\n", ((b"A", b"b"),)),
        (b"HTTP/1.1 200 OK\r\nA:b\r\n\r\n", ((b"A", b"b"),)),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\t d\r\n \r\nE: f\r\n\r\n", ((b"A", b"b c d"), (b"E", b"f"))),
        (b"HTTP/1.1 200 OK\r\n folded\r\nA: b\r\n\r\n", ((b"A", b"b"),)),
        (b"HTTP/1.1 200 OK\r\nnonsense\r\n: x\r\nA: b\r\n\r\n", ((b"A", b"b"),)),
    ],
)
def test_an_unusual_head_is_read_but_not_rendered_so(raw: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    head = parse_head(raw)
    assert head is not None
    assert head.headers == headers
    assert head.render() != raw


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"HTTP/1.1",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 099 x",
        b"HTTP/11 200 OK",
        b"http/1.1 200 OK",
        b" HTTP/1.1 200 OK",
        b"HTTP/1.1 200OK",
        b"GET / HTTP/1.1",
    ],
)
def test_what_is_no_status_line(line: bytes) -> None:
    assert parse_head(line + b"\r\n\r\n") is None


@pytest.mark.parametrize(
    ("status", "headers", "method", "expected"),
    [
        (200, [], "GET", (Framing.CLOSE, 0)),
        (200, [(b"Content-Length", b"5")], "GET", (Framing.LENGTH, 5)),
        (200, [(b"CONTENT-length", b" 5\t")], "GET", (Framing.LENGTH, 5)),
        (200, [(b"Content-Length", b"5"), (b"Content-Length", b"5")], "GET", (Framing.LENGTH, 5)),
        (200, [(b"Content-Length", b"5, 6")], "GET", (Framing.CLOSE, 0)),
        (200, [(b"Content-Length", b"-5")], "GET", (Framing.CLOSE, 0)),
        (200, [(b"Content-Length", "\u0665".encode())], "GET", (Framing.CLOSE, 0)),
        (200, [(b"Content-Length", b"0" * 19 + b"5")], "GET", (Framing.LENGTH, 5)),
        (200, [(b"Content-Length", b"0" * 20 + b"5")], "GET", (Framing.CLOSE, 0)),
        (200, [(b"Content-Length", b"5")], "HEAD", (Framing.NONE, 0)),
        (204, [(b"Content-Length", b"5")], "GET", (Framing.NONE, 0)),
        (304, [(b"Transfer-Encoding", b"chunked")], "GET", (Framing.NONE, 0)),
        (101, [(b"Content-Length", b"5")], "HEAD", (Framing.CLOSE, 0)),
        (500, [(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"5")], "GET", (Framing.CHUNKED, 0)),
        (200, [(b"Transfer-Encoding", b"gzip, Chunked")], "GET", (Framing.CHUNKED, 0)),
        (200, [(b"Transfer-Encoding", b"gzip"), (b"Content-Length", b"5")], "GET", (Framing.CLOSE, 0)),
        (200, [(b"Transfer-Encoding", b" "), (b"Content-Length", b"5")], "GET", (Framing.LENGTH, 5)),
    ],
)
def test_the_framing_of_a_head(
    status: int, headers: list[tuple[bytes, bytes]], method: str, expected: tuple[Framing, int]
) -> None:
    assert framing_of(Head("1.1", status, b"x", tuple(headers)), method) == expected


def segments_of(*pieces: bytes, method: str = "POST") -> list[list[tuple[bytes, bytes, bytes]]]:
    """How each piece is cut, as (before, data, after)."""
    tracker = Tracker(method)
    return [[(cut.before, cut.data, cut.after) for cut in tracker.feed(0, piece)] for piece in pieces]


def test_a_read_is_cut_where_head_body_and_framing_meet() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    first = hints + CHUNKED + b"3\r\nabc\r\n" + b"4\r\nde"
    assert segments_of(first, b"fg\r", b"\n2\r\nhi\r\n0\r\n\r\nsurplus") == [
        [(hints, b"", b""), (CHUNKED, b"", b""), (b"3\r\n", b"abc", b"\r\n"), (b"4\r\n", b"de", b"")],
        [(b"", b"fg", b""), (b"\r", b"", b"")],
        [(b"\n2\r\n", b"hi", b"\r\n"), (b"0\r\n\r\n", b"", b""), (b"surplus", b"", b"")],
    ]


def test_framing_that_is_not_text_stands_alone() -> None:
    assert segments_of(CHUNKED, b"1;\xff\r\na\r\n") == [
        [(CHUNKED, b"", b"")],
        [(b"1;\xff\r\n", b"", b""), (b"", b"a", b"\r\n")],
    ]


def test_the_segment_that_ends_the_head_is_told() -> None:
    tracker = Tracker("GET")
    tracker.feed(1, b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    assert tracker.head_segment is None
    tracker.feed(2, b"Content-Length: 3\r\n\r\nab")
    assert tracker.head_segment == Segment(2, before=b"Content-Length: 3\r\n\r\n")
    assert (tracker.body_length, tracker.left) == (2, 1)


@pytest.mark.parametrize(
    ("start", "endless", "framing"),
    [
        (OK + b"A: ", b"x", None),
        (CHUNKED + b"5;", b"x", Framing.CHUNKED),
        (CHUNKED + b"0\r\nA: ", b"x", Framing.CHUNKED),
        (CHUNKED + b"1\r\na", b"x", Framing.CHUNKED),
    ],
    ids=["head", "size-line", "trailer", "chunk-end"],
)
def test_a_line_that_never_ends_is_given_up(start: bytes, endless: bytes, framing: Framing | None) -> None:
    for pieces in ([start + endless * (MAX_HEAD + 10)], [start, *[endless * 1000] * (MAX_HEAD // 1000 + 10)]):
        tracker = Tracker("GET")
        for piece in pieces:
            tracker.feed(0, piece)
        assert (tracker.bad, tracker.done, tracker.eof(), tracker.framing) == (True, False, False, framing)
        [after] = tracker.feed(1, b"\r\n\r\n0\r\n\r\n")
        assert after == Segment(1, before=b"\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "start",
    [CHUNKED + b"f4240\r\n", OK + b"X: ", CHUNKED + b"5;"],
    ids=["chunk", "head", "size-line"],
)
def test_a_byte_costs_no_more_for_those_before_it(start: bytes) -> None:
    """CPU time, the least of many blocks: were earlier bytes copied each time, late blocks would cost far more."""
    tracker = Tracker("GET")
    tracker.feed(0, start)
    costs = []
    for _ in range(250):
        began = time.thread_time_ns()
        for _ in range(1000):
            tracker.feed(1, b"x")
        costs.append(time.thread_time_ns() - began)
    assert not tracker.bad
    assert min(costs[200:]) < 4 * min(costs[:50])


def response(*pieces: bytes, end: End = End.COMPLETE) -> Response:
    """Pieces as the reads of a response, 1 µs apart."""
    return Response(tuple(Segment(at, before=piece) for at, piece in enumerate(pieces)), end, len(pieces))


def test_scan_reads_a_whole_response() -> None:
    found = scan(response(CHUNKED + b"3\r\nabc\r\n", b"2\r\nde\r\n" + LAST))
    assert (found.framing, found.body, found.done, found.whole, found.bad) == (
        Framing.CHUNKED,
        b"abcde",
        True,
        True,
        False,
    )
    assert [segment.at for segment in found.segments] == [0, 0, 1, 1]
    assert found.head is not None
    assert found.head.values(b"content-type") == [b"text/event-stream"]


def test_scan_says_what_is_missing_and_where_the_head_ends() -> None:
    assert scan(response(counted(5), b"ab")).missing == 3
    assert scan(response(CHUNKED + b"5\r\nab")).missing == 3
    assert scan(response(CHUNKED + b"5\r\nabcdeX")).missing == 0
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    assert scan(response(interim + OK, b"Content-Length: 2\r\n\r\nhi")).head_segments == 3
    assert scan(response(interim, counted(0))).head_segments == 2
    assert scan(response(b"garbage")).head_segments == 0


def test_segments_of_one_time_are_one_read() -> None:
    parts = (Segment(0, before=OK + b"Content-Le"), Segment(0, before=b"ngth: 2\r\n\r\n"), Segment(0, b"hi"))
    assert scan(Response(parts, End.COMPLETE, 0)).segments == (Segment(0, before=counted(2)), Segment(0, b"hi"))


def test_chunks_are_not_taken_for_body() -> None:
    assert scan(response(CHUNKED, chunk(b"a"), chunk(b"b"), LAST)).body == b"ab"
