"""Other spellings of the same events: a client by the standard sees no difference where none should be."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.events import Kind, events
from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.spec import SpecError
from mockllm.core.http1 import scan
from mockllm.core.response import End, Response
from tests.core.faults.applying import bent, dispatched, fault, refusal, tail, unchanged
from tests.core.faults.making import NDJSON, SSE, all_at, body, chunks, response, responses
from tests.core.test_events import bodies as nasty_bodies
from tests.reference import reference

E1 = b'data: {"a": 1, "b": "x"}\n\n'
DONE = b"data: [DONE]\n\n"


# ---------------------------------------------------------------- properties


@given(responses(), st.sampled_from(["crlf", "cr", "mixed:seed=1", "mixed:seed=2", "nospace"]))
def test_the_events_the_unfinished_tail_and_the_framing_stay(drawn: Response, spec: str) -> None:
    changed = fault(spec)(drawn)
    assert dispatched(changed) == dispatched(drawn)
    assert tail(changed) == tail(drawn)
    was, now = scan(drawn), scan(changed)
    assert (now.done, now.whole, now.bad, now.missing) == (was.done, was.whole, was.bad, was.missing)
    times = {at for at, _ in drawn.reads()}
    assert {at for at, _ in changed.reads()} <= times
    assert (changed.end, changed.end_at, changed.then) == (drawn.end, drawn.end_at, drawn.then)


@given(nasty_bodies, st.sampled_from(["crlf", "cr", "mixed:seed=5", "nospace"]))
def test_no_byte_of_a_value_is_touched(text: bytes, spec: str) -> None:
    changed = fault(spec)(response("close", (2000, text)) if text else response("close"))
    assert reference(body(changed)) == reference(text)
    kept = [bytes([byte]) for byte in text if byte not in b"\r\n "]
    assert [bytes([byte]) for byte in body(changed) if byte not in b"\r\n "] == kept
    assert tail(changed) == tail(response("close", (2000, text)))


@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=10,
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
    st.booleans(),
)
def test_json_over_two_lines_is_the_same_json(values: list[object], ascii_only: bool, spaced: bool) -> None:
    separators = None if spaced else (",", ":")
    texts = [json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode() for value in values]
    recorded = response("chunked", (2000, [b"data: %s\n\n" % text for text in texts]))
    changed = fault("multiline")(recorded)
    assert [json.loads(event.data) for event in dispatched(changed)] == values
    broken = [b"\n" in event.data for event in dispatched(changed)]
    assert broken == [isinstance(value, dict | list) for value in values]
    assert body(changed).replace(b"\ndata: ", b"") == body(recorded).replace(b"\ndata: ", b"")


@given(responses())
def test_multiline_changes_nothing_else(drawn: Response) -> None:
    changed = fault("multiline")(drawn)
    was, now = dispatched(drawn), dispatched(changed)
    assert [(e.name, e.id, e.data.replace(b"\n", b"")) for e in now] == [
        (e.name, e.id, e.data.replace(b"\n", b"")) for e in was
    ]
    assert tail(changed) == tail(drawn)


@given(responses())
def test_without_gaps_the_standard_sees_one_event_with_all_data(drawn: Response) -> None:
    try:
        changed = fault("nogap")(drawn)
    except Meaningless:
        assert not dispatched(drawn)
        return
    [only] = dispatched(changed)
    assert only.data == b"\n".join(event.data for event in dispatched(drawn))
    assert tail(changed) == tail(drawn)


@given(responses(), st.integers(1, 2))
def test_the_last_event_is_not_dispatched_any_more(drawn: Response, strip: int) -> None:
    try:
        changed = fault(f"tail:strip={strip}")(drawn)
    except Meaningless:
        return
    assert dispatched(changed) == dispatched(drawn)[:-1]
    lost = body(drawn)[len(body(changed)) :]
    assert body(changed) + lost == body(drawn)
    assert re.fullmatch(rb"(?:\r\n|\r|\n){%d}" % strip, lost)
    last = tail(changed)
    assert last is not None
    assert last[1] == dispatched(drawn)[-1].data


@given(responses(), st.integers(0, 5))
def test_a_seed_repeats(drawn: Response, seed: int) -> None:
    assert fault(f"mixed:seed={seed}")(drawn) == fault(f"mixed:seed={seed}")(drawn)


# ---------------------------------------------------------------- literal bytes


@pytest.mark.parametrize(
    ("spec", "text", "expected"),
    [
        ("crlf", b"event: x\ndata: 1\n\n", b"event: x\r\ndata: 1\r\n\r\n"),
        ("crlf", b"data: 1\r\n\ndata: 2\n", b"data: 1\r\n\r\ndata: 2\r\n"),
        ("crlf", "data: \u2028\u0085\\u000a\n\n".encode(), "data: \u2028\u0085\\u000a\r\n\r\n".encode()),
        ("cr", E1, E1.replace(b"\n", b"\r")),
        ("cr", b"data: 1\r\n\ndata: 2\r\n", b"data: 1\r\rdata: 2\r"),
        ("nospace", b"id: 1\nevent: x\nretry: 5\ndata: {}\n\n", b"id:1\nevent:x\nretry:5\ndata:{}\n\n"),
        ("nospace", b": comment\ndata:  two\ndata: data: x\n\n", b": comment\ndata:  two\ndata:data: x\n\n"),
        ("nospace", b"\xef\xbb\xbfdata: 1\r\n\r\ndata: \r\rdata: 2", b"\xef\xbb\xbfdata:1\r\n\r\ndata:\r\rdata:2"),
        ("multiline", E1 + DONE, b'data: {"a": 1,\ndata:  "b": "x"}\n\n' + DONE),
        ("multiline", b'data:{"a,b:{}\\"":[]}\r\n\r\n', b'data:{"a,b:{}\\""\r\ndata::[]}\r\n\r\n'),
        ("multiline", b"\xef\xbb\xbfdata: {}\n\ndata: [", b"\xef\xbb\xbfdata: {\ndata: }\n\ndata: ["),
        ("nogap", E1 + DONE, E1[:-1] + DONE),
        ("nogap", b"data: 1\r\n\r\n: ka\n\ndata: 2\r\rdata: 3", b"data: 1\r\n: ka\ndata: 2\r\rdata: 3"),
        ("nogap", b"\n" + E1 + E1 + b": end\n\n", E1[:-1] + E1 + b": end\n\n"),
        ("tail", E1 + DONE, E1 + b"data: [DONE]\n"),
        ("tail:strip=2", E1 + DONE, E1 + b"data: [DONE]"),
        ("tail:strip=2", b"data: 1\r\n\r\n", b"data: 1"),
        ("tail:strip=1", b"data: 1\r\r", b"data: 1\r"),
        ("tail:strip=2", b"data: 1\r\r\n", b"data: 1"),
    ],
)
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_bytes(spec: str, text: bytes, expected: bytes, framing: str) -> None:
    changed = bent(spec, response(framing, (2000, text[:5]), (3000, text[5:])))
    assert body(changed) == expected
    assert scan(changed).whole


@pytest.mark.parametrize("spec", ["crlf", "nospace", "multiline", "mixed", "cr"])
def test_what_is_spelled_so_already_stays_as_it_is(spec: str) -> None:
    texts = {
        "crlf": b"data: 1\r\n\r\ndata: a\rb",
        "nospace": b"data:1\n\ndata:  2\n\n",
        "multiline": b"data: {\ndata: }\n\ndata: 1\n\n",
        "mixed": b"data: 1\r\r",
        "cr": b"data: 1\r\r",
    }
    assert unchanged(spec, response("chunked", (2000, texts[spec])))


def test_new_bytes_come_with_those_they_spell() -> None:
    recorded = response("chunked", (2000, b"data: 1\n"), (3000, b"\n"), (4000, b"data: {"), (5000, b"}\n\n"))
    assert chunks(bent("crlf", recorded)) == [
        (2000, b"data: 1\r\n"),
        (3000, b"\r\n"),
        (4000, b"data: {"),
        (5000, b"}\r\n\r\n"),
    ]
    assert chunks(bent("multiline", recorded))[2:] == [(4000, b"data: {"), (5000, b"\ndata: }\n\n")]
    split = response("close", (2000, b"data: 1\r"), (3000, b"\n\r"), (4000, b"\n"))
    assert chunks(bent("cr", split)) == [(2000, b"data: 1\r"), (3000, b"\r")]


def test_mixed_draws_every_line_end_and_each_seed_its_own() -> None:
    recorded = response("chunked", (2000, E1 * 20))
    texts = {body(bent(f"mixed:seed={seed}", recorded)) for seed in range(5)}
    assert len(texts) == 5
    for text in texts:
        assert b"\r\n" in text
        assert b"}\n" in text
        assert b"\r\r" in text or b"\rd" in text
    assert bent("mixed", recorded) == bent("mixed:seed=0", recorded)


# ---------------------------------------------------------------- JSON lines, and what is no stream


def test_json_lines_take_crlf_and_tail_only() -> None:
    recorded = response("chunked", (2000, b'{"done":false}\n'), (3000, b'{"done":true}\n'), media=NDJSON)
    assert body(bent("crlf", recorded)) == b'{"done":false}\r\n{"done":true}\r\n'
    assert [event.data for event in events(body(bent("crlf", recorded)), NDJSON.encode())] == [
        b'{"done":false}',
        b'{"done":true}',
    ]
    assert body(bent("tail", recorded)) == body(bent("tail:strip=2", recorded)) == body(recorded)[:-1]
    assert body(bent("tail", bent("crlf", recorded))) == b'{"done":false}\r\n{"done":true}'
    for spec in ["cr", "mixed", "nospace", "multiline", "nogap"]:
        assert refusal(spec, recorded) == "a stream of JSON lines has no such thing"


@pytest.mark.parametrize("spec", ["crlf", "cr", "mixed", "nospace", "multiline", "nogap", "tail"])
def test_a_body_that_is_no_stream_has_no_such_spelling(spec: str) -> None:
    assert refusal(spec, response("length", (2000, b"{}\n\n"), media="application/json")) == (
        "the body is no stream of events"
    )


@pytest.mark.parametrize("text", [b"", b": ka\n\n", b"data: 1\n\n: ka\n\n", b"data: 1\n\ndata", b"data: 1\n"])
def test_only_a_whole_event_at_the_end_loses_its_end(text: bytes) -> None:
    recorded = response("chunked", (2000, text)) if text else response("chunked")
    assert refusal("tail", recorded) == "the stream does not end with a whole event"


def test_a_line_of_json_that_has_no_end_has_none_to_lose() -> None:
    recorded = response("close", (2000, b'{"done":true}'), media=NDJSON)
    assert refusal("tail", recorded) == "the stream does not end with a whole event"


def test_without_events_there_are_no_gaps() -> None:
    assert refusal("nogap", response("close", (2000, b": ka\n\n: ka\n\n"))) == "there is no event"
    assert unchanged("nogap", response("close", (2000, E1)))


@pytest.mark.parametrize("strip", ["0", "3"])
def test_no_more_than_two_line_ends_can_be_missing(strip: str) -> None:
    with pytest.raises(SpecError, match="strip is 1 or 2"):
        fault(f"tail:strip={strip}")


def test_an_unfinished_tail_stays_what_it_is() -> None:
    recorded = response("chunked", (2000, E1 + b"data: x\n"), end=End.FIN)
    for spec in ["crlf", "cr", "nospace"]:
        changed = bent(spec, recorded)
        assert tail(changed) == (b"", b"x", ())
        assert events(body(changed), SSE.encode())[-1].kind is Kind.TAIL


def test_a_megabyte_of_line_ends_is_spelled_anew_in_linear_time() -> None:
    recorded = all_at(2000, response("chunked", (2000, [b"data: 1\n\n" * 20_000])))
    for spec in ["crlf", "cr", "mixed", "nospace", "nogap"]:
        assert body(bent(spec, recorded)).count(b"data") == 20_000
