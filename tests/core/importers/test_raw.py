"""Raw responses as curl prints them, with what is made of all that such a print does not tell."""

import gzip
import json
from typing import Any

import pytest

from mockllm.core.cassette import loads
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.exchange import Exchange
from mockllm.core.http1 import scan
from mockllm.core.importers import Given, Imported, read_capture
from mockllm.core.response import End, Response, Then
from mockllm.core.tape import dump

OK = b"HTTP/1.1 200 OK\r\n"
SSE = b"Content-Type: text/event-stream\r\n"
CHUNKED = OK + SSE + b"Transfer-Encoding: chunked\r\n\r\n"
HEL = b'data: {"choices":[{"delta":{"content":"H\xc3\xa9l"}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
KA = b": keepalive 1/2\n\n"
JSON = b'{"choices":[]}'
JSON_HEAD = OK + b"Content-Type: application/json\r\nContent-Length: 14\r\n\r\n"
LAST = b"0\r\n\r\n"
UNKNOWN_REQUEST = "the request is not known: it answers POST any path with any body (--method, --path)"
NO_TIMES = "the times are not known: everything comes at once (--gap 20ms puts so much before each event)"
UNCHUNKED = "curl took the chunks away: written with one for each event"
NOT_WHOLE = "nothing in it says that the stream was whole: written as closed early (--end complete)"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read(data: bytes, **given: Any) -> Imported:
    """Import, and check that the cassette says the same."""
    imported = read_capture(data, "cap", Given(**given))
    again = loads(b"".join(map(dump, imported.exchanges)))
    assert [one.response.wire for one in again] == [one.response.wire for one in imported.exchanges]
    assert [list(one.response.reads()) for one in again] == [list(one.response.reads()) for one in imported.exchanges]
    return imported


def only(data: bytes, **given: Any) -> Exchange:
    [exchange] = read(data, **given).exchanges
    return exchange


def response(data: bytes, **given: Any) -> Response:
    return only(data, **given).response


def body(found: Response) -> bytes:
    return scan(found).body


def test_a_stream_with_its_head_gets_its_chunks_back() -> None:
    imported = read(CHUNKED + KA + HEL + DONE)
    [exchange] = imported.exchanges
    assert exchange.response.wire == CHUNKED + chunk(KA) + chunk(HEL) + chunk(DONE) + LAST
    assert (exchange.response.end, exchange.response.then) == (End.COMPLETE, Then.OPEN)
    assert [at for at, _ in exchange.response.reads()] == [0]
    assert imported.notes == (UNKNOWN_REQUEST, UNCHUNKED, NO_TIMES)
    assert imported.kind == "a raw response"


def test_the_request_is_any_unless_it_is_given() -> None:
    unknown = only(JSON_HEAD + JSON)
    assert (unknown.request.method, unknown.request.target, unknown.request.body) == ("POST", b"*", None)
    assert unknown.request.headers == ()
    assert dict(unknown.meta) == {"origin": "imported"}
    given = only(JSON_HEAD + JSON, method="GET", path="/v1/x?key=secret&a=b")
    assert (given.request.method, given.request.target) == ("GET", b"/v1/x?key=[redacted]&a=b")
    assert (given.response.method, given.response.target) == ("GET", b"/v1/x?key=[redacted]&a=b")
    assert UNKNOWN_REQUEST not in read(JSON_HEAD + JSON, method="GET", path="/x").notes


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": "v1"}, "--path 'v1' is none: it begins with / and holds no space"),
        ({"path": "/a b"}, "--path '/a b' is none: it begins with / and holds no space"),
        ({"path": "/a\r\nX: y"}, "--path '/a\\r\\nX: y' is none: it begins with / and holds no space"),
        ({"method": "GET /"}, "--method 'GET /' is none, such as POST"),
        ({"content_type": "text/plain"}, "--content-type makes no sense here: the head tells that itself"),
        ({"end": End.COMPLETE}, "cap: --end complete makes no sense: the answer is shorter than its head promises"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as error:
        read(OK + b"Content-Length: 9\r\n\r\nabc", **given)
    assert str(error.value) == told


def test_a_gap_lies_before_each_event() -> None:
    imported = read(CHUNKED + KA + HEL + DONE, gap_us=20_000)
    assert [at for at, _ in imported.exchanges[0].response.reads()] == [0, 20_000, 40_000, 60_000]
    assert imported.exchanges[0].response.end_at == 60_000
    assert NO_TIMES not in imported.notes
    assert [at for at, _ in response(JSON_HEAD + JSON, gap_us=5000).reads()] == [0, 5000]
    assert NO_TIMES in read(JSON_HEAD + JSON, gap_us=0).notes


@pytest.mark.parametrize(
    ("stream", "end"),
    [
        (HEL + DONE, End.COMPLETE),
        (HEL + STOP, End.COMPLETE),
        (HEL + b'data: {"error":{"message":"overloaded"}}\n\n', End.COMPLETE),
        (HEL + b"data: [DONE]", End.COMPLETE),  # an editor took the last blank line
        (HEL + DONE[:-1], End.COMPLETE),
        (HEL, End.FIN),
        (HEL + STOP + HEL[:12], End.FIN),
        (KA, End.FIN),
        (b"", End.FIN),
    ],
    ids=["done", "finish", "error", "no-blank-line", "half-a-blank-line", "cut", "cut-later", "comments", "nothing"],
)
def test_a_stream_without_chunks_is_whole_where_it_says_so(stream: bytes, end: End) -> None:
    imported = read(CHUNKED + stream)
    found = imported.exchanges[0].response
    assert (found.end, body(found)) == (end, stream)
    assert scan(found).done == (end is End.COMPLETE)
    assert (NOT_WHOLE in imported.notes) == (end is End.FIN)


@pytest.mark.parametrize("end", list(End))
def test_the_end_can_be_given(end: End) -> None:
    imported = read(CHUNKED + HEL, end=end)
    found = imported.exchanges[0].response
    assert found.end is end
    assert found.wire.endswith(LAST) == (end is End.COMPLETE)
    assert NOT_WHOLE not in imported.notes


def test_chunks_that_are_there_are_kept() -> None:
    wire = CHUNKED + chunk(KA) + chunk(HEL[:9]) + b"%x;x=y\r\n%b\r\n" % (len(HEL[9:]), HEL[9:]) + chunk(DONE) + LAST
    found = response(wire, gap_us=1000)
    assert (found.wire, found.end) == (wire, End.COMPLETE)
    assert len(list(found.reads())) == 6
    cut = read(CHUNKED + chunk(DONE))
    assert cut.exchanges[0].response.end is End.FIN
    assert "no last chunk: written as closed early" in cut.notes


def test_a_length_is_kept_where_it_fits() -> None:
    assert response(JSON_HEAD + JSON).wire == JSON_HEAD + JSON
    short = read(JSON_HEAD + JSON[:9])
    assert (short.exchanges[0].response.wire, short.exchanges[0].response.end) == (JSON_HEAD + JSON[:9], End.FIN)
    assert any(
        note.startswith("9 bytes of body where Content-Length says 14: written as closed early") for note in short.notes
    )
    long = read(JSON_HEAD + JSON + b"\n")
    assert (long.exchanges[0].response.wire, long.exchanges[0].response.end) == (JSON_HEAD + JSON, End.COMPLETE)
    assert "1 bytes after the 14 that Content-Length says are left out" in long.notes


def test_a_body_until_the_close() -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-type: text/event-stream\r\n\r\n"
    found = response(head + KA + HEL)
    assert (found.wire, found.end, found.then) == (head + KA + HEL, End.COMPLETE, Then.FIN)
    closing = response(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi")
    assert (closing.end, closing.then) == (End.COMPLETE, Then.FIN)


def test_answers_without_a_body() -> None:
    assert response(b"HTTP/1.1 204 No Content\r\n\r\n").end is End.COMPLETE
    head = OK + b"Content-Length: 9\r\n\r\n"
    assert response(head, method="HEAD").end is End.COMPLETE
    assert any("--method HEAD" in note for note in read(head).notes)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (b"Content-Encoding: gzip\r\n", HEL + DONE),
        (b"Content-Encoding: br\r\n", HEL + DONE),
        (
            b"Content-Encoding: deflate\r\n",
            HEL + DONE + HEL[: HEL.index(b"\xa9")],
        ),  # the half of a character at the end
    ],
)
def test_a_body_that_curl_has_decoded_is_written_plain(lines: bytes, text: bytes) -> None:
    with_length = read(OK + SSE + lines + b"Content-Length: 30\r\n\r\n" + text)
    assert with_length.exchanges[0].response.wire == OK + SSE + b"Content-Length: %d\r\n\r\n" % len(text) + text
    assert any(
        note.startswith("curl has decoded the body: written without Content-Encoding") for note in with_length.notes
    )
    chunked = response(CHUNKED[:-2] + lines + b"\r\n" + HEL + DONE)
    assert chunked.wire == CHUNKED + chunk(HEL) + chunk(DONE) + LAST


@pytest.mark.parametrize("lines", [b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n"])
def test_a_compressed_body_is_kept(lines: bytes) -> None:
    packed = gzip.compress(HEL + DONE, mtime=0) if b"gzip" in lines else b"\x80\xff\xfe"
    head = OK + SSE + lines + b"Content-Length: %d\r\n\r\n" % len(packed)
    assert response(head + packed).wire == head + packed
    chunked = CHUNKED[:-2] + lines + b"\r\n"
    found = response(chunked + packed)
    assert body(found) == packed
    assert found.end is (End.COMPLETE if b"gzip" in lines else End.FIN)
    assert response(chunked).end is End.FIN
    assert response(chunked + gzip.compress(HEL + DONE, mtime=0)[:-3], method="GET").end is End.FIN


def test_chunked_json_is_whole_where_it_is_json_and_other_bodies_are_taken_for_whole() -> None:
    head = OK + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert response(head + JSON).end is End.COMPLETE
    assert response(head + JSON[:-2]).end is End.FIN
    assert response(head.replace(b"application/json", b"text/html") + b"<html>").end is End.COMPLETE


def test_http2_becomes_http1() -> None:
    imported = read(b"HTTP/2 200 \r\ncontent-type: text/event-stream\r\n\r\n" + HEL + DONE)
    head = OK + b"content-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert imported.exchanges[0].response.wire == head + chunk(HEL) + chunk(DONE) + LAST
    assert "HTTP/2 on the wire: written as HTTP/1.1, which is what mockllm plays" in imported.notes
    assert "a body without a length in HTTP/2: written in chunks" in imported.notes
    with_length = response(b"HTTP/3 799 \r\ncontent-length: 14\r\n\r\n" + JSON)
    assert with_length.wire == b"HTTP/1.1 799 \r\ncontent-length: 14\r\n\r\n" + JSON


def test_line_ends_of_an_editor() -> None:
    imported = read((JSON_HEAD + JSON).replace(b"\r\n", b"\n"))
    assert imported.exchanges[0].response.wire == JSON_HEAD + JSON
    assert "the head's lines end with LF, as an editor leaves them: written with CRLF" in imported.notes
    assert response(b"\n\r\n" + JSON_HEAD + JSON).wire == JSON_HEAD + JSON


@pytest.mark.parametrize(
    ("before", "note"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n", "100 Continue left out: it answers curl's own Expect header"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n",
            "302 left out: curl followed the redirect and did not keep its body",
        ),
        (b"HTTP/1.1 401 No\r\nContent-Length: 9\r\n\r\n", "401 left out: curl logged in and did not keep its body"),
        (b"HTTP/1.1 200 Connection established\r\n\r\n", "200 left out: it is the proxy's answer to CONNECT"),
    ],
)
def test_steps_of_curls_own_are_left_out(before: bytes, note: str) -> None:
    imported = read(before + JSON_HEAD + JSON)
    assert [one.response.wire for one in imported.exchanges] == [JSON_HEAD + JSON]
    assert note in imported.notes


def test_an_early_hint_stays() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    assert response(hint + JSON_HEAD + JSON).wire == hint + JSON_HEAD + JSON


def test_several_answers_after_each_other() -> None:
    empty = b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n"
    stream = CHUNKED + HEL + DONE
    found = read(stream + JSON_HEAD + JSON + empty + b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n").exchanges
    wires = [one.response.wire for one in found]
    assert wires[:3] == [CHUNKED + chunk(HEL) + chunk(DONE) + LAST, JSON_HEAD + JSON, empty]
    assert wires[3].startswith(b"HTTP/1.1 302")  # nothing follows it: it is the answer


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Ty", "cap: the head at byte 0 is cut off: no blank line ends it"),
        (JSON_HEAD + JSON + b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "cap: holds heads of curl's own steps only, and no answer"),
    ],
)
def test_heads_that_are_cut_off(data: bytes, told: str | None) -> None:
    if told is None:
        assert len(read(data).exchanges) == 1
        return
    with pytest.raises(MockllmError) as error:
        read(data)
    assert str(error.value) == told


@pytest.mark.parametrize(
    ("data", "kind", "framing", "end"),
    [
        (KA + HEL + DONE, "text/event-stream", "in chunks", End.COMPLETE),
        (b"\xef\xbb\xbf\n\nevent: x\n" + HEL, "text/event-stream", "in chunks", End.FIN),
        (b'{"done":false}\n{"done":true}\n', "application/x-ndjson", "in chunks", End.COMPLETE),
        (b'{"done":false}\n{"do', "application/x-ndjson", "in chunks", End.FIN),
        (JSON, "application/json", "with its length", End.COMPLETE),
        (b'{\n "a": [1,\n 2]}\n', "application/json", "with its length", End.COMPLETE),
        (b'{"choices":[{"mess', "application/json", "in chunks", End.FIN),
    ],
)
def test_a_bare_body_becomes_a_200_of_the_type_seen(data: bytes, kind: str, framing: str, end: End) -> None:
    imported = read(data)
    found = imported.exchanges[0].response
    head = scan(found).head
    assert head is not None
    assert (head.status, head.version, head.values(b"content-type")) == (200, "1.1", [kind.encode()])
    assert (found.end, body(found)) == (end, data)
    assert f"no head: written as a 200 of {kind}, {framing}" in imported.notes


def test_a_bare_body_of_a_given_type() -> None:
    found = response(b"hello", content_type="text/plain; charset=utf-8")
    assert found.wire == OK + b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello"
    assert body(response(b"\x00\xff", content_type="audio/mpeg")) == b"\x00\xff"
    for bad in ("plain", "text/plain\r\nX: y", ""):
        with pytest.raises(UsageError, match=r"--content-type .* is none, such as text/event-stream"):
            read(HEL, content_type=bad)


@pytest.mark.parametrize(
    ("framing", "head"),
    [
        ("chunked", OK + SSE + b"Transfer-Encoding: chunked\r\n\r\n"),
        ("length", OK + SSE + b"Content-Length: %d\r\n\r\n" % len(HEL + DONE)),
        ("close", OK + SSE + b"Connection: close\r\n\r\n"),
        ("http1.0", b"HTTP/1.0 200 OK\r\n" + SSE + b"\r\n"),
    ],
)
@pytest.mark.parametrize("source", [CHUNKED + HEL + DONE, HEL + DONE], ids=["head", "bare"])
def test_it_can_be_framed_as_one_likes(framing: Any, head: bytes, source: bytes) -> None:
    found = response(source, framing=framing, gap_us=1000)
    assert (body(found), found.end) == (HEL + DONE, End.COMPLETE)
    assert found.wire.startswith(head)
    assert len([piece for piece in found.segments if piece.data]) == 2


def test_what_is_framed_so_already_stays() -> None:
    wire = OK + SSE + b"\r\n" + HEL + DONE
    found = response(wire, framing="close")
    assert (found.wire, found.end, found.then) == (wire, End.COMPLETE, Then.FIN)


def test_what_has_no_body_cannot_be_framed() -> None:
    with pytest.raises(UsageError, match=r"^cap: cannot be written --as length: an answer of this status"):
        read(b"HTTP/1.1 204 No Content\r\n\r\n", framing="length")


def har() -> bytes:
    return json.dumps({"log": {"version": "1.2", "entries": []}}).encode()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is binary, and nothing that is known here"),
        (
            b"\xff\xfeH\x00T\x00",
            "is UTF-16 text, as PowerShell's > writes it: save with curl's own -o FILE or --trace FILE",
        ),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "is a pcap file, which cannot be imported yet, only what curl"),
        (b"\x0a\x0d\x0d\x0a\x00", "is a pcap file, which cannot be imported yet"),
        (gzip.compress(HEL, mtime=0), "is compressed: gunzip it first"),
        (b"PK\x03\x04", "is a zip file: unpack it first"),
        (b'{"mockllm":1,"request":{}}\n', "is a cassette already: mockllm replay plays it"),
        (har(), "is a HAR file, which cannot be imported yet"),
        (b'{"interactions": []}', "is a VCR cassette, which cannot be imported yet"),
        (b"interactions:\n- request:\n", "is a VCR cassette, which cannot be imported yet"),
        (b"---\nhttp_interactions:\n- request:\n", "is a VCR cassette, which cannot be imported yet"),
        (b"<!DOCTYPE html>\n<html>", "is an HTML page, not an answer of an LLM server"),
        (
            b"* Connected\n> POST /v1 HTTP/1.1\n< HTTP/1.1 200 OK\n",
            "was written by curl -v, which leaves bytes out: use curl -isN",
        ),
        (
            b"hello",
            "neither a response with its head, nor server-sent events, JSON lines or JSON: capture with curl -isN",
        ),
        (b'"hello"', "neither a response with its head"),
    ],
)
def test_what_cannot_be_imported_is_named(data: bytes, told: str) -> None:
    with pytest.raises(MockllmError) as error:
        read(data)
    assert str(error.value).startswith(f"cap: {told}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", [b"[1, 2]", b'{"log": 5}', b'{"log": {}}', b"[" * 5000])
def test_other_json_is_json(data: bytes) -> None:
    assert body(response(data)) == data


def test_html_with_its_head_is_an_answer() -> None:
    page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
    assert response(page).wire == page
