"""A cassette is read as it stands: what is torn is said, what is wrong is refused at its line, all else is kept.

`tests/data/bad/*.jsonl` begin with a comment that says when and how they are refused; beside `tests/data/good/*.jsonl`
lie the bytes that each of their exchanges renders to.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.cassette import Place, index, load, loads, repair, request_at
from mockllm.core.errors import CassetteError
from mockllm.core.exchange import Exchange, Request
from mockllm.core.lines import MAX_INTERVAL_MS
from mockllm.core.response import End
from mockllm.core.tape import Tape, dump
from tests.captures import Capture, captures
from tests.captures import load as load_capture
from tests.core.nasties import NASTIES, answers, counted, cuttings
from tests.core.roundtrip import at_times, only, taped

DATA = Path(__file__).parents[1] / "data"
BAD = sorted((DATA / "bad").iterdir())
GOOD = sorted((DATA / "good").glob("*.jsonl"))
HEADER = b'{"mockllm":1,"request":{"method":"POST","target":"/"}}\n'


def by_name(path: Path) -> str:
    """A test's id."""
    return path.stem


@pytest.mark.parametrize("path", BAD, ids=by_name)
def test_a_bad_cassette_is_refused_with_line_and_reason(path: Path) -> None:
    data = path.read_bytes()
    first = data.partition(b"\n")[0].decode()
    told = re.fullmatch(r"# expect at (index|play): (\d+): found (.*); expected (.*)", first)
    assert told is not None, first
    when, line, found, expected = told.groups()
    with pytest.raises(CassetteError) as refused:
        (indexed if when == "index" else played)(data)
    assert str(refused.value) == f"some.jsonl:{line}: found {found}; expected {expected}"
    assert (refused.value.source, refused.value.line) == ("some.jsonl", int(line))


def played(data: bytes) -> list[Exchange]:
    """What a replay reads of a file in all; loading it raises nothing."""
    assert indexed(data)
    return loads(data, "some.jsonl")


def indexed(data: bytes) -> list[Request]:
    """What a replay reads of a file when it is loaded."""
    return [request_at(data, place, "some.jsonl") for place in index(data, "some.jsonl").places]


def test_bad_cassettes_are_many() -> None:
    assert len(BAD) > 25


@pytest.mark.parametrize("path", GOOD, ids=by_name)
def test_a_good_cassette_renders_to_its_bytes(path: Path) -> None:
    data = path.read_bytes()
    wires = [beside.read_bytes() for beside in sorted(path.parent.glob(f"{path.stem}.*.bin"))]
    exchanges = loads(data)
    assert [exchange.response.wire for exchange in exchanges] == wires
    assert [exchange.request for exchange in exchanges] == [
        replace(r, cut=e.request.cut) for r, e in zip(indexed(data), exchanges, strict=True)
    ]
    again = b"".join(map(dump, exchanges))
    assert loads(again) == exchanges
    assert b"".join(map(dump, loads(again))) == again


@pytest.mark.parametrize("name", ["commented", "early"])
def test_a_rewrite_keeps_what_means_nothing_at_its_place(name: str) -> None:
    data = (DATA / "good" / f"{name}.jsonl").read_bytes()
    assert b"".join(map(dump, loads(data))) == data


def test_an_unknown_lines_interval_counts() -> None:
    [exchange] = loads((DATA / "good" / "commented.jsonl").read_bytes())
    assert [at for at, _ in exchange.response.reads()] == [2_000_000, 2_003_501]


def test_comments_and_empty_lines_above_a_header_belong_to_it() -> None:
    data = (DATA / "good" / "several.jsonl").read_bytes()
    second, third = data.index(b"# the second"), data.index(b"# the third")
    expected = (Place(0, second, 1, 2), Place(second, third, 6, 7), Place(third, len(data), 10, 11))
    assert index(data, "x").places == expected
    assert [exchange.notes[0].text for exchange in loads(data)] == [
        "# the first",
        "# the second, whose recorder was killed",
        "# the third",
    ]
    assert b"".join(map(dump, loads(data))).count(b"#") == 3


def test_empty_lines_above_a_header_belong_to_it_too() -> None:
    first = HEADER + b'[0,"end","rst"]\n'
    for above in (b"# x\n\n", b"\n# x\n", b"\r\n# x\r\n", b"\n\n"):
        data = first + above + HEADER
        assert index(data, "x").places[1] == Place(len(first), len(data), 3, 5)
        assert dump(loads(data)[1]).startswith(above.replace(b"\r", b"") + HEADER[:10])


def test_an_exchange_without_an_end_is_the_clients() -> None:
    second = loads((DATA / "good" / "several.jsonl").read_bytes())[1]
    assert (second.response.end, second.response.end_at, second.end_meta) == (End.CLIENT, 2000, {"by": "kill"})


def test_a_file_without_an_exchange_is_no_error() -> None:
    """A recorder that was killed before its first write was whole leaves one; whoever reads the file may say so."""
    assert index(b"", "x") == index(b"# nothing\n\n", "x") == index(b"\xef\xbb\xbf", "x")
    assert (index(b'{"mockl', "x").places, index(b'{"mockl', "x").torn) == ((), 1)


TEXTS = [
    (DATA / "good" / "commented.jsonl").read_bytes(),
    (DATA / "good" / "several.jsonl").read_bytes(),
    taped("POST", load_capture("llama-server", "chat-unicode").reads[:3]).text,
    taped("POST", at_times(next(nasty for nasty in NASTIES if nasty.name == "odd-characters-in-chunks").reads)).text,
]


@pytest.mark.parametrize("text", TEXTS, ids=["commented", "several", "capture", "nasty"])
def test_a_last_line_torn_anywhere_is_dropped_and_said(text: bytes) -> None:
    for size in range(len(text)):
        stump = text[:size]
        start = stump.rfind(b"\n") + 1
        line = text[start : text.index(b"\n", start)]
        if stump[start:] in (b"", line) or line.startswith(b"#"):
            assert index(stump, "x").torn is None
        else:
            assert index(stump, "x").torn == text[:start].count(b"\n") + 1
            assert loads(stump) == loads(text[:start])


def test_a_line_torn_in_the_middle_of_a_file_is_refused() -> None:
    with pytest.raises(CassetteError, match=r"^x:2: found a header line behind another line's text"):
        loads(HEADER + b'[0,"wire","a' + HEADER, "x")


def test_a_line_nested_too_deeply() -> None:
    deep = b'[0,"mark",' + b"[" * 100_000 + b"]" * 100_000 + b"]"
    for data, line in ((HEADER + deep + b"\n", 2), (HEADER.replace(b'"/"', b'"/","json":' + deep), 1)):
        with pytest.raises(CassetteError, match=f"^x:{line}: found JSON nested too deeply; expected fewer levels$"):
            loads(data, "x")
    assert index(HEADER + deep[:50_000], "x").torn == 2


@pytest.mark.parametrize("depth", range(100, 1100, 25))
def test_a_json_body_at_the_limit_of_nesting(depth: int) -> None:
    """Whatever depth the JSON reader takes, its own error and the format's are all that comes out."""
    body = b"[" * depth + b"]" * depth
    text = HEADER.replace(b'"/"', b'"/","json":' + body)
    try:
        read = [exchange.request.body for exchange in loads(text)]
    except CassetteError as refused:
        read = [body] if "nested too deeply" in refused.found else []
    assert read == [body]


@given(st.integers(0, MAX_INTERVAL_MS * 1000))
def test_an_interval_is_exact(microseconds: int) -> None:
    tape = Tape("GET")
    text = tape.begin(Request("GET", b"/"), {}) + tape.read(microseconds, b"x")
    assert [at for at, _ in only(text).response.reads()] == [microseconds]


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_an_interval_with_four_decimals_is_refused(whole: int, last: int) -> None:
    with pytest.raises(CassetteError, match="three decimals"):
        loads(HEADER + b'[%d.000%d,"wire","x"]\n' % (whole, last))


def test_intervals_written_otherwise() -> None:
    for spelled, microseconds in ((b"1.50", 1500), (b"2e3", 2_000_000), (b"1E-3", 1), (b"-0.0", 0), (b"7.0", 7000)):
        assert only(HEADER + b'[%b,"wire","x"]\n' % spelled).response.segments[0].at == microseconds


def test_the_response_knows_its_request() -> None:
    [exchange] = loads(b'{"mockllm":1,"request":{"method":"HEAD","target":"/v1/models"}}\n')
    assert (exchange.response.method, exchange.response.target) == ("HEAD", b"/v1/models")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_a_header_line_is_written_again_as_it_was(value: object) -> None:
    """Any JSON in the body and in unknown keys, one rewrite after another."""
    text = Tape("POST").begin(Request("POST", b"/", (), b"[1]"), {"x": value, "request": {"y": value}})
    exchange = only(text)
    assert exchange.meta == {"x": value, "request": {"y": value}}
    ended = dump(exchange)
    assert ended.startswith(text)
    assert dump(only(ended)) == ended


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_a_request_of_a_capture_comes_back(capture: Capture) -> None:
    head, _, body = capture.request.partition(b"\r\n\r\n")
    line, *lines = head.split(b"\r\n")
    method, target, _ = line.split(b" ")
    headers = tuple((name, value) for name, _, value in (pair.partition(b": ") for pair in lines))
    request = Request(method.decode(), target, headers, body)
    back = only(Tape(request.method).begin(request, {})).request
    assert replace(back, body=body) == request
    try:
        value = json.loads(body)
    except ValueError:
        assert back.body == body
    else:
        assert back.body is not None
        assert json.loads(back.body) == value


def edited(*lines: str, head: str = '["Content-Length","5"]', end: str = "complete") -> bytes:
    """A cassette whose lines somebody changed."""
    start = f'[1,"head",{{"version":"1.1","status":200,"reason":"OK","headers":[{head}]}}]'
    return HEADER + "\n".join((start, *lines, f'[0,"end","{end}"]', "")).encode()


CHUNKED = '["Transfer-Encoding","chunked"]'
LAST = '[0,"wire","0\\r\\n\\r\\n"]'
HALF_HEAD = '{"mockllm":1,"request":{"method":"GET","target":"/"}}\n[1,"wire","HTTP/1.1 200 OK\\nContent-Le"]\n'
REPAIRED = [
    (edited('[1,"data","hel"]'), b"Content-Length: 5", b"Content-Length: 3"),
    (edited('[1,"data","hel"]', '[1,"data64","/////w=="]'), b"Content-Length: 5", b"Content-Length: 7"),
    (edited(), b"Content-Length: 5", b"Content-Length: 0"),
    (edited('[1,"data","hello!"]', end="rst"), b"Content-Length: 5", b"Content-Length: 6"),
    (edited('[1,"wire","he"]', '[1,"data","llo!"]'), b"Content-Length: 5", b"Content-Length: 6"),
    (edited('[1,"data","hel"]', head='["content-LENGTH"," 5 "]'), b"LENGTH:  5 \r", b"LENGTH:  3 \r"),
    (edited('[1,"data","hi"]', head='["Content-Length","5"],["A","5"]'), b"Length: 5\r\nA: 5", b"Length: 2\r\nA: 5"),
    (
        edited('[1,"data","hel"]', head='["Content-Length","5"],["Content-Length","5"]'),
        b"Content-Length: 5\r\nContent-Length: 5",
        b"Content-Length: 3\r\nContent-Length: 3",
    ),
    (
        HEADER + b'[1,"wire","HTTP/1.1 200 OK\\nContent-Length:5\\n\\n"]\n[1,"data","hel"]\n[0,"end","complete"]\n',
        b"Content-Length:5\n",
        b"Content-Length:3\n",
    ),
    (edited('[1,"data","hel",{"before":"005;x=y\\r\\n"}]', LAST, head=CHUNKED), b"005;x=y\r\nhel", b"3;x=y\r\nhel"),
    (edited('[1,"data","hello!",{"before":"2\\n"}]', LAST, head=CHUNKED, end="fin"), b"2\nhello", b"6\nhello"),
    (
        edited('[1,"data","hey",{"after":""}]', '[1,"data","hi",{"before":"\\r\\nA\\r\\n"}]', LAST, head=CHUNKED),
        b"\r\nA\r\nhi",
        b"\r\n2\r\nhi",
    ),
]


@pytest.mark.parametrize(("text", "wrong", "right"), REPAIRED)
def test_repair_makes_lengths_what_the_data_says(text: bytes, wrong: bytes, right: bytes) -> None:
    with pytest.raises(CassetteError, match="`mockllm check --fix` rewrites the length"):
        loads(text)
    before = leniently(text)
    assert wrong in before.response.wire
    after = repair(before)
    assert after.response.wire == before.response.wire.replace(wrong, right)
    assert only(dump(after)) == after
    assert repair(after) == after


def leniently(text: bytes) -> Exchange:
    """The one exchange of a text, wrong lengths and all."""
    [place] = index(text, "x").places
    return load(text, place, "x", strict=False)


LEFT = {
    "wrong before a head": HEADER + b'[1,"data","hi"]\n[0,"end","fin"]\n',
    "no head": HEADER + b'[0,"end","complete"]\n',
    "a header in two lines": HALF_HEAD.encode()
    + b'[1,"wire","ngth: 5\\n\\n"]\n[1,"data","hel"]\n[0,"end","complete"]\n',
    "several lengths in a header": edited('[1,"data","hel"]', head='["Content-Length","5, 5"]'),
    "a space before the colon": edited('[1,"data","hel"]', head='["Content-Length ","5"]'),
    "a chunk in parts": edited(
        '[1,"data","he",{"before":"5\\r\\n","after":""}]', '[1,"data","llo!",{"before":""}]', LAST, head=CHUNKED
    ),
    "a size in two lines": edited(
        '[1,"wire","1"]', '[1,"data","fifteen letters",{"before":"0\\r\\n"}]', LAST, head=CHUNKED
    ),
    "no size": edited('[1,"data","hello",{"before":"x\\r\\n"}]', LAST, head=CHUNKED),
    "framing in a body without chunks": edited('[1,"data","hel",{"before":"a","after":"b"}]', end="fin"),
    "data without a body": edited('[1,"data","hi"]').replace(b'"status":200', b'"status":204'),
    "data after the end": edited('[1,"data","hello"]', LAST, '[1,"data","more"]', head=CHUNKED),
    "no last chunk": edited('[1,"data","hello"]', head=CHUNKED),
}
"""What is refused, and cannot be told how it was meant."""


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_repair_leaves_what_it_cannot_tell(text: bytes) -> None:
    with pytest.raises(CassetteError):
        loads(text)
    assert repair(leniently(text)) == leniently(text)


RIGHT = {
    "a length not reached": edited('[1,"data","hel"]', end="fin"),
    "a chunk cut off": edited('[1,"data","hel",{"before":"5\\r\\n","after":""}]', head=CHUNKED, end="hang"),
    "a size spelled otherwise": edited('[1,"data","hello",{"before":"0005\\r\\n"}]', LAST, head=CHUNKED),
    "a size in two lines": edited(
        '[1,"wire","1"]', '[1,"data","sixteen letters!",{"before":"0\\r\\n"}]', LAST, head=CHUNKED
    ),
    "body on a wire line": edited('[1,"data","he"]', '[1,"wire","llo"]'),
    "surplus like a head": edited('[1,"data","hello"]', '[1,"wire","HTTP/1.1 400 x\\nContent-Length: 5\\n\\n"]'),
    "until close": edited('[1,"data","hello"]', head='["A","b"]'),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_repair_leaves_what_is_right(text: bytes) -> None:
    assert repair(leniently(text)) == only(text)


@given(st.data())
def test_repair_changes_nothing_on_any_tape(data: st.DataObject) -> None:
    method, wire = data.draw(answers())
    exchange = only(taped(method, data.draw(cuttings(wire))).text)
    assert repair(exchange) == exchange


@given(st.lists(st.text(max_size=5), min_size=1, max_size=4), st.integers(0, 30))
def test_repair_mends_any_body_with_a_length(parts: list[str], length: int) -> None:
    lines = [json.dumps([1, "data", part]) for part in parts]
    exchange = repair(leniently(edited(*lines, head=f'["Content-Length","{length}"]')))
    assert only(dump(exchange)).response.wire == counted(len("".join(parts).encode())) + "".join(parts).encode()
