"""More events, fewer events: what is put in stands at borders only, what is taken out is one event."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.events import Event, Kind, events
from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.more import chosen
from mockllm.core.faults.spec import SpecError
from mockllm.core.faults.view import view
from mockllm.core.http1 import scan
from mockllm.core.response import Response
from tests.captures import load
from tests.core.faults.applying import bent, dispatched, fault, refusal, tail, unchanged
from tests.core.faults.making import NDJSON, SSE, body, chunks, from_capture, response, responses
from tests.reference import Dispatched

BOM = b"\xef\xbb\xbf"
E1 = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
E2 = b'data: {"choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n'
E3 = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"total_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
LINES = (b'{"response":"a","done":false}\n', b'{"response":"","done":true,"eval_count":3}\n')


def chat(framing: str = "chunked") -> Response:
    return response(framing, (2000, E1), (3000, E2), (4000, [E3, USAGE]), (5000, DONE))


def lines() -> Response:
    return response("chunked", (2000, LINES[0]), (3000, LINES[1]), media=NDJSON)


positions = st.builds("{}{}".format, st.integers(0, 60), st.sampled_from(["ev", "b", "pct", "us", "ms", "s"]))
PUT_IN = [
    "comment:text=x",
    "comment:text=a%0A%0Db",
    "retry:ms=70",
    "empty",
    "event",
    "event:name=,data=a%0Ab",
    "garbage",
]


# ---------------------------------------------------------------- properties


@given(responses(), st.sampled_from(["comment:text=data%3A x", "comment:text=a%0A%0A%0Db", "retry"]), positions)
def test_what_dispatches_nothing_changes_no_event(drawn: Response, spec: str, at: str) -> None:
    changed = fault(f"{spec}{',' if ':' in spec else ':'}at={at}")(drawn)
    assert dispatched(changed) == dispatched(drawn)
    assert tail(changed) == tail(drawn)
    if changed is not drawn:
        assert len(spans(changed)) == len(spans(drawn)) + 1


@given(responses(), st.sampled_from(PUT_IN), positions)
def test_what_is_put_in_is_one_block_between_the_others(drawn: Response, spec: str, at: str) -> None:
    changed = fault(f"{spec}{',' if ':' in spec else ':'}at={at}")(drawn)
    if changed is drawn:
        return
    old, new = spans(drawn), spans(changed)
    place = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    assert new[:place] + new[place + 1 :] == old
    stays_framed(drawn, changed)


@given(responses())
def test_bom_and_ids_change_no_event_but_its_id(drawn: Response) -> None:
    try:
        changed = fault("bom")(drawn)
        assert dispatched(changed) == dispatched(drawn)
        assert body(changed) == BOM + body(drawn).removeprefix(BOM)
    except Meaningless:
        assert body(drawn) == b""
    changed = fault("ids")(drawn)
    own = [event.id for event in dispatched(drawn)]
    assert [event.id for event in dispatched(changed)] == [
        b"%d" % number if id_ is None else id_ for number, id_ in enumerate(own, 1)
    ]
    assert without_ids(dispatched(changed)) == without_ids(dispatched(drawn))
    assert tail(changed) == tail(drawn)
    stays_framed(drawn, changed)


@given(responses(), st.integers(1, 4))
def test_an_event_twice_or_not_at_all_and_the_others_as_they_were(drawn: Response, number: int) -> None:
    was = dispatched(drawn)
    place = number - 1
    twice = fault(f"dup:event={number}")(drawn)
    assert dispatched(twice) == was[:number] + was[place:]
    assert tail(twice) == tail(drawn)
    stays_framed(drawn, twice)
    without = fault(f"drop:event={number}")(drawn)
    assert dispatched(without) == was[:place] + was[number:]
    assert tail(without) == tail(drawn)
    stays_framed(drawn, without)


@given(responses(ndjson=True), st.integers(1, 4))
def test_lines_of_json_are_doubled_and_dropped_whole(drawn: Response, number: int) -> None:
    was = json_lines(drawn)
    assert json_lines(fault(f"dup:event={number}")(drawn)) == was[:number] + was[number - 1 :]
    assert json_lines(fault(f"drop:event={number}")(drawn)) == was[: number - 1] + was[number:]


def spans(of: Response) -> list[tuple[Kind, bytes]]:
    text = body(of).removeprefix(BOM)
    return [(span.kind, text[span.start : span.stop]) for span in events(text, SSE.encode())]


def json_lines(of: Response) -> list[bytes]:
    return [span.data.rstrip(b"\r") for span in events(body(of), NDJSON.encode()) if span.kind is Kind.EVENT]


def without_ids(found: list[Dispatched]) -> list[tuple[bytes, bytes]]:
    return [(event.name, event.data) for event in found]


def stays_framed(drawn: Response, changed: Response) -> None:
    """The framing says as much as it did, and no time goes back or beyond what it was."""
    was, now = scan(drawn), scan(changed)
    assert (now.done, now.whole, now.bad) == (was.done, was.whole, was.bad)
    assert (changed.end, changed.then) == (drawn.end, drawn.then)
    assert changed.end_at == drawn.end_at


# ---------------------------------------------------------------- literal bytes


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("comment:text=hi,at=1ev", E1 + b": hi\n\n" + E2),
        ("comment:text=a%0Ab%0D%0Ac", E1 + b": a\n: b\n: c\n\n" + E2),
        ("comment", E1 + b": comment\n\n" + E2),
        ("retry:ms=250", E1 + b"retry: 250\n\n" + E2),
        ("retry:ms=2s", E1 + b"retry: 2000\n\n" + E2),
        ("retry", E1 + b"retry: 3000\n\n" + E2),
        ("empty", E1 + b"data:\n\n" + E2),
        ("event", E1 + b"event: vendor_x\ndata: tick\n\n" + E2),
        ("event:name=,data={}", E1 + b"data: {}\n\n" + E2),
        ("event:name=a,data=1%0A2", E1 + b"event: a\ndata: 1\ndata: 2\n\n" + E2),
        ("garbage", E1 + b'data: {"choices":[{"delta":{"content":\n\n' + E2),
        ("bom", BOM + E1 + E2),
        ("ids", b"id: 1\n" + E1 + b"id: 2\n" + E2 + b"id: 3\n" + E3 + b"id: 4\n" + USAGE + b"id: 5\n" + DONE),
        ("dup", E1 + E2 + E3 + E3 + USAGE + DONE),
        ("dup:event=usage", E1 + E2 + E3 + USAGE + USAGE + DONE),
        ("dup:event=done", E1 + E2 + E3 + USAGE + DONE + DONE),
        ("dup:event=1", E1 + E1 + E2),
        ("drop", E1 + E2 + E3 + USAGE),
        ("drop:event=role", E2 + E3 + USAGE + DONE),
        ("drop:event=usage", E1 + E2 + E3 + DONE),
        ("drop:event=3", E1 + E2 + USAGE + DONE),
    ],
)
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_bytes(spec: str, expected: bytes, framing: str) -> None:
    changed = bent(spec, chat(framing))
    assert body(changed) == expected + (E3 + USAGE + DONE if expected.endswith(E2) else b"")
    assert scan(changed).whole


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("comment:text=x,at=0ev", [(2000, b": x\n\n"), (2000, E1)]),
        ("comment:text=x,at=1ev", [(2000, E1), (2000, b": x\n\n"), (3000, E2)]),
        ("comment:text=x,at=1b", [(2000, E1), (2000, b": x\n\n"), (3000, E2)]),
        ("comment:text=x,at=0ms", [(1000, b": x\n\n"), (2000, E1)]),
        ("comment:text=x,at=1500us", [(1500, b": x\n\n"), (2000, E1)]),
        ("comment:text=x,at=2ms", [(2000, b": x\n\n"), (2000, E1)]),
        ("comment:text=x,at=2500us", [(2000, E1), (2500, b": x\n\n"), (3000, E2)]),
        ("dup:event=1", [(2000, E1), (2000, E1), (3000, E2)]),
        ("ids", [(2000, b"id: 1\n" + E1), (3000, b"id: 2\n" + E2)]),
        ("bom", [(2000, BOM + E1), (3000, E2)]),
        ("drop:event=1", [(3000, E2)]),
    ],
)
def test_times(spec: str, expected: list[tuple[int, bytes]]) -> None:
    assert chunks(bent(spec, chat()))[: len(expected)] == expected


def test_a_time_inside_an_event_moves_to_its_end() -> None:
    recorded = response("chunked", (2000, E1[:9]), (3000, E1[9:]), (4000, E2))
    assert chunks(bent("comment:text=x,at=2500us", recorded)) == [
        (2000, E1[:9]),
        (3000, E1[9:]),
        (3000, b": x\n\n"),
        (4000, E2),
    ]


def test_at_a_time_after_the_last_event_and_before_the_end() -> None:
    recorded = response("close", (2000, E1), end_at=9000)
    assert chunks(bent("comment:text=x,at=5ms", recorded)) == [(2000, E1), (5000, b": x\n\n")]
    assert unchanged("comment:text=x,at=10ms", recorded)


@pytest.mark.parametrize(
    "spec", ["comment:at=6ev", "retry:at=9999b", "empty:at=1m", "event:at=9ev", "dup:event=9", "drop:event=6"]
)
def test_beyond_the_end_nothing_happens(spec: str) -> None:
    assert unchanged(spec, chat())


def test_new_blocks_are_spelled_as_the_stream_is() -> None:
    crlf = response("chunked", (2000, b"data: 1\r\n\r\n"))
    assert body(bent("comment:text=a%0Ab", crlf)) == b"data: 1\r\n\r\n: a\r\n: b\r\n\r\n"
    assert body(bent("ids", crlf)) == b"id: 1\r\ndata: 1\r\n\r\n"
    assert body(bent("event:name=x", response("chunked", (2000, b"data: 1\r\r")))) == (
        b"data: 1\r\revent: x\rdata: tick\r\r"
    )
    assert body(bent("comment:text=x,at=0ev", response("chunked"))) == b": x\n\n"


def test_a_byte_order_mark_stays_first() -> None:
    marked = response("chunked", (2000, BOM + E1))
    for spec, expected in {
        "comment:text=x,at=0ev": BOM + b": x\n\n" + E1,
        "ids": BOM + b"id: 1\n" + E1,
        "dup:event=1": BOM + E1 + E1,
        "drop:event=1": BOM,
    }.items():
        assert body(bent(spec, marked)) == expected
    assert unchanged("bom", marked)
    early = bent("comment:text=x,at=1500us", marked)
    assert chunks(early) == [(1500, BOM + b": x\n\n"), (2000, E1)]
    apart = response("chunked", (2000, BOM[:1]), (2100, BOM[1:]), (2200, E1))
    assert chunks(bent("comment:text=x,at=1500us", apart)) == [(1500, BOM + b": x\n\n"), (2200, E1)]
    assert chunks(bent("comment:text=x,at=2150us", apart))[1:] == [(2100, BOM[1:]), (2150, b": x\n\n"), (2200, E1)]


def test_an_event_with_an_id_keeps_it() -> None:
    assert body(bent("ids", response("chunked", (2000, b"id: z\ndata: 1\n\ndata: 2\n\n")))) == (
        b"id: z\ndata: 1\n\nid: 2\ndata: 2\n\n"
    )


# ---------------------------------------------------------------- JSON lines


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("empty", LINES[0] + b"\n" + LINES[1]),
        ("event:data={}", LINES[0] + b"{}\n" + LINES[1]),
        ("garbage", LINES[0] + b'{"choices":[{"delta":{"content":\n' + LINES[1]),
        ("dup:event=done", LINES[0] + LINES[1] * 2),
        ("dup:event=usage", LINES[0] + LINES[1] * 2),
        ("drop:event=done", LINES[0]),
        ("drop:event=1", LINES[1]),
    ],
)
def test_json_lines(spec: str, expected: bytes) -> None:
    assert body(bent(spec, lines())) == expected


@pytest.mark.parametrize("spec", ["comment", "retry", "ids", "bom", "comment:at=9ev"])
def test_what_json_lines_do_not_have(spec: str) -> None:
    assert refusal(spec, lines()) == "a stream of JSON lines has no such thing"


def test_a_last_line_without_its_end_stays_so() -> None:
    open_ended = response("close", (2000, LINES[0]), (3000, LINES[1][:-1]), media=NDJSON)
    assert body(bent("dup:event=2", open_ended)) == LINES[0] + LINES[1] + LINES[1][:-1]
    assert chunks(bent("dup:event=2", open_ended))[0] == (2000, LINES[0])
    assert body(bent("drop:event=2", open_ended)) == LINES[0]
    assert unchanged("empty:at=2ev", open_ended), "there is no border after it"
    crlf = response("close", (2000, LINES[0].replace(b"\n", b"\r\n")), media=NDJSON)
    assert body(bent("event:data={}", crlf)).endswith(b"}\r\n{}\r\n")


def test_data_of_several_lines_are_no_json_line() -> None:
    assert refusal("event:data=a%0Ab", lines()) == "a JSON line is one line"


# ---------------------------------------------------------------- where it has no meaning


@pytest.mark.parametrize("spec", ["comment", "retry", "ids", "empty", "event", "bom", "dup", "drop", "garbage"])
def test_a_body_that_is_no_stream_has_no_events(spec: str) -> None:
    plain = response("length", (2000, b"{}"), media="application/json")
    assert refusal(spec, plain) == "the body is no stream of events"


def test_an_empty_body_has_no_first_event_to_mark() -> None:
    assert refusal("bom", response("chunked")) == "the body is empty"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("dup:event=finish", "no event means finish"),
        ("drop:event=usage", "no event means usage"),
        ("drop:event=role", "no event means role"),
    ],
)
def test_what_no_event_means_is_not_found(spec: str, why: str) -> None:
    assert refusal(spec, response("chunked", (2000, E2), (3000, DONE))) == why


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("dup:event=0", "events count from 1"),
        ("drop:event=0", "events count from 1"),
        ("drop:event=finish", "expected done, usage, role or a whole number"),
        ("retry:ms=1500us", "whole milliseconds"),
        ("event:name=a%0Ab", "a name is one line"),
    ],
)
def test_keys_that_make_no_sense(spec: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        fault(spec)


# ---------------------------------------------------------------- real streams


def found(server: str, name: str, which: str) -> Event:
    event = chosen(view(from_capture(load(server, name))), which)
    assert event is not None
    return event


@pytest.mark.parametrize(
    ("server", "name", "which", "expected"),
    [
        ("mlx_lm.server", "stream_chat_usage", "finish", b'"finish_reason": "length"'),
        ("mlx_lm.server", "stream_chat_usage", "usage", b'"choices": [], "usage": {'),
        ("mlx_lm.server", "stream_chat_usage", "done", b"[DONE]"),
        ("llama-server", "chat-hello", "role", b'"role":"assistant","content":null'),
        ("llama-server", "messages-hello", "finish", b'"type":"message_delta"'),
        ("llama-server", "messages-hello", "done", b'"type":"message_stop"'),
        ("llama-server", "responses-hello", "done", b'"type":"response.completed"'),
        ("llama-server", "stream_native_completion", "done", b'"stop":true'),
    ],
)
def test_events_are_found_by_what_they_mean(server: str, name: str, which: str, expected: bytes) -> None:
    assert expected in found(server, name, which).data
