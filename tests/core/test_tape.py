"""A tape gives back what came, however it was cut: the same bytes, read borders and times."""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.exchange import Exchange, Note, Request
from mockllm.core.http1 import scan
from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.tape import Tape, dump
from tests.captures import Capture, captures
from tests.core.nasties import CHUNKED, CLOSE, LAST, NASTIES, ODD, Nasty, answers, chunk, counted, cuttings
from tests.core.roundtrip import Reads, at_times, check_exact, check_prefixes, cut, only, same_reads, singly, taped

CAPTURES = captures()
SMALL = [capture for capture in CAPTURES if len(capture.response) <= 4096]
AROUND = (-3, -2, -1, 1, 2, 3)
LARGE = [capture for capture in CAPTURES if len(capture.response) > 4096]


def up_to(size: int) -> list[object]:
    """All captures; those larger than that many bytes only in the exhaustive run."""
    exhaustive = [pytest.mark.exhaustive, pytest.mark.timeout(600)]
    return [pytest.param(each, marks=exhaustive if len(each.response) > size else []) for each in CAPTURES]


each_capture = pytest.mark.parametrize("capture", CAPTURES, ids=str)
each_nasty = pytest.mark.parametrize("nasty", NASTIES, ids=str)


@each_capture
def test_a_capture_as_it_came(capture: Capture) -> None:
    check_exact(capture.method, list(capture.reads))


@each_capture
def test_a_capture_joined(capture: Capture) -> None:
    check_exact(capture.method, at_times([capture.response]))


@pytest.mark.parametrize("capture", up_to(2000), ids=str)
def test_a_capture_in_single_bytes(capture: Capture) -> None:
    check_thinly(capture.method, at_times(singly(capture.response)))


@each_nasty
def test_a_nasty_as_it_came(nasty: Nasty) -> None:
    check_exact(nasty.method, at_times(nasty.reads))


@each_nasty
def test_a_nasty_joined(nasty: Nasty) -> None:
    check_exact(nasty.method, at_times([nasty.wire]))


@each_nasty
def test_a_nasty_in_single_bytes(nasty: Nasty) -> None:
    check_thinly(nasty.method, at_times(singly(nasty.wire)))


@each_nasty
def test_a_nasty_cut_at_every_byte(nasty: Nasty) -> None:
    size = len(nasty.wire)
    for place in [place for place in range(1, size) if place < 150 or place > size - 150]:
        check_exact(nasty.method, at_times(cut(nasty.wire, place)))


@pytest.mark.parametrize("capture", up_to(12_000), ids=str)
def test_a_capture_cut_at_every_byte(capture: Capture) -> None:
    """In pieces of 61 bytes, begun at each of the first 61: each byte is a border once, at a small cost."""
    size = len(capture.response)
    for start in range(1, 62):
        check_exact(capture.method, at_times(cut(capture.response, *range(start, size, 61))), prefixes=start == 1)


@pytest.mark.parametrize("capture", LARGE, ids=str)
def test_a_large_capture_cut_around_each_border(capture: Capture) -> None:
    borders = list(itertools.accumulate(len(data) for _, data in capture.reads))
    for shift in AROUND:
        places = [border + shift for border in borders if 0 < border + shift < len(capture.response)]
        check_exact(capture.method, at_times(cut(capture.response, *places)), prefixes=False)
        check_exact(capture.method, at_times(cut(capture.response, *borders, *places)), prefixes=False)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("capture", SMALL, ids=str)
def test_a_small_capture_cut_at_one_byte_each(capture: Capture) -> None:
    for place in range(1, len(capture.response)):
        check_exact(capture.method, at_times(cut(capture.response, place)))


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("capture", LARGE, ids=str)
def test_a_large_capture_with_one_border_moved(capture: Capture) -> None:
    borders = list(itertools.accumulate(len(data) for _, data in capture.reads))
    for border, shift in itertools.product(borders, AROUND):
        others = [other for other in borders if other != border]
        check_exact(capture.method, at_times(cut(capture.response, *others, border + shift)), prefixes=False)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("nasty", [nasty for nasty in NASTIES if len(nasty.wire) <= 110], ids=str)
def test_a_nasty_cut_at_every_two_bytes(nasty: Nasty) -> None:
    for places in itertools.combinations(range(1, len(nasty.wire)), 2):
        check_exact(nasty.method, at_times(cut(nasty.wire, *places)), prefixes=False)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_megabyte_in_single_bytes() -> None:
    reads = at_times([CHUNKED + b"f4240\r\n", *singly(b"x" * 1_000_000)])
    same_reads(only(taped("POST", reads).text).response, reads)


@given(st.data())
def test_any_answer_in_any_cutting(data: st.DataObject) -> None:
    method, wire = data.draw(answers())
    check_exact(method, data.draw(cuttings(wire)))


@each_capture
def test_a_capture_makes_a_tape_that_a_person_can_read(capture: Capture) -> None:
    """Its head is a head line, and no data line of a genuine server needs its framing spelled out."""
    lines = [json.loads(line) for line in taped(capture.method, capture.reads).text.splitlines()[1:]]
    assert [line[1] for line in lines[:1]] == (["head"] if capture.response else ["end"])
    assert [line for line in lines if line[1].startswith("data") and len(line) > 3] == []
    body = "".join(line[2] for line in lines if line[1] == "data")
    assert [line for line in lines if line[1] == "data64"] == []
    assert (body.encode() in capture.response) or "chunked" in json.dumps(lines[0])


def lines_of(method: str, *reads: tuple[int, bytes]) -> list[str]:
    """The lines of an answer, without the header line."""
    return taped(method, reads).text.decode().splitlines()[1:]


def test_a_chunked_answer() -> None:
    data = b'data: {"a":"\xc3\xa9"}\n\n'
    reads = [(2504, CHUNKED), (12_005, chunk(b":\n\n")), (15_046, chunk(data) + chunk(b"data: [DONE]\n\n") + LAST)]
    assert lines_of("POST", *reads) == [
        '[2.504,"head",{"version":"1.1","status":200,"reason":"OK","headers":'
        '[["Content-Type","text/event-stream"],["Transfer-Encoding","chunked"]]}]',
        '[9.501,"data",":\\n\\n"]',
        '[3.041,"data","data: {\\"a\\":\\"é\\"}\\n\\n"]',
        '[0,"data","data: [DONE]\\n\\n"]',
        '[0,"wire","0\\r\\n\\r\\n"]',
        '[0,"end","complete"]',
    ]


def test_chunks_that_are_spelled_otherwise() -> None:
    reads = [
        (1, CHUNKED + b"1F;x=y\r\nabc"),
        (2, b"d" * 28 + b"\r"),
        (3, b"\n0"),
        (4, b"2;\xff\r\nab\r\n"),
        (5, b"00\r\nA: b\r\n\r\n"),
    ]
    assert lines_of("POST", *reads)[1:] == [
        '[0,"data","abc",{"before":"1F;x=y\\r\\n","after":""}]',
        f'[0.001,"data","{"d" * 28}",{{"before":"","after":""}}]',
        '[0,"wire","\\r"]',
        '[0.001,"wire","\\n0"]',
        '[0.001,"wire64","Mjv/DQo="]',
        '[0,"data","ab",{"before":"","after":"\\r\\n"}]',
        '[0.001,"wire","00\\r\\nA: b\\r\\n\\r\\n"]',
        '[0,"end","complete"]',
    ]


def test_an_answer_until_close() -> None:
    """The close that ends a body is what the server did then, whatever the recorder says."""
    assert lines_of("POST", (92_000, CLOSE + b"\xc3"), (93_000, b"\xa9"), (94_000, "é\u2028".encode()))[1:] == [
        '[0,"data64","ww=="]',
        '[1,"data64","qQ=="]',
        '[1,"data","é\\u2028"]',
        '[0.007,"end","complete",{"then":"fin","then_ms":0}]',
    ]


def test_no_line_of_a_tape_looks_like_two() -> None:
    text = taped("POST", at_times([CLOSE + ODD, CHUNKED, ODD])).text.decode()
    assert text.splitlines() == text.removesuffix("\n").split("\n")
    assert "\x7f" not in text


def test_what_is_no_usual_head_is_wire() -> None:
    assert lines_of("GET", (1, b"HTTP/1.1 103 Early Hints\r\n\r\n" + counted(0))) == [
        '[0.001,"wire","HTTP/1.1 103 Early Hints\\r\\n\\r\\n"]',
        '[0,"head",{"version":"1.1","status":200,"reason":"OK","headers":[["Content-Length","0"]]}]',
        '[0,"end","complete"]',
    ]
    assert lines_of("GET", (1, b"HTTP/1.1 200\r\nA: \xe9\r\nContent-Length: 0\r\n\r\n"), (2, counted(0)))[:2] == [
        '[0.001,"head",{"version":"1.1","status":200,"headers":[["A",{"base64":"6Q=="}],["Content-Length","0"]]}]',
        '[0.001,"wire","HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n"]',
    ]


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "half-a-head",
        "head-in-two-reads",
        "bare-lf-head",
        "bare-lf-head-and-its-twin",
        "mixed-line-ends",
        "garbage-then-a-head",
        "surplus-that-is-a-head",
        "folded-header",
        "header-without-colon",
        "lone-cr-in-a-header",
        "header-name-not-utf8",
        "reason-not-utf8",
        "empty-header-values",
    ],
)
def test_a_head_that_no_head_line_can_say(name: str) -> None:
    [nasty] = [nasty for nasty in NASTIES if nasty.name == name]
    assert [line for line in lines_of(nasty.method, *at_times(nasty.reads)) if '"head"' in line] == []


def test_parts_of_one_time_are_one_read_and_time_never_goes_back() -> None:
    reads = [(-5, counted(4)), (0, b"a"), (9, b"b"), (9, b"c"), (7, b"d")]
    exchange = only(taped("GET", reads).text)
    assert list(exchange.response.reads()) == [(0, counted(4) + b"a"), (9, b"bcd")]


def test_an_empty_read_leaves_no_line() -> None:
    tape = Tape("GET")
    assert tape.read(4, b"") == b""
    assert tape.read(5, CLOSE + b"hi").count(b"\n") == 2
    assert tape.at == 5


REQUEST = Request("POST", b"/v1?q=\xc3\xa9", ((b"Host", b"h"), (b"X", b"caf\xe9"), (b"x", b"")))


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"", {}),
        (None, {"body": "any"}),
        (
            b'{"a": [1, 1.5, null, "\xc3\xa9\xe2\x80\xa8"], "n": 123456789012345678901234567890}',
            {"json": {"a": [1, 1.5, None, "é\u2028"], "n": 123456789012345678901234567890}},
        ),
        (b" null", {"json": None}),
        (b'{"a":1,"a":2}', {"text": '{"a":1,"a":2}'}),
        (b'"\\ud83c"', {"text": '"\\ud83c"'}),
        (b"[NaN]", {"text": "[NaN]"}),
        (b"[" * 5000, {"text": "[" * 5000}),
        (b"hello\xff", {"base64": "aGVsbG//"}),
    ],
)
def test_a_request_and_its_body(body: bytes | None, kept: dict[str, object]) -> None:
    request = replace(REQUEST, body=body)
    line = json.loads(Tape("POST").begin(request, {"recorded": "now"}))
    headers = [["Host", "h"], ["X", {"base64": "Y2Fm6Q=="}], ["x", ""]]
    asked = {"method": "POST", "target": "/v1?q=é", "headers": headers}
    assert line == {"mockllm": 1, "recorded": "now", "request": asked | kept}
    back = only(Tape("POST").begin(request, {})).request
    assert replace(back, body=b"") == REQUEST
    if "json" in kept:
        assert back.body is not None
        assert json.loads(back.body) == kept["json"]
    else:
        assert back.body == body


def test_a_target_that_is_not_utf8() -> None:
    request = Request("GET", b"/caf\xe9")
    text = Tape("GET").begin(request, {})
    assert json.loads(text)["request"]["target"] == {"base64": "L2NhZuk="}
    assert only(text).request == request


def test_an_answer_that_came_before_the_request_was_sent() -> None:
    request = replace(REQUEST, body=b'{"a":1}', early=True)
    tape = Tape("POST")
    text = tape.begin(request, {}) + tape.read(3, counted(0))
    assert only(text).request == replace(request, body=b"", cut=True)
    cut_off = tape.request_body(replace(request, body=b"{", cut=True))
    assert cut_off == b'[0,"request",{"text":"{","cut":true}]\n'
    assert only(text + cut_off).request == replace(request, body=b"{", cut=True)
    whole = tape.request_body(request)
    assert whole == b'[0,"request",{"json":{"a":1}}]\n'
    exchange = only(text + whole + tape.end(End.COMPLETE, 3, Then.OPEN, 0, {}))
    assert exchange.request == request
    assert dump(exchange) == text + whole + b'[0,"end","complete"]\n'


@pytest.mark.parametrize(
    ("end", "then", "meta", "line"),
    [
        (End.COMPLETE, Then.OPEN, {}, '[1.5,"end","complete"]'),
        (End.COMPLETE, Then.FIN, {}, '[1.5,"end","complete",{"then":"fin","then_ms":0.4}]'),
        (End.COMPLETE, Then.RST, {"by": "x"}, '[1.5,"end","complete",{"then":"rst","then_ms":0.4,"by":"x"}]'),
        (End.FIN, Then.FIN, {}, '[1.5,"end","fin"]'),
        (End.RST, Then.RST, {}, '[1.5,"end","rst"]'),
        (End.HANG, Then.OPEN, {}, '[1.5,"end","hang"]'),
        (End.CLIENT, Then.OPEN, {"by": "recorder"}, '[1.5,"end","client",{"by":"recorder"}]'),
    ],
)
def test_the_end_line(end: End, then: Then, meta: dict[str, str], line: str) -> None:
    tape = Tape("POST")
    text = tape.begin(REQUEST, {}) + tape.read(500, counted(0))
    last = tape.end(end, 2000, then, 2400, meta)
    assert last.decode() == line + "\n"
    exchange = only(text + last)
    assert (exchange.response.end, exchange.response.end_at, exchange.end_meta) == (end, 2000, meta)
    if end is End.COMPLETE:
        assert (exchange.response.then, exchange.response.then_at) == (then, 0 if then is Then.OPEN else 2400)
    assert dump(exchange) == text + last


def test_an_end_before_the_last_read_comes_with_it() -> None:
    """Surplus may come after the end was known: the end line still stands last, and time does not go back."""
    tape = Tape("POST")
    text = tape.begin(REQUEST, {}) + tape.read(500, counted(0)) + tape.read(900, b"surplus")
    exchange = only(text + tape.end(End.COMPLETE, 500, Then.FIN, 800, {}))
    assert (exchange.response.end_at, exchange.response.then_at) == (900, 900)


@given(answers(), st.data())
def test_the_segments_of_a_scan_go_onto_a_tape_as_they_are(answer: tuple[str, bytes], data: st.DataObject) -> None:
    """Whatever a response is made of, cut anew by `scan` it makes a cassette that loads and plays the same."""
    method, wire = answer
    reads = data.draw(cuttings(wire))
    end_at = reads[-1][0] if reads else 0
    made = Response(tuple(Segment(at, before=piece) for at, piece in reads), End.RST, end_at, method=method)
    cut_anew = replace(made, segments=scan(made).segments)
    text = dump(Exchange(replace(REQUEST, method=method), cut_anew))
    assert only(text).response == cut_anew


def test_comments_unknown_lines_and_unknown_keys_keep_their_places() -> None:
    notes = (
        Note(-1, "# before all"),
        Note(0, "# before the head"),
        Note(1, '[1.5,"mark",{"x":1}]', 1500),
        Note(1, ""),
        Note(2, "# before the end"),
        Note(3, "# after the end"),
    )
    segments = (Segment(1000, before=counted(2)), Segment(5000, b"hi"))
    exchange = Exchange(
        REQUEST,
        Response(segments, End.COMPLETE, 5000, method="POST"),
        meta={"origin": "written", "request": {"sdk": "x"}},
        end_meta={"by": "me"},
        extras={0: {"h2": True}, 1: {"tokens": 2}},
        notes=notes,
    )
    text = dump(exchange)
    assert text.decode().splitlines() == [
        "# before all",
        '{"mockllm":1,"origin":"written","request":{"method":"POST","target":"/v1?q=é",'
        '"headers":[["Host","h"],["X",{"base64":"Y2Fm6Q=="}],["x",""]],"sdk":"x"}}',
        "# before the head",
        '[1,"head",{"version":"1.1","status":200,"reason":"OK","headers":[["Content-Length","2"]],"h2":true}]',
        '[1.5,"mark",{"x":1}]',
        "",
        '[2.5,"data","hi",{"tokens":2}]',
        "# before the end",
        '[0,"end","complete",{"by":"me"}]',
        "# after the end",
    ]
    assert only(text) == exchange


def test_what_was_moved_before_an_unknown_lines_time_comes_with_it() -> None:
    segments = (Segment(1000, before=counted(2)), Segment(2000, b"h"), Segment(9000, b"i"))
    response = Response(segments, End.COMPLETE, 9000)
    text = dump(Exchange(REQUEST, response, notes=(Note(1, '[5,"mark"]', 5000),)))
    assert [line.split(b",")[0] for line in text.splitlines()[1:]] == [b"[1", b"[5", b"[0", b"[3", b"[0"]
    assert [at for at, _ in only(text).response.reads()] == [1000, 6000, 9000]


def test_unknown_keys_of_wire_and_request_lines_are_kept() -> None:
    text = (
        b'{"mockllm":1,"early":true,"request":{"method":"POST","target":"/","headers":[]}}\n'
        b'[1,"wire","HTTP/1.1 200 OK\\r\\n",{"why":"slow"}]\n'
        b'[0,"wire64","/w==",{"why":"odd"}]\n'
        b'[0,"request",{"text":"a","speed":3}]\n'
        b'[0,"end","rst"]\n'
    )
    assert dump(only(text)) == text


def check_thinly(method: str, reads: Reads) -> None:
    """As `check_exact`, with only some of the many prefixes."""
    check_exact(method, reads, prefixes=False)
    step = max(1, len(reads) // 10)
    check_prefixes(taped(method, reads), reads, range(0, min(len(reads), 2000), step))
