"""Whole traces: requests, reads, times and endings as curl logged them, and what is made of the rest."""

import gzip
from itertools import pairwise
from typing import Any

import pytest

from mockllm.core.cassette import loads
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.exchange import Exchange
from mockllm.core.http1 import scan
from mockllm.core.importers import Given, Imported, read_capture
from mockllm.core.response import End, Response, Then
from mockllm.core.tape import dump
from tests.core.importers.traces import came, info, sent

GET = b"GET /v1/x HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /v1/x?key=secret HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer secret\r\nContent-Length: 7\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
CLOSE = b"HTTP/1.0 200 OK\r\n\r\n"
HEL = b'data: {"choices":[{"delta":{"content":"H\xc3\xa9l."}}]}\n\n'
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
INTACT = "Connection #0 to host h left intact"


def at(micros: int) -> str:
    """µs after ten o'clock, as curl writes it."""
    return f"10:00:{micros // 1_000_000:02d}.{micros % 1_000_000:06d}"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read(*parts: bytes, **given: Any) -> Imported:
    """Import, and check that the cassette says the same."""
    imported = read_capture(b"".join(parts), "cap", Given(**given))
    again = loads(b"".join(map(dump, imported.exchanges)))
    for one, two in zip(imported.exchanges, again, strict=True):
        assert list(one.response.reads()) == list(two.response.reads())
        assert (one.response.end, one.response.end_at) == (two.response.end, two.response.end_at)
        assert (one.request.method, one.request.target) == (two.request.method, two.request.target)
    return imported


def only(*parts: bytes, **given: Any) -> Exchange:
    [exchange] = read(*parts, **given).exchanges
    return exchange


def test_request_reads_times_and_end() -> None:
    imported = read(
        info("Trying 127.0.0.1:80...", at=at(0)),
        sent(POST, at=at(1000)),
        sent(b'{"a":', "data", at=at(1500)),
        sent(b"1}", "data", at=at(2000)),
        came(CHUNKED, at=at(5000)),
        came(chunk(HEL), "data", at=at(15_000)),
        came(chunk(DONE) + LAST, "data", at=at(1_000_000)),
        info(INTACT, at=at(1_000_100)),
    )
    [exchange] = imported.exchanges
    request, response = exchange.request, exchange.response
    assert (request.method, request.target, request.body) == ("POST", b"/v1/x?key=[redacted]", b'{"a":1}')
    assert request.headers == ((b"Host", b"h"), (b"Authorization", b"[redacted]"), (b"Content-Length", b"7"))
    assert (request.early, request.cut) == (False, False)
    assert dict(exchange.meta) == {"origin": "imported"}
    assert list(response.reads()) == [(3000, CHUNKED), (13_000, chunk(HEL)), (998_000, chunk(DONE) + LAST)]
    assert (response.end, response.end_at, response.then) == (End.COMPLETE, 998_000, Then.OPEN)
    assert (response.method, response.target) == ("POST", b"/v1/x?key=[redacted]")
    assert imported.notes == ()
    assert imported.kind == "a curl trace"


def test_secrets_are_found_by_name_and_where_the_server_echoes_them() -> None:
    key = b"sk-0123456789abcdef"
    echoed = b'{"you":"%b"}' % key
    head = b"HTTP/1.1 401 No\r\nSet-Cookie: s=%b\r\nContent-Length: %d\r\n\r\n" % (b"abcdefghijkl", len(echoed))
    ask = b"GET /v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\n\r\n" % key
    for given in ({}, {"framing": "http1.0"}):
        text = dump(only(sent(ask), came(head), came(echoed, "data"), **given))
        assert key not in text
        assert b"abcdefghijkl" not in text
        assert b'"you' in text.replace(b"\\", b"")


def answered(*came_at: bytes, then: str = INTACT, **given: Any) -> Response:
    """The response to a GET sent at 0, and a remark after half a second."""
    return only(sent(GET, at=at(0)), *came_at, info(then, at=at(500_000)), **given).response


def test_a_head_logged_over_some_time_came_in_several_reads() -> None:
    first, second = CHUNKED[:30], CHUNKED[30:]
    first, second = CHUNKED.partition(b"Transfer")[0], b"Transfer" + CHUNKED.partition(b"Transfer")[2]
    found = answered(came(first, at=at(100)), came(second, at=at(1100)), came(chunk(DONE) + LAST, "data", at=at(1200)))
    assert [moment for moment, _ in found.reads()] == [100, 1200]
    found = answered(came(first, at=at(100)), came(second, at=at(1101)), came(chunk(DONE) + LAST, "data", at=at(1101)))
    assert [moment for moment, _ in found.reads()] == [100, 1101, 1102]  # reads are apart


def test_reads_keep_their_borders() -> None:
    pieces = [chunk(HEL)[:7], chunk(HEL)[7:] + chunk(DONE), LAST[:3], LAST[3:]]
    found = answered(came(CHUNKED, at=at(1)), *(came(piece, "data", at=at(9 + n)) for n, piece in enumerate(pieces)))
    assert [data for _, data in found.reads()] == [CHUNKED, *pieces]
    assert found.end is End.COMPLETE


@pytest.mark.parametrize(
    ("remark", "end", "at_us"),
    [
        ("transfer closed with outstanding read data remaining", End.FIN, 500_000),
        ("end of response with 3 bytes missing", End.FIN, 500_000),
        ("Recv failure: Connection reset by peer", End.RST, 500_000),
        ("Recv failure: Connection was reset", End.RST, 500_000),
        ("HTTP/2 stream 1 was not closed cleanly: INTERNAL_ERROR (err 2)", End.RST, 500_000),
        ("OpenSSL SSL_read: error:0A000126:SSL routines::unexpected eof while reading, errno 0", End.FIN, 500_000),
        ("Failed writing body", End.CLIENT, 10),
        ("Closing connection 0", End.CLIENT, 10),
        (INTACT, End.CLIENT, 10),
    ],
)
@pytest.mark.parametrize("head", [CHUNKED, LENGTH], ids=["chunked", "length"])
def test_how_an_unfinished_answer_ended(head: bytes, remark: str, end: End, at_us: int) -> None:
    body = chunk(b"abc") if head is CHUNKED else b"abc"
    found = answered(came(head, at=at(1)), came(body, "data", at=at(10)), then=remark)
    assert (found.end, found.end_at, found.then) == (end, at_us, Then.OPEN)


@pytest.mark.parametrize(("after", "end"), [(1_000_010, End.HANG), (1_000_009, End.CLIENT)])
def test_curls_time_out_ends_a_silence_or_leaves_in_mid_stream(after: int, end: End) -> None:
    for text in (
        "Operation timed out after 1000 milliseconds with 3 bytes received",
        "Operation too slow. Less than 1",
    ):
        imported = read(
            sent(GET, at=at(0)),
            came(LENGTH, at=at(1)),
            came(b"abc", "data", at=at(10)),
            info(text, at=at(after)),
            info("Closing connection 0", at=at(after)),
        )
        found = imported.exchanges[0].response
        assert (found.end, found.end_at) == (end, after)
        assert any("time-out" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("lines", "remark", "then"),
    [
        (b"", "Closing connection 0", Then.OPEN),
        (b"Connection: close\r\n", "Closing connection 0", Then.FIN),
        (b"Connection: close\r\n", "closing connection #0", Then.FIN),
        (b"Connection: close\r\n", "shutting down connection #0", Then.FIN),
        (b"Connection: close\r\n", "x", Then.FIN),
        (b"Connection: close\r\n", INTACT, Then.FIN),
    ],
)
def test_what_the_server_did_then_is_what_it_said(lines: bytes, remark: str, then: Then) -> None:
    head = LENGTH[:-2] + lines + b"\r\n"
    found = answered(came(head, at=at(1)), came(b"hello", "data", at=at(10)), then=remark)
    assert (found.end, found.end_at, found.then) == (End.COMPLETE, 10, then)
    if then is Then.FIN:
        assert found.then_at == (10 if remark == "x" else 500_000)


def test_a_body_until_the_close() -> None:
    body = came(b"hello", "data", at=at(10))
    old = answered(came(CLOSE, at=at(1)), body, then="Closing connection 0")
    assert (old.wire, old.end, old.end_at, old.then) == (CLOSE + b"hello", End.COMPLETE, 500_000, Then.FIN)
    new = answered(came(CLOSE, at=at(1)), body, came(b"", "data", at=at(300)), then="shutting down connection #0")
    assert (new.end, new.end_at) == (End.COMPLETE, 300)
    assert answered(came(CLOSE, at=at(1)), body, then="Recv failure: Connection reset by peer").end is End.RST
    stopped = read(sent(GET, at=at(0)), came(CLOSE, at=at(1)), body)
    assert stopped.exchanges[0].response.end is End.CLIENT
    assert stopped.notes == ("the trace ends in mid-answer: written as if the client had left there",)


def test_no_answer_at_all() -> None:
    found = answered(then="Empty reply from server")
    assert (found.segments, found.end, found.end_at) == ((), End.FIN, 500_000)
    half = answered(came(b"HTTP/1.1 200 OK\r\n", at=at(1)), then="Recv failure: Connection reset by peer")
    assert (half.wire, half.end) == (b"HTTP/1.1 200 OK\r\n", End.RST)


def test_surplus_and_trailers_are_kept() -> None:
    found = answered(came(LENGTH, at=at(1)), came(b"hellomore", "data", at=at(10)))
    assert (found.wire, found.end) == (LENGTH + b"hellomore", End.COMPLETE)
    trailers = chunk(DONE) + b"0\r\nX-Sum: 1\r\n\r\n"
    assert answered(came(CHUNKED, at=at(1)), came(trailers, "data", at=at(10))).wire == CHUNKED + trailers


def test_a_compressed_body_is_as_it_came() -> None:
    packed = gzip.compress(HEL + DONE, mtime=0)
    head = CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    assert (
        answered(came(head, at=at(1)), came(chunk(packed) + LAST, "data", at=at(9))).wire == head + chunk(packed) + LAST
    )


def test_a_body_shown_without_its_chunks_gets_one_a_read() -> None:
    parts = came(CHUNKED, at=at(1)), came(HEL, "data", at=at(10)), came(DONE, "data", at=at(20))
    imported = read(sent(GET, at=at(0)), *parts, info(INTACT, at=at(30)))
    found = imported.exchanges[0].response
    assert list(found.reads()) == [(1, CHUNKED), (10, chunk(HEL)), (20, chunk(DONE)), (30, LAST)]
    assert (found.end, found.end_at) == (End.COMPLETE, 30)
    assert "the trace shows the body without its chunks: written with one for each read" in imported.notes
    cut = answered(*parts, then="transfer closed with outstanding read data remaining")
    assert (cut.wire, cut.end) == (CHUNKED + chunk(HEL) + chunk(DONE), End.FIN)


def test_http2() -> None:
    head = b"HTTP/2 200 \r\ncontent-type: text/event-stream\r\n\r\n"
    written = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = sent(b"POST /v1 HTTP/2\r\nHost: h\r\n\r\n", at=at(0)), came(head, at=at(5))
    data = came(HEL, "data", at=at(10))
    imported = read(*parts, data, came(b"x-sum: 1\r\n", at=at(20)), info(INTACT, at=at(30)))
    [exchange] = imported.exchanges
    assert (exchange.request.method, exchange.request.target) == ("POST", b"/v1")
    assert list(exchange.response.reads()) == [(5, written), (10, chunk(HEL)), (30, LAST)]
    assert exchange.response.end is End.COMPLETE
    assert "trailers of HTTP/2 are left out" in imported.notes
    assert "HTTP/2 on the wire: written as HTTP/1.1, which is what mockllm plays" in imported.notes
    empty = only(*parts, info(INTACT, at=at(30))).response
    assert (empty.wire, empty.end) == (written + LAST, End.COMPLETE)


def test_several_requests_on_a_connection() -> None:
    one = sent(GET), came(LENGTH), came(b"hello", "data"), info(INTACT)
    two = sent(POST), sent(b'{"a":1}', "data"), came(LENGTH), came(b"world", "data"), info(INTACT)
    imported = read(*one, info("Re-using existing connection"), *two)
    assert [(found.request.method, found.response.wire[-5:]) for found in imported.exchanges] == [
        ("GET", b"hello"),
        ("POST", b"world"),
    ]


def test_transfers_at_once_are_told_apart_by_their_ids() -> None:
    trace = (
        info("Trying", at=at(0), ids="0-x"),
        sent(GET, at=at(0), ids="0-0"),
        sent(GET.replace(b"/x", b"/y"), at=at(10), ids="1-1"),
        came(LENGTH, at=at(20), ids="1-1"),
        came(LENGTH, at=at(30), ids="0-0"),
        came(b"world", "data", at=at(40), ids="1-1"),
        came(b"hello", "data", at=at(50), ids="0-0"),
        info("Recv failure: Connection reset by peer", at=at(60), ids="1-1"),
    )
    found = read(*trace).exchanges
    assert [(one.request.target, one.response.wire[-5:]) for one in found] == [
        (b"/v1/x", b"hello"),
        (b"/v1/y", b"world"),
    ]
    assert [[moment for moment, _ in one.response.reads()] for one in found] == [[30, 50], [10, 30]]


def test_the_rest_of_an_answer_before_a_request() -> None:
    trace = came(b"llo", "data"), sent(GET), came(LENGTH), came(b"world", "data")
    assert [one.request.target for one in read(*trace).exchanges] == [b"*", b"/v1/x"]


def test_a_request_in_several_blocks() -> None:
    found = only(sent(GET[:20]), sent(GET[20:]), came(LENGTH), came(b"hello", "data"))
    assert (found.request.target, found.request.headers) == (b"/v1/x", ((b"Host", b"h"),))


def test_an_upload_in_chunks() -> None:
    head = b"POST /v1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert only(sent(head), sent(chunk(b'{"a":1}') + LAST, "data"), came(LENGTH)).request.body == b'{"a":1}'


def test_100_continue_is_left_out() -> None:
    wait = b"HTTP/1.1 100 Continue\r\n"  # curl logs no blank line after it
    for head in (wait, wait + b"\r\n"):
        imported = read(
            sent(POST, at=at(0)),
            came(head, at=at(10)),
            sent(b'{"a":1}', "data", at=at(20)),
            came(LENGTH, at=at(25)),
            came(b"hello", "data", at=at(30)),
        )
        [exchange] = imported.exchanges
        assert list(exchange.response.reads()) == [(5, LENGTH), (10, b"hello")]
        assert not exchange.request.early
        assert "100 Continue left out: it answers curl's own Expect header" in imported.notes


def test_an_early_hint_stays() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    found = answered(came(hint, at=at(10)), came(LENGTH, at=at(2000)), came(b"hello", "data", at=at(2001)))
    assert list(found.reads()) == [(10, hint), (2000, LENGTH), (2001, b"hello")]


def test_an_answer_before_the_request_was_fully_sent() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    early = only(sent(POST, at=at(5)), came(busy, at=at(10)), sent(b'{"a":1}', "data", at=at(20))).request
    assert (early.early, early.cut, early.body) == (True, False, b'{"a":1}')
    cut = only(sent(POST, at=at(5)), sent(b'{"a', "data", at=at(7)), came(busy, at=at(10)))
    assert (cut.request.early, cut.request.cut, cut.request.body) == (True, True, b'{"a')
    assert list(cut.response.reads()) == [(5, busy)]  # counted from when the request began


def test_a_proxy_in_between() -> None:
    connect = (
        sent(b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"),
        came(b"HTTP/1.1 200 Connection established\r\n\r\n"),
    )
    imported = read(*connect, sent(b"\x16", "SSL data"), sent(GET), came(LENGTH), came(b"hello", "data"))
    assert [one.request.method for one in imported.exchanges] == ["GET"]
    assert "CONNECT left out: it is between curl and its proxy" in imported.notes
    with pytest.raises(MockllmError, match=r"^cap: is a curl trace without a request and without an answer$"):
        read(*connect)


def test_an_answer_to_head() -> None:
    found = only(sent(GET.replace(b"GET", b"HEAD")), came(LENGTH), info(INTACT)).response
    assert (found.wire, found.end) == (LENGTH, End.COMPLETE)


def test_a_trace_without_the_request() -> None:
    imported = read(came(LENGTH, at=at(10)), came(b"hello", "data", at=at(30)), path="/v1/x", method="PUT")
    [exchange] = imported.exchanges
    assert (exchange.request.method, exchange.request.target, exchange.request.body) == ("PUT", b"/v1/x", None)
    assert list(exchange.response.reads()) == [(0, LENGTH), (20, b"hello")]
    assert any(note.startswith("the request is not known") for note in imported.notes)
    assert only(sent(b"nonsense\r\n\r\n"), came(LENGTH)).request.target == b"*"


def test_a_trace_without_times() -> None:
    parts = sent(GET), came(CHUNKED), came(chunk(HEL), "data"), came(chunk(DONE) + LAST, "data"), info(INTACT)
    imported = read(*parts)
    assert [moment for moment, _ in imported.exchanges[0].response.reads()] == [1, 2, 3]
    assert any(note.startswith("the trace has no times") for note in imported.notes)
    gaps = read(*parts, gap_us=20_000).exchanges[0].response
    assert [moment for moment, _ in gaps.reads()] == [20_000, 40_000, 60_000]
    assert gaps.end_at == 60_000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gap_us": 5}, "--gap makes no sense here: a trace with times tells that itself"),
        ({"method": "PUT"}, "--method makes no sense here: a curl trace tells that itself"),
        ({"path": "/x"}, "--path makes no sense here: a curl trace tells that itself"),
        ({"content_type": "a/b"}, "--content-type makes no sense here: a curl trace tells that itself"),
        ({"end": End.RST}, "--end makes no sense here: a curl trace tells that itself"),
    ],
)
def test_what_a_trace_tells_cannot_be_given(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as error:
        read(sent(GET, at=at(0)), came(LENGTH, at=at(1)), **given)
    assert str(error.value) == told


def test_it_can_be_framed_otherwise() -> None:
    parts = came(CHUNKED, at=at(1)), came(chunk(HEL), "data", at=at(10)), came(chunk(DONE) + LAST, "data", at=at(20))
    found = answered(*parts, framing="http1.0")
    assert list(found.reads()) == [
        (1, b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
        (10, HEL),
        (20, DONE),
    ]
    assert found.then is Then.FIN


TEXT: dict[str, Any] = {"text": True}


def test_a_trace_as_text_loses_what_does_not_print_but_not_the_lines() -> None:
    imported = read(
        sent(POST, **TEXT),
        sent(b'{"a":\n"b."}'[:7] + b"}", "data", **TEXT),
        came(CHUNKED, **TEXT),
        came(chunk(HEL[:20]) + chunk(HEL[20:]), "data", **TEXT),
        came(chunk(DONE) + LAST, "data", **TEXT),
    )
    body = scan(imported.exchanges[0].response).body
    assert body == (HEL + DONE).replace("é".encode(), b"..")
    assert imported.exchanges[0].response.wire.startswith(CHUNKED + chunk(HEL[:20]))
    assert imported.exchanges[0].response.end is End.COMPLETE
    assert any(note.startswith("--trace-ascii shows bytes that do not print as dots") for note in imported.notes)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'{\n"a":"b."\n}', b'{\n"a":"b."\n}'),
        ('{"a":"é"}'.encode(), None),
        (b"a=b&c", b"a=b&c"),
        (b"a\x00b", None),
    ],
)
def test_the_request_of_a_trace_as_text(body: bytes, kept: bytes | None) -> None:
    head = b"POST /v1 HTTP/1.1\r\nX-A: 1.0\r\n\r\n"
    imported = read(
        sent(head, **TEXT), sent(body, "data", **TEXT), came(LENGTH, **TEXT), came(b"hello", "data", **TEXT)
    )
    assert imported.exchanges[0].request.body == kept
    assert imported.exchanges[0].request.headers == ((b"X-A", b"1.0"),)
    lost = "letters outside ASCII may be lost in the request: any body matches (--trace keeps them)"
    assert (lost in imported.notes) == (kept is None)


def test_heads_with_bare_line_feeds_as_text() -> None:
    head = LENGTH.replace(b"\r\n", b"\n")
    assert only(sent(GET, **TEXT), came(head, **TEXT), came(b"hello", "data", **TEXT)).response.wire == head + b"hello"


def test_a_compressed_body_as_text_is_lost() -> None:
    packed = gzip.compress(HEL, mtime=0)
    head = LENGTH.replace(b"5", b"%d" % len(packed))[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    with pytest.raises(
        MockllmError, match=r"^cap: the body is compressed, and --trace-ascii lost its bytes: use --trace$"
    ):
        read(sent(GET, **TEXT), came(head, **TEXT), came(packed, "data", **TEXT))


def test_dots_of_an_answer_without_a_head_stay() -> None:
    found = only(sent(GET, **TEXT), came(b"a.\x00b", "data", **TEXT)).response
    assert found.wire == b"a..b"


def test_the_body_that_curl_printed_in_between() -> None:
    imported = read(sent(GET), came(LENGTH), came(b"hello", "data"), b"hello\n", info(INTACT))
    assert imported.exchanges[0].response.wire == LENGTH + b"hello"
    assert "1 lines that are no part of the trace are left out" in imported.notes


def test_a_clock_that_passes_midnight() -> None:
    found = only(
        sent(GET, at="23:59:59.900000"),
        came(LENGTH, at="00:00:00.100000"),
        came(b"hello", "data", at="00:00:00.200000"),
    ).response
    assert [moment for moment, _ in found.reads()] == [200_000, 300_000]


def test_reads_are_never_at_the_same_time() -> None:
    found = answered(came(LENGTH, at=at(1)), *(came(b"h", "data", at=at(1)) for _ in range(5)))
    assert all(before < after for (before, _), (after, _) in pairwise(found.reads()))
