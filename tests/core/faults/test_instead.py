"""What comes instead of the stream: a status with the right body, a page, nothing; other headers around the same."""

import gzip
import json
import zlib
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.dialects.errors import STATUS_STYLES, STREAM_STYLES
from mockllm.core.faults import instead
from mockllm.core.faults.content import Error
from mockllm.core.faults.spec import SpecError
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Segment, Then
from tests.captures import captures, load
from tests.core.faults.applying import bent, dispatched, fault, refusal, unchanged
from tests.core.faults.making import body, chunks, from_capture, response, responses, strictly_whole, tracked, writes

E1 = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
NOTHING = Response((), End.FIN, 700)


def chat(lines: str = "", **more: object) -> Response:
    return response("chunked", (2000, E1), (3000, DONE), lines=lines, **more)  # type: ignore[arg-type]


def headers(of: Response) -> list[bytes]:
    return of.wire.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]


# ---------------------------------------------------------------- properties

REPLACED = ["status:code=429,retry-after=3", "status:code=500,style=mlx", "html", "json200", "json200:style=anthropic"]


@given(responses(), st.sampled_from(REPLACED))
def test_an_answer_in_the_place_of_another_is_whole_and_comes_when_it_came(drawn: Response, spec: str) -> None:
    changed = fault(spec)(drawn)
    assert strictly_whole(changed)
    [(at, _)] = writes(changed)
    assert at == changed.end_at == drawn.segments[0].at
    assert changed.end is End.COMPLETE
    assert (changed.then, changed.then_at) in ((Then.OPEN, 0), (Then.FIN, at))


@given(responses())
def test_gzip_keeps_what_a_client_gets(drawn: Response) -> None:
    if not body(drawn):
        assert refusal("gzip", drawn) == "there is no body"
        return
    changed = bent("gzip", drawn)
    inflate = zlib.decompressobj(31)
    assert [inflate.decompress(data) for _, data in chunks(changed)] == [data for _, data in chunks(drawn)]
    assert [at for at, _ in chunks(changed)] == [at for at, _ in chunks(drawn)]
    assert inflate.eof is (drawn.end is End.COMPLETE)
    assert scan(changed).whole == scan(drawn).whole


@given(responses(), st.sampled_from(["X-New", "Content-Type", "content-type"]), st.sampled_from(["", "a b", "é:"]))
def test_a_header_is_set_once_and_nothing_else_changes(drawn: Response, name: str, value: str) -> None:
    changed = fault(f"header:name={name},value={value}")(drawn)
    line = f"{name}: {value}".encode()
    assert headers(changed).count(line) == 1
    assert [h for h in headers(changed) if not h.lower().startswith(name.lower().encode())] == [
        h for h in headers(drawn) if not h.lower().startswith(name.lower().encode())
    ]
    assert body(changed) == body(drawn)
    assert {at for at, _ in writes(changed)} <= {at for at, _ in writes(drawn)}
    assert chunks(changed) == chunks(drawn)


# ---------------------------------------------------------------- status


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (429, b"HTTP/1.1 429 Too Many Requests"),
        (503, b"HTTP/1.1 503 Service Unavailable"),
        (529, b"HTTP/1.1 529 Overloaded"),
        (413, b"HTTP/1.1 413 Content Too Large"),
        (422, b"HTTP/1.1 422 Unprocessable Content"),
        (404, b"HTTP/1.1 404 Not Found"),
        (599, b"HTTP/1.1 599 "),
    ],
)
def test_the_reason_phrase_is_that_of_the_status(code: int, line: bytes) -> None:
    assert bent(f"status:code={code}", chat()).wire.startswith(line + b"\r\n")


def test_the_recordings_own_headers_stay_and_those_of_the_stream_go() -> None:
    lines = (
        "Server: x\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\nRetry-After: 9\r\nContent-Encoding: br\r\n"
        "Content-Type: twice\r\nKeep-Alive: timeout=5\r\n"
    )
    changed = bent("status:code=429,retry-after=1,style=ollama", chat(lines))
    assert headers(changed) == [
        b"Content-Type: application/json; charset=utf-8",
        b"Content-Length: 31",
        b"Server: x",
        b"Keep-Alive: timeout=5",
        b"Retry-After: 1",
    ]
    assert body(changed) == b'{"error":"Rate limit exceeded"}'
    assert (changed.then, changed.end_at) == (Then.OPEN, 1000)


def test_without_retry_after_there_is_none() -> None:
    assert b"Retry-After" not in bent("status:code=429", chat()).wire


def test_an_mlx_server_sends_its_errors_without_a_length_and_closes() -> None:
    recorded = from_capture(load("mlx_lm.server", "stream_chat_short"))
    changed = bent("status:code=404", recorded)
    real = load("mlx_lm.server", "404_post").response
    assert headers(changed)[0] == headers(tracked([(0, real)]))[0]
    assert [line.partition(b":")[0] for line in headers(changed)] == [
        line.partition(b":")[0] for line in headers(tracked([(0, real)]))
    ]
    assert changed.wire.startswith(b"HTTP/1.0 404 Not Found\r\n")
    assert body(changed) == b'{"error": "Not found"}'
    assert (changed.then, changed.then_at) == (Then.FIN, changed.end_at)


def test_a_llama_server_sends_its_own_body() -> None:
    changed = bent("status:code=400", from_capture(load("llama-server", "chat-hello")))
    assert b"Content-Type: application/json; charset=utf-8\r\nContent-Length: " in changed.wire
    assert json.loads(body(changed)) == {
        "error": {"code": 400, "message": "Invalid request", "type": "invalid_request_error"}
    }


@pytest.mark.parametrize(
    ("recorded", "then"),
    [
        (chat(), Then.OPEN),
        (chat("Connection: close\r\n"), Then.FIN),
        (chat("Connection: Keep-Alive\r\n"), Then.OPEN),
        (chat(version="1.0"), Then.FIN),
    ],
)
def test_the_connection_stays_open_where_that_is_https_way(recorded: Response, then: Then) -> None:
    assert bent("status:code=500", recorded).then is then


def test_an_answer_without_a_body_has_none() -> None:
    nothing = bent("status:code=204", chat())
    assert (nothing.wire.count(b"\r\n\r\n"), b"Content-Length" in nothing.wire) == (1, False)
    assert nothing.wire.startswith(b"HTTP/1.1 204 No Content\r\n")
    head = bent("status:code=500,style=mlx", chat(method="HEAD"))
    assert (body(head), b"Content-Length" in head.wire) == (b"", False)
    counted = bent("status:code=500,style=ollama", chat(method="HEAD"))
    assert b"Content-Length: 33\r\n" in counted.wire
    assert strictly_whole(counted)


def test_where_nothing_was_recorded_an_answer_is_made_up() -> None:
    changed = bent("status:code=503,style=ollama", NOTHING)
    assert changed.wire == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\n"
        b'Content-Length: 31\r\n\r\n{"error":"Service unavailable"}'
    )
    assert (changed.end_at, changed.then) == (700, Then.OPEN)
    assert bent("html", NOTHING).wire.startswith(b"HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\nContent-Type")
    assert b"openai" not in bent("json200", NOTHING).wire
    assert fault("refuse")(NOTHING) == NOTHING


# ---------------------------------------------------------------- a page, JSON, nothing


def test_a_proxys_page() -> None:
    changed = bent("html", chat("Date: Mon, 30 Nov 2026 15:57:33 GMT\r\nServer: llama.cpp\r\n"))
    page = (
        b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
        b"<center><h1>502 Bad Gateway</h1></center>\r\n"
        b"<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
    )
    assert changed.wire == (
        b"HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\nDate: Mon, 30 Nov 2026 15:57:33 GMT\r\n"
        b"Content-Type: text/html\r\nContent-Length: 150\r\nConnection: keep-alive\r\n\r\n" + page
    )
    assert bent("html:code=504", chat()).wire.startswith(b"HTTP/1.1 504 Gateway Time-out\r\n")
    assert b"<h1>503 Service Temporarily Unavailable</h1>" in bent("html:code=503", chat()).wire


def test_an_error_under_the_status_200() -> None:
    changed = bent("json200", chat("Cache-Control: no-cache\r\n"))
    assert changed.wire.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ")
    assert json.loads(body(changed))["error"]["type"] == "server_error"
    limited = bent("json200:style=anthropic,code=429", chat())
    assert json.loads(body(limited))["error"] == {"type": "rate_limit_error", "message": "Rate limit exceeded"}


@pytest.mark.parametrize(("spec", "end"), [("refuse", End.FIN), ("reset", End.RST)])
def test_not_a_byte(spec: str, end: End) -> None:
    changed = bent(spec, chat())
    assert (changed.segments, changed.end, changed.end_at, changed.then) == ((), end, 1000, Then.OPEN)
    assert changed.method == "POST"


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("header:name=Server,value=y", b"A: 1\r\nServer: y\r\nB: 2\r\n"),
        ("header:name=B,value=", b"A: 1\r\nserver: x\r\nB: \r\nSERVER: z\r\n"),
        ("header:name=New,value=a%2Cb", b"A: 1\r\nserver: x\r\nB: 2\r\nSERVER: z\r\nNew: a,b\r\n"),
        ("header:drop=server", b"A: 1\r\nB: 2\r\n"),
        ("header:drop=A", b"server: x\r\nB: 2\r\nSERVER: z\r\n"),
    ],
)
def test_a_header_replaced_appended_or_left_out(spec: str, expected: bytes) -> None:
    lines = "A: 1\r\nserver: x\r\nB: 2\r\nSERVER: z\r\n"
    changed = bent(spec, chat(lines))
    assert changed.wire.partition(b"chunked\r\n")[2].partition(b"\r\n\r\n")[0] + b"\r\n" == expected
    assert dispatched(changed) == dispatched(chat())


def test_a_header_is_changed_where_no_body_can_be() -> None:
    recorded = tracked([(5, b"HTTP/1.1 204 No Content\r\nA: 1\r\n\r\n")])
    assert bent("header:drop=a", recorded).wire == b"HTTP/1.1 204 No Content\r\n\r\n"
    assert refusal("header:drop=a", NOTHING) == "there is no whole head"
    assert unchanged("header:drop=Nothing", recorded)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("header", "needs name= and value=, or drop= alone"),
        ("header:name=A", "needs name= and value=, or drop= alone"),
        ("header:value=x", "needs name= and value=, or drop= alone"),
        ("header:name=A,drop=B", "needs name= and value=, or drop= alone"),
        ("header:drop=A,value=x", "needs name= and value=, or drop= alone"),
        ("header:name=,value=x", "'' is no header's name"),
        ("header:name=a b,value=x", "'a b' is no header's name"),
        ("header:drop=A%0AB", "is no header's name"),
        ("header:name=A,value=x%0D%0AB: y", "a value has no CR, LF or NUL"),
        ("header:name=A,value=%00", "a value has no CR, LF or NUL"),
        ("header:name=Content-Length,value=5", "frames the body: use framing"),
        ("header:drop=transfer-encoding", "frames the body: use framing"),
        ("status:code=199", "code is 200 to 599"),
        ("status:code=600", "code is 200 to 599"),
        ("status:code=429,retry-after=1500ms", "whole seconds"),
        ("status", "status needs code="),
        ("html:code=200", "code is 300 to 599"),
        ("json200:code=200", "code is 400 to 599"),
        ("status:code=500,style=nobody", "expected openai, responses, anthropic"),
    ],
)
def test_keys_that_make_no_sense(spec: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        fault(spec)


def test_every_style_that_is_known_can_be_asked_for() -> None:
    assert get_args(instead.Style) == STATUS_STYLES
    styles, _ = get_args(get_type_hints(Error)["style"])
    assert sorted(get_args(styles)) == sorted(STREAM_STYLES)


# ---------------------------------------------------------------- gzip


def test_gzip_is_flushed_after_each_piece_and_framed_anew() -> None:
    changed = bent("gzip", response("length", (2000, E1), (3000, DONE)))
    assert gzip.decompress(body(changed)) == E1 + DONE
    assert b"Content-Length: %d\r\nContent-Encoding: gzip\r\n\r\n" % len(body(changed)) in changed.wire
    first = chunks(changed)[0][1]
    assert zlib.decompressobj(31).decompress(first) == E1
    assert first.endswith(b"\0\0\xff\xff"), "a sync flush"
    assert refusal("gzip", changed) == "the body is compressed already"


def test_text_faults_work_inside_what_gzip_made() -> None:
    for spec in [
        "crlf",
        "comment",
        "drop",
        "nospace",
        "ids",
        "bom",
        "tail",
        "garbage",
        "keepalive:every=10ms,hold=25ms",
    ]:
        plain, squeezed = bent(spec, chat()), bent(f"gzip+{spec}", chat())
        assert gzip.decompress(body(squeezed)) == body(plain), spec
        assert [at for at, _ in chunks(squeezed)] == [at for at, _ in chunks(plain)], spec
        assert strictly_whole(squeezed)
    held = bent("gzip+keepalive:every=10ms,hold=forever", chat())
    inflate = zlib.decompressobj(31)
    inflate.decompress(body(held))
    assert not inflate.eof, "a stream that never ends is not finished"


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_every_real_answer_can_be_replaced(capture: object) -> None:
    recorded = from_capture(capture)  # type: ignore[arg-type]
    for spec in REPLACED:
        changed = fault(spec)(recorded)
        assert strictly_whole(changed)
        assert scan(changed).framing in (Framing.LENGTH, Framing.CLOSE, Framing.NONE)
    assert fault("refuse")(recorded).segments == ()


def test_a_reset_at_the_first_byte_that_was_recorded() -> None:
    half = Response((Segment(400, before=b"HTTP/1.1 2"),), End.FIN, 900)
    assert bent("reset", half).end_at == 400
    assert bent("status:code=500", half).end_at == 400
