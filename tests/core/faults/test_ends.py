"""Faults of the end: where an answer stops, how, and what follows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.faults.base import Fault, Meaningless
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.spec import SpecError, parse
from mockllm.core.faults.view import view
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Segment, Then
from tests.captures import Capture, captures, load
from tests.core.faults.making import (
    NDJSON,
    body,
    chunks,
    from_capture,
    gzipped,
    inflated,
    response,
    responses,
    strictly_whole,
    tracked,
    writes,
)

E1, E2, E3, DONE = b"data: 1\n\n", b"data: 22\n\n", b"data: 333\n\n", b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
BROKEN = ["fin", "rst", "hang"]
PLACES = st.one_of(
    st.integers(0, 6).map("{}ev".format),
    st.integers(0, 200).map("{}b".format),
    st.integers(0, 100).map("{}pct".format),
    st.integers(0, 500_000).map("{}us".format),
)


def fault(text: str) -> Fault:
    (step,) = parse(text, CATALOGUE)
    return step.fault


def bent(recorded: Response, text: str) -> Response:
    return fault(text)(recorded)


def ending(played: Response) -> tuple[End, int, Then, int]:
    return played.end, played.end_at, played.then, played.then_at


STREAM = response("chunked", (2000, E1), (302_000, [E2, E3]), (602_000, DONE))
CLOSING = response("close", (2000, E1 + E2), (302_000, E3), end_at=302_500)
JSON = response("length", (2000, b'{"a":'), (3000, b"1}"), media="application/json")


# ---------------------------------------------------------------- properties


@given(responses(), PLACES, st.sampled_from(BROKEN))
def test_a_cut_sends_a_prefix_of_the_bytes_at_their_times(drawn: Response, at: str, end: str) -> None:
    played = bent(drawn, f"cut:at={at},end={end}")
    assert drawn.wire.startswith(played.wire)
    was = drawn.wire[: len(played.wire)]
    assert played.wire == was
    # Only the CRLF of a chunk may come earlier, with the chunk's last byte.
    assert all(now <= then for now, then in zip(sent(played), sent(drawn), strict=False))
    assert [at for at, data in chunks(played) for _ in data] == [at for at, data in chunks(drawn) for _ in data][
        : len(body(played))
    ]
    if played is not drawn:
        assert ending(played)[::2] == (End(end), Then.OPEN)
        assert played.end_at <= drawn.end_at or drawn.end is End.HANG


def sent(played: Response) -> list[int]:
    return [at for at, data in played.reads() for _ in data]


@given(responses(), PLACES)
def test_a_complete_cut_looks_whole_and_its_body_is_a_prefix(drawn: Response, at: str) -> None:
    try:
        played = bent(drawn, f"cut:at={at},end=complete")
    except Meaningless:
        assert at.endswith("us")
        assert not [segment for segment in drawn.segments if segment.at < int(at[:-2]) and segment.data]
        return
    assert body(drawn).startswith(body(played))
    if played is not drawn:
        assert strictly_whole(played)
        assert played.end is End.COMPLETE
        assert (played.then is Then.FIN) or scan(played).framing is not Framing.CLOSE


@given(responses(), st.integers(0, 6), st.sampled_from([*BROKEN, "complete"]))
def test_a_cut_at_an_event_leaves_so_many_events(drawn: Response, count: int, end: str) -> None:
    played = bent(drawn, f"cut:at={count}ev,end={end}")
    before, after = view(drawn), view(played)
    if count > len(before.events):
        assert played is drawn
    else:
        assert [event.data for event in after.events] == [event.data for event in before.events][:count]
        assert body(played) == before.body[: before.events[count - 1].stop if count else 0]


@given(responses(), st.integers(0, 200), st.sampled_from([*BROKEN, "complete"]))
def test_a_cut_at_a_byte_leaves_so_many_bytes(drawn: Response, count: int, end: str) -> None:
    played = bent(drawn, f"cut:at={count}b,end={end}")
    assert len(body(played)) == min(count, len(body(drawn)))


@given(responses(), PLACES)
def test_no_cut_sends_a_last_chunk(drawn: Response, at: str) -> None:
    played = bent(drawn, f"cut:at={at},end=fin")
    if played is not drawn and scan(played).framing is Framing.CHUNKED and not at.endswith("us"):
        assert not scan(played).done


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_what_real_servers_sent_can_be_cut_at_every_event(capture: Capture) -> None:
    recorded = from_capture(capture)
    try:
        events = view(recorded).events
    except Meaningless:
        return
    for count in range(0, len(events) + 1, max(1, len(events) // 20)):
        for end in [*BROKEN, "complete"]:
            played = bent(recorded, f"cut:at={count}ev,end={end}")
            assert [event.data for event in view(played).events] == [event.data for event in events[:count]]
            assert end == "complete" or recorded.wire.startswith(played.wire)


# ---------------------------------------------------------------- cut (C3, C4, C15, C21, C24)


@pytest.mark.parametrize(
    ("at", "expected", "end_at"),
    [
        ("0ev", [], 1000),
        ("1ev", [(2000, b"9\r\n" + E1 + b"\r\n")], 2000),
        ("2ev", [(2000, b"9\r\n" + E1 + b"\r\n"), (302_000, b"a\r\n" + E2 + b"\r\n")], 302_000),
        ("0b", [], 1000),
        ("3b", [(2000, b"9\r\ndat")], 2000),
        ("9b", [(2000, b"9\r\n" + E1 + b"\r\n")], 2000),
        ("10b", [(2000, b"9\r\n" + E1 + b"\r\n"), (302_000, b"a\r\nd")], 302_000),
        ("50pct", [(2000, b"9\r\n" + E1 + b"\r\n"), (302_000, b"a\r\n" + E2 + b"\r\nb\r\ndat")], 302_000),
        ("302ms", [(2000, b"9\r\n" + E1 + b"\r\n")], 302_000),
        ("300ms", [(2000, b"9\r\n" + E1 + b"\r\n")], 300_000),
        ("1500us", [], 1500),
    ],
)
@pytest.mark.parametrize("end", BROKEN)
def test_cuts(at: str, expected: list[tuple[int, bytes]], end_at: int, end: str) -> None:
    played = bent(STREAM, f"cut:at={at},end={end}")
    assert writes(played) == [(1000, STREAM.segments[0].wire), *expected]
    assert ending(played) == (End(end), end_at, Then.OPEN, 0)


def test_a_cut_is_a_fin_where_nothing_else_is_asked_for() -> None:
    assert bent(STREAM, "cut:at=1ev") == bent(STREAM, "cut:at=1ev,end=fin")


def test_a_cut_before_the_head_sends_nothing() -> None:
    assert bent(STREAM, "cut:at=1ms,end=rst") == Response((), End.RST, 1000, method="POST")


def test_a_cut_at_the_end_leaves_out_the_last_chunk() -> None:
    for at in ("4ev", "100pct", "44b"):
        played = bent(STREAM, f"cut:at={at}")
        assert played.wire == STREAM.wire.removesuffix(LAST)
        assert ending(played) == (End.FIN, 602_000, Then.OPEN, 0)


@pytest.mark.parametrize("at", ["5ev", "1000b", "603ms"])
@pytest.mark.parametrize("end", [*BROKEN, "complete"])
def test_a_cut_beyond_the_end_has_no_effect(at: str, end: str) -> None:
    assert bent(STREAM, f"cut:at={at},end={end}") is STREAM


def test_a_cut_keeps_a_promised_length() -> None:
    played = bent(JSON, "cut:at=5b,end=rst")
    assert b"Content-Length: 7\r\n" in played.wire
    assert scan(played).missing == 2
    whole = bent(JSON, "cut:at=100pct")
    assert whole.wire == JSON.wire
    assert ending(whole) == (End.FIN, 3000, Then.OPEN, 0)


def test_a_cut_sends_the_end_of_a_chunk_that_came_later() -> None:
    head = STREAM.segments[0].wire
    recorded = tracked([(1, head), (2, b"9\r\n" + E1), (3, b"\r\na\r\n" + E2 + b"\r\n"), (4, LAST)])
    assert writes(bent(recorded, "cut:at=1ev")) == [(1, head), (2, b"9\r\n" + E1 + b"\r\n")]
    assert writes(bent(recorded, "cut:at=3us")) == [(1, head), (2, b"9\r\n" + E1)]
    assert writes(bent(recorded, "cut:at=4us")) == [(1, head), (2, b"9\r\n" + E1), (3, b"\r\na\r\n" + E2 + b"\r\n")]


def test_complete_makes_chunks_whole() -> None:
    played = bent(STREAM, "cut:at=12b,end=complete")
    assert writes(played)[1:] == [(2000, b"9\r\n" + E1 + b"\r\n"), (302_000, b"3\r\ndat\r\n" + LAST)]
    assert ending(played) == (End.COMPLETE, 302_000, Then.OPEN, 0)
    assert writes(bent(STREAM, "cut:at=0ev,end=complete")) == [(1000, STREAM.segments[0].wire + LAST)]
    assert writes(bent(STREAM, "cut:at=1500us,end=complete"))[1:] == [(1500, LAST)]
    assert writes(bent(STREAM, "cut:at=300ms,end=complete"))[1:] == [(2000, b"9\r\n" + E1 + b"\r\n"), (300_000, LAST)]


def test_complete_makes_a_length_shorter() -> None:
    recorded = Response(JSON.segments, End.COMPLETE, 3000, Then.FIN, 3500, "POST")
    played = bent(recorded, "cut:at=6b,end=complete")
    assert played.wire == JSON.wire.replace(b"Length: 7", b"Length: 6").removesuffix(b"}")
    assert ending(played) == (End.COMPLETE, 3000, Then.FIN, 3500)
    assert bent(recorded, "cut:at=5b,end=complete").then_at == 2500


def test_complete_closes_what_has_no_length() -> None:
    played = bent(CLOSING, "cut:at=1ev,end=complete")
    assert chunks(played) == [(2000, E1)]
    assert ending(played) == (End.COMPLETE, 2000, Then.FIN, 2000)


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_complete_makes_whole_what_broke_off(framing: str) -> None:
    recorded = response(framing, (2000, E1), end=End.RST, end_at=9000, promised=20)
    played = bent(recorded, "cut:at=100pct,end=complete")
    assert strictly_whole(played)
    assert body(played) == E1
    assert ending(played) == (End.COMPLETE, 2000, Then.OPEN, 0)
    unfinished = tracked([(1, STREAM.segments[0].wire + b"ff\r\ndata")], end=End.FIN)
    assert bent(unfinished, "cut:at=4b,end=complete").wire.endswith(b"\r\n\r\n4\r\ndata\r\n" + LAST)


def test_complete_needs_a_head_and_a_body() -> None:
    with pytest.raises(Meaningless, match="without a head"):
        bent(STREAM, "cut:at=1ms,end=complete")
    with pytest.raises(Meaningless):
        bent(tracked([(5, b"HTTP/1.1 204 No Content\r\n\r\n")]), "cut:at=5us,end=complete")


def test_a_cut_that_is_the_end_as_it_was_has_no_effect() -> None:
    assert bent(CLOSING, "cut:at=3ev") is CLOSING, "on the wire it is the same close"
    assert bent(CLOSING, "cut:at=3ev,end=complete") is CLOSING
    assert bent(STREAM, "cut:at=100pct,end=complete") is STREAM
    assert bent(CLOSING, "cut:at=3ev,end=rst").end is End.RST
    reset = response("length", (2000, b"{}"), then=Then.RST)
    assert bent(reset, "cut:at=2b,end=rst") is reset
    assert bent(reset, "cut:at=2b,end=fin").end is End.FIN
    hung = bent(STREAM, "cut:at=2ev,end=hang")
    assert bent(hung, "cut:at=2ev,end=hang") is hung


def test_a_hang_can_be_cut_at_any_later_time() -> None:
    hung = response("chunked", (2000, E1), end=End.HANG, end_at=5000)
    assert ending(bent(hung, "cut:at=60s,end=rst")) == (End.RST, 60_000_000, Then.OPEN, 0)
    whole = bent(hung, "cut:at=60s,end=complete")
    assert writes(whole)[-1] == (60_000_000, LAST)


def test_a_close_that_comes_late_can_be_cut_before_it() -> None:
    recorded = response("close", (2000, E1), end_at=5_000_000)
    assert ending(bent(recorded, "cut:at=1s,end=rst")) == (End.RST, 1_000_000, Then.OPEN, 0)


def test_a_cut_by_time_needs_no_body() -> None:
    empty = tracked([(5, b"HTTP/1.1 204 No Content\r\n\r\n")])
    assert bent(empty, "cut:at=3us,end=rst") == Response((), End.RST, 3, method="POST")
    for at in ("0b", "0ev"):
        with pytest.raises(Meaningless):
            bent(empty, f"cut:at={at}")
    with pytest.raises(Meaningless, match="no stream of events"):
        bent(JSON, "cut:at=1ev")


def test_ndjson_is_cut_by_lines() -> None:
    recorded = response("chunked", (2000, b'{"a":1}\n\n{"b":2}\n'), (3000, b'{"done":true}\n'), media=NDJSON)
    assert body(bent(recorded, "cut:at=2ev")) == b'{"a":1}\n\n{"b":2}\n'


def test_a_cut_at_an_event_opens_a_compressed_stream() -> None:
    recorded = gzipped([(2000, E1 + E2), (3000, E3)])
    played = bent(recorded, "cut:at=1ev")
    assert inflated(played) == [(2000, E1)]
    assert ending(played) == (End.FIN, 2000, Then.OPEN, 0)
    assert not scan(played).done
    whole = bent(recorded, "cut:at=1ev,end=complete")
    assert inflated(whole) == [(2000, E1)]
    assert strictly_whole(whole)
    assert bent(recorded, "cut:at=9ev") is recorded
    assert body(bent(recorded, "cut:at=20b")) == body(recorded)[:20]


def test_the_last_event_of_a_real_server_can_be_left_out() -> None:
    recorded = from_capture(load("llama-server", "chat-hello"))
    count = len(view(recorded).events)
    played = bent(recorded, f"cut:at={count - 1}ev,end=complete")
    assert b"[DONE]" in recorded.wire
    assert b"[DONE]" not in played.wire
    assert strictly_whole(played)


@pytest.mark.parametrize(
    ("spec", "after_head", "end"),
    [
        ("cut:at=1ev,end=complete", b"9\r\n" + E1 + b"\r\n" + LAST, End.COMPLETE),  # C3
        ("cut:at=1ev,end=fin", b"9\r\n" + E1 + b"\r\n", End.FIN),  # C4, C21
        ("stall:at=1ev,for=forever", b"9\r\n" + E1 + b"\r\n", End.HANG),  # C5
        (
            "cut:at=3ev,end=complete",
            b"9\r\n" + E1 + b"\r\n" + b"a\r\n" + E2 + b"\r\n" + b"b\r\n" + E3 + b"\r\n" + LAST,
            End.COMPLETE,
        ),  # C15
        ("cut:at=0b,end=complete", LAST, End.COMPLETE),  # C26: 200 with 0 bytes
    ],
)
def test_cases_from_the_field(spec: str, after_head: bytes, end: End) -> None:
    played = bent(STREAM, spec)
    assert played.wire == STREAM.segments[0].wire + after_head
    assert played.end is end


# ---------------------------------------------------------------- idle-close (C30)


def test_idle_close_closes_a_connection_that_was_kept() -> None:
    played = bent(STREAM, "idle-close:after=2s")
    assert played.segments == STREAM.segments
    assert ending(played) == (End.COMPLETE, 602_000, Then.FIN, 2_602_000)
    left = response("length", (2000, b"{}"), end=End.CLIENT, end_at=2000)
    assert ending(bent(left, "idle-close:after=0s")) == (End.COMPLETE, 2000, Then.FIN, 2000)
    empty = tracked([(5, b"HTTP/1.1 204 No Content\r\n\r\n")])
    assert bent(empty, "idle-close:after=1us").then_at == 6


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        (CLOSING, "does not end in a way that keeps the connection open"),
        (bent(STREAM, "cut:at=1ev"), "does not end in a way that keeps the connection open"),
        (bent(JSON, "cut:at=100pct,end=hang"), "does not end in a way that keeps the connection open"),
        (response("length", (2000, b"{}"), then=Then.FIN), "closes the connection anyway"),
        (Response((), End.FIN, 5), "does not end in a way that keeps the connection open"),
    ],
)
def test_a_connection_that_is_not_kept_cannot_be_closed_idle(recorded: Response, why: str) -> None:
    with pytest.raises(Meaningless, match=why):
        bent(recorded, "idle-close:after=1s")


# ---------------------------------------------------------------- surplus


@given(responses(), st.text(min_size=1))
def test_surplus_follows_the_answer_and_is_no_part_of_it(drawn: Response, text: str) -> None:
    surplus = CATALOGUE["surplus"](text)
    try:
        played = surplus(drawn)
    except Meaningless:
        assert not scan(drawn).done
        return
    assert played.wire == drawn.wire + text.encode()
    assert body(played) == body(drawn)
    assert ending(played) == ending(drawn)


def test_surplus_comes_in_the_last_write() -> None:
    played = bent(STREAM, "surplus:bytes=HTTP/1.1 500%0D%0A")
    assert writes(played)[-1] == (602_000, b"e\r\n" + DONE + b"\r\n" + LAST + b"HTTP/1.1 500\r\n")
    assert played.segments[-1] == Segment(602_000, before=b"HTTP/1.1 500\r\n")
    empty = tracked([(5, b"HTTP/1.1 204 No Content\r\n\r\n")])
    assert bent(empty, "surplus:bytes=x").wire.endswith(b"\r\n\r\nx")


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        (CLOSING, "nothing can follow a body that goes on until the connection closes"),
        (bent(STREAM, "cut:at=1ev"), "the answer never ends"),
        (Response((), End.FIN, 5), "the answer never ends"),
    ],
)
def test_surplus_needs_an_end(recorded: Response, why: str) -> None:
    with pytest.raises(Meaningless, match=why):
        bent(recorded, "surplus:bytes=x")


def test_surplus_needs_a_byte() -> None:
    with pytest.raises(SpecError, match="bytes= needs at least one"):
        fault("surplus:bytes=")
