"""Faults of time: not a byte changes, only when it is sent."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.events import events
from mockllm.core.faults.base import Fault, Meaningless, Position, Unit
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.spec import SpecError, parse
from mockllm.core.faults.view import view
from mockllm.core.http1 import scan
from mockllm.core.response import End, Response, Then
from tests.captures import Capture, captures
from tests.core.faults.making import (
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
HEAD_204 = b"HTTP/1.1 204 No Content\r\n\r\n"

SPECS = [
    "speed:x=2",
    "speed:x=0.001",
    "speed:x=1000000",
    "ttfb:add=3s",
    "ttft:add=3s",
    "rate:events=20",
    "rate:bytes=100",
    "rate:bytes=100000",
    "jitter:by=50ms",
    "stall:at=1ev,for=3s",
    "stall:at=13b,for=3s",
    "stall:at=50pct,for=3s",
    "stall:at=30ms,for=3s",
    "buffer",
]


def fault(text: str) -> Fault:
    (step,) = parse(text, CATALOGUE)
    return step.fault


def bent(recorded: Response, text: str) -> Response:
    return fault(text)(recorded)


def times(played: Response) -> list[int]:
    return [at for at, _ in writes(played)]


def ending(played: Response) -> tuple[End, int, Then, int]:
    return played.end, played.end_at, played.then, played.then_at


STREAM = response("chunked", (2000, E1), (302_000, [E2, E3]), (602_000, DONE))
CLOSING = response("close", (2000, E1), (302_000, E2), end_at=302_500)
JSON = response("length", (2000, b"{}"), media="application/json", then=Then.FIN)


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("spec", SPECS)
def test_the_bytes_stay(spec: str) -> None:
    @given(responses())
    def holds(drawn: Response) -> None:
        if drawn.end is End.HANG and spec == "buffer":
            return
        played = bent(drawn, spec)
        assert played.wire == drawn.wire
        assert (played.end, played.then, played.method) == (drawn.end, drawn.then, drawn.method)
        assert body(played) == body(drawn)

    holds()


@pytest.mark.parametrize(
    "spec", ["rate:events=20", "rate:bytes=100", "stall:at=1ev,for=3s", "ttft:add=3s", "ttfb:add=1s"]
)
def test_nothing_comes_earlier(spec: str) -> None:
    @given(responses())
    def holds(drawn: Response) -> None:
        played = bent(drawn, spec)
        assert all(now >= then for now, then in zip(by_byte(played), by_byte(drawn), strict=True))
        assert played.end_at >= drawn.end_at

    holds()


def by_byte(played: Response) -> list[int]:
    """When each byte on the wire is sent."""
    return [at for at, data in played.reads() for _ in data]


@pytest.mark.parametrize("spec", ["speed:x=3", "speed:x=100000000", "jitter:by=1s", "ttfb:add=1s"])
@given(responses())
def test_reads_stay_as_they_were_cut(spec: str, drawn: Response) -> None:
    played = bent(drawn, spec)
    assert [data for _, data in played.reads()] == [data for _, data in drawn.reads()]
    assert [s.wire for s in played.segments] == [s.wire for s in drawn.segments]


@given(responses(), st.floats(0.5, 200))
def test_events_come_no_faster_than_the_rate(drawn: Response, rate: float) -> None:
    plain = view(bent(drawn, f"rate:events={rate:.3f}"))
    came = [plain.came_at(event.stop - 1) for event in plain.events]
    assert all(later - one >= 1_000_000 / rate - 2 - 1_000_000 / rate / 1000 for one, later in pairwise(came))


@given(responses(), st.integers(1, 10_000))
def test_bytes_come_no_faster_than_the_rate(drawn: Response, rate: int) -> None:
    pieces = [(at, len(data)) for at, data in chunks(bent(drawn, f"rate:bytes={rate}"))]
    burst = max(1, rate // 50)
    for index, (start, _) in enumerate(pieces):
        sent = 0
        for at, size in pieces[index:]:
            sent += size
            assert sent <= (at - start) * rate / 1_000_000 + burst + 1


@given(responses(), st.integers(0, 10**9))
def test_a_seed_repeats(drawn: Response, seed: int) -> None:
    spec = f"jitter:by=300ms,seed={seed}"
    assert bent(drawn, spec) == bent(drawn, spec)


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_what_real_servers_sent_keeps_its_bytes(capture: Capture) -> None:
    recorded = from_capture(capture)
    stream = b"text/event-stream" in capture.response[:1000]
    for spec in SPECS:
        try:
            assert bent(recorded, spec).wire == recorded.wire, spec
        except Meaningless:
            assert not stream, spec


# ---------------------------------------------------------------- speed


def test_speed_divides_every_interval() -> None:
    played = bent(STREAM, "speed:x=4")
    assert times(played) == [250, 500, 75_500, 150_500]
    assert times(bent(CLOSING, "speed:x=0.5")) == [2000, 4000, 604_000]
    assert ending(bent(CLOSING, "speed:x=0.5")) == (End.COMPLETE, 605_000, Then.FIN, 605_000)


def test_speed_keeps_reads_apart_and_one_read_together() -> None:
    played = bent(STREAM, "speed:x=1000000")
    assert writes(played) == [(at, data) for at, (_, data) in enumerate(writes(STREAM))]
    assert played.end_at == 3


def test_speed_moves_what_the_server_did_then() -> None:
    recorded = response("length", (2000, b"ab"), then=Then.RST)
    later = Response(recorded.segments, End.COMPLETE, 2000, Then.RST, 40_000, "POST")
    assert ending(bent(later, "speed:x=2")) == (End.COMPLETE, 1000, Then.RST, 20_000)


def test_speed_of_nothing_at_all() -> None:
    assert bent(Response((), End.FIN, 9000), "speed:x=3") == Response((), End.FIN, 3000)


# ---------------------------------------------------------------- ttfb, ttft (C20)


def test_ttfb_is_silence_before_the_status_line() -> None:
    assert times(bent(STREAM, "ttfb:add=3s")) == [at + 3_000_000 for at in times(STREAM)]
    assert bent(CLOSING, "ttfb:add=3s").then_at == 3_302_500
    assert bent(Response((), End.RST, 5), "ttfb:add=1ms") == Response((), End.RST, 1005)
    empty = tracked([(5, HEAD_204)])
    assert times(bent(empty, "ttfb:add=1ms")) == [1005]


def test_ttft_is_silence_after_the_head() -> None:
    assert times(bent(STREAM, "ttft:add=3s")) == [1000, 3_002_000, 3_302_000, 3_602_000]
    assert bent(STREAM, "ttft:add=3s").end_at == 3_602_000
    assert times(bent(JSON, "ttft:add=3s")) == [1000, 3_002_000]


def test_ttft_parts_head_and_body_that_came_in_one_read() -> None:
    recorded = response("chunked", (1000, [E1, E2]))
    played = bent(recorded, "ttft:add=3s")
    head, rest = recorded.segments[0].wire, recorded.wire[len(recorded.segments[0].wire) :]
    assert writes(played) == [(1000, head), (3_001_000, rest)]


def test_ttft_needs_a_body() -> None:
    with pytest.raises(Meaningless):
        bent(tracked([(5, HEAD_204)]), "ttft:add=3s")
    empty = response("length", then=Then.OPEN)
    assert bent(empty, "ttft:add=3s") == empty


# ---------------------------------------------------------------- rate


def test_rate_spreads_events() -> None:
    head = STREAM.segments[0].wire
    assert writes(bent(STREAM, "rate:events=2")) == [
        (1000, head),
        (2000, b"9\r\n" + E1 + b"\r\n"),
        (502_000, b"a\r\n" + E2 + b"\r\n"),
        (1_002_000, b"b\r\n" + E3 + b"\r\n"),
        (1_502_000, b"e\r\n" + DONE + b"\r\n" + LAST),
    ]
    assert bent(STREAM, "rate:events=2").end_at == 1_502_000


def test_rate_cuts_chunks_that_hold_several_events_but_not_their_framing() -> None:
    recorded = response("chunked", (2000, [b": ka\n\n" + E1 + b": ka\n\n" + E2 + b"data: unfin"]))
    assert writes(bent(recorded, "rate:events=10"))[1:] == [
        (2000, b"2a\r\n: ka\n\n" + E1 + b": ka\n\n"),
        (102_000, E2 + b"data: unfin\r\n" + LAST),
    ]


def test_rate_waits_for_an_events_last_byte() -> None:
    recorded = response("close", (2000, E1 + E2[:3]), (3000, E2[3:5]), (400_000, E2[5:] + E3))
    assert chunks(bent(recorded, "rate:events=4")) == [
        (2000, E1 + E2[:3]),
        (3000, E2[3:5]),
        (400_000, E2[5:]),
        (650_000, E3),
    ]
    assert chunks(bent(recorded, "rate:events=2")) == [
        (2000, E1 + E2[:3]),
        (3000, E2[3:5]),
        (502_000, E2[5:]),
        (1_002_000, E3),
    ]


def test_a_rate_that_the_recording_keeps_changes_nothing() -> None:
    recorded = response("chunked", (2000, E1), (1_002_000, E2), (2_002_000, E3))
    assert bent(recorded, "rate:events=1") == recorded
    assert bent(recorded, "rate:bytes=1000") == recorded


def test_rate_by_bytes() -> None:
    text = bytes(range(10))
    recorded = response("chunked", (2000, text), (500_000, b"x" * 3))
    assert chunks(bent(recorded, "rate:bytes=100")) == [
        *((2000 + 20_000 * n, text[2 * n : 2 * n + 2]) for n in range(5)),
        (500_000, b"xx"),
        (520_000, b"x"),
    ]
    assert bent(recorded, "rate:bytes=100").wire == recorded.wire
    busy = response("close", (2000, [b"ab", b"cd"]), (3000, b"efg"), end_at=4000)
    assert chunks(bent(busy, "rate:bytes=3")) == [
        (2000, b"a"),
        (335_334, b"b"),
        (668_667, b"c"),
        (1_002_000, b"d"),
        (1_335_334, b"e"),
        (1_668_667, b"f"),
        (2_002_000, b"g"),
    ]
    assert ending(bent(busy, "rate:bytes=3")) == (End.COMPLETE, 2_002_000, Then.FIN, 2_002_000)


def test_a_rate_by_events_needs_events() -> None:
    with pytest.raises(Meaningless, match="no stream of events"):
        bent(JSON, "rate:events=1")
    assert times(bent(JSON, "rate:bytes=1")) == [1000, 2000, 1_002_000]


def test_rate_opens_a_compressed_stream() -> None:
    played = bent(gzipped([(2000, E1), (3000, E2 + E3)]), "rate:events=10")
    assert [(at, text) for at, text in inflated(played) if text] == [(2000, E1), (102_000, E2), (202_000, E3)]
    assert strictly_whole(played)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("", "either events= or bytes= is needed"),
        (":events=1,bytes=1", "either events= or bytes= is needed"),
        (":events=0", "a rate must be above 0"),
        (":bytes=0", "a rate must be above 0"),
    ],
)
def test_rates_that_make_no_sense(keys: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        fault("rate" + keys)


def test_a_speed_that_makes_no_sense() -> None:
    with pytest.raises(SpecError, match="x= must be above 0"):
        fault("speed:x=0")


# ---------------------------------------------------------------- jitter


def test_jitter_makes_every_read_late_by_its_own_time() -> None:
    recorded = response("close", *((1_000_000 * n, E1) for n in range(1, 100)), end_at=200_000_000)
    late = [now - then for now, then in zip(times(bent(recorded, "jitter:by=100ms")), times(recorded), strict=True)]
    assert 0 <= min(late) < 20_000
    assert 80_000 < max(late) <= 100_000
    assert len(set(late)) > 90
    assert 0 < bent(recorded, "jitter:by=100ms").end_at - 200_000_000 <= 100_000


def test_jitter_depends_on_its_seed() -> None:
    assert bent(STREAM, "jitter:by=1s,seed=1") != bent(STREAM, "jitter:by=1s,seed=2")
    assert bent(STREAM, "jitter:by=0s") == STREAM


def test_jitter_lets_no_read_overtake_another() -> None:
    recorded = response("close", *((1000 + n, E1) for n in range(1, 100)), end_at=5_000)
    late = times(bent(recorded, "jitter:by=10s"))
    assert late == sorted(set(late))
    assert bent(recorded, "jitter:by=10s").end_at >= late[-1]


# ---------------------------------------------------------------- stall (C5)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("0ev", [1000, 3_002_000, 3_302_000, 3_602_000]),
        ("1ev", [1000, 2000, 3_302_000, 3_602_000]),
        ("2ev", [1000, 2000, 302_000, 3_302_000, 3_602_000]),
        ("4ev", [1000, 2000, 302_000, 602_000, 3_602_000]),
        ("0b", [1000, 3_002_000, 3_302_000, 3_602_000]),
        ("3b", [1000, 2000, 3_002_000, 3_302_000, 3_602_000]),
        ("9b", [1000, 2000, 3_302_000, 3_602_000]),
        ("100pct", [1000, 2000, 302_000, 602_000, 3_602_000]),
        ("0s", [3_001_000, 3_002_000, 3_302_000, 3_602_000]),
        ("1001us", [1000, 3_002_000, 3_302_000, 3_602_000]),
        ("302ms", [1000, 2000, 3_302_000, 3_602_000]),
    ],
)
def test_a_stall_holds_back_what_follows(at: str, expected: list[int]) -> None:
    played = bent(STREAM, f"stall:at={at},for=3s")
    assert times(played) == expected
    assert ending(played) == (End.COMPLETE, 3_602_000, Then.OPEN, 0)
    assert played.wire == STREAM.wire


@pytest.mark.parametrize("at", ["5ev", "1000b", "603ms"])
def test_a_stall_beyond_the_end_has_no_effect(at: str) -> None:
    assert bent(STREAM, f"stall:at={at},for=3s") == STREAM


def test_a_stall_inside_a_chunk_leaves_its_rest_to_come() -> None:
    played = bent(STREAM, "stall:at=3b")
    assert writes(played)[1:] == [(2000, b"9\r\n" + E1[:3])]
    assert ending(played) == (End.HANG, 2000, Then.OPEN, 0)


def test_a_stall_for_ever_is_a_hang() -> None:
    played = bent(STREAM, "stall:at=1ev,for=forever")
    assert writes(played)[1:] == [(2000, b"9\r\n" + E1 + b"\r\n")]
    assert ending(played) == (End.HANG, 2000, Then.OPEN, 0)
    assert bent(STREAM, "stall:at=500us") == Response((), End.HANG, 0, method="POST")


def test_a_stall_sends_the_end_of_a_chunk_with_its_last_byte() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    recorded = tracked([(1, head), (2, b"9\r\n" + E1), (3, b"\r\na\r\n" + E2), (4, b"\r\n"), (5, LAST)])
    assert writes(bent(recorded, "stall:at=1ev,for=1ms")) == [
        (1, head),
        (2, b"9\r\n" + E1 + b"\r\n"),
        (1003, b"a\r\n" + E2),
        (1004, b"\r\n"),
        (1005, LAST),
    ]
    assert writes(bent(recorded, "stall:at=2ev"))[-2:] == [(2, b"9\r\n" + E1), (3, b"\r\na\r\n" + E2 + b"\r\n")]
    assert writes(bent(recorded, "stall:at=11b"))[-1] == (3, b"\r\na\r\n" + E2[:2])


def test_a_stall_at_the_end_delays_what_the_server_did_then() -> None:
    assert ending(bent(JSON, "stall:at=100pct,for=1s")) == (End.COMPLETE, 2000, Then.FIN, 1_002_000)
    assert ending(bent(CLOSING, "stall:at=2ev,for=1s")) == (End.COMPLETE, 1_302_500, Then.FIN, 1_302_500)
    assert ending(bent(CLOSING, "stall:at=302200us,for=1s")) == (End.COMPLETE, 1_302_500, Then.FIN, 1_302_500)
    assert ending(bent(CLOSING, "stall:at=2ev")) == (End.HANG, 302_000, Then.OPEN, 0)


def test_a_stall_where_nothing_follows_has_no_effect() -> None:
    kept = response("length", (2000, b"{}"), media="application/json")
    hung = response("close", (2000, E1), end=End.HANG, end_at=60_000_000)
    assert bent(kept, "stall:at=100pct,for=1s") == kept
    assert bent(hung, "stall:at=1ev") == hung


def test_a_stall_of_what_has_no_body() -> None:
    empty = tracked([(5, HEAD_204)])
    assert times(bent(empty, "stall:at=0s,for=1s")) == [1_000_005]
    for at in ("0b", "0ev"):
        with pytest.raises(Meaningless):
            bent(empty, f"stall:at={at},for=1s")
    with pytest.raises(Meaningless):
        bent(JSON, "stall:at=0ev,for=1s")


def test_a_stall_in_a_compressed_stream_comes_after_the_events_flush() -> None:
    recorded = gzipped([(2000, E1 + E2), (3000, E3)])
    played = bent(recorded, "stall:at=1ev,for=1s")
    assert [(at, text) for at, text in inflated(played) if text] == [(2000, E1), (1_002_000, E2), (1_003_000, E3)]
    assert strictly_whole(played)
    hung = bent(recorded, "stall:at=1ev")
    assert inflated(hung) == [(2000, E1)]
    assert hung.end is End.HANG


# ---------------------------------------------------------------- buffer (C25)


def test_buffer_sends_everything_in_one_write_at_the_end() -> None:
    assert writes(bent(STREAM, "buffer")) == [(602_000, STREAM.wire)]
    assert writes(bent(CLOSING, "buffer")) == [(302_500, CLOSING.wire)]
    assert ending(bent(CLOSING, "buffer")) == ending(CLOSING)
    broken = response("length", (2000, b"ab"), promised=9, end=End.RST, end_at=7000)
    assert writes(bent(broken, "buffer")) == [(7000, broken.wire)]


def test_buffer_never_sends_what_never_ends() -> None:
    hung = response("close", (2000, E1), end=End.HANG, end_at=60_000_000)
    assert bent(hung, "buffer") == Response((), End.HANG, 60_000_000, method="POST")


def test_buffer_changes_nothing_in_an_answer_of_one_write() -> None:
    recorded = response("length", (1000, b"{}"))
    assert bent(recorded, "buffer") == recorded


# ---------------------------------------------------------------- idle-timeout


def test_an_idle_timeout_ends_the_first_silence_that_is_too_long() -> None:
    played = bent(STREAM, "idle-timeout:after=299ms")
    assert writes(played) == writes(STREAM)[:2]
    assert ending(played) == (End.FIN, 301_000, Then.OPEN, 0)
    assert bent(STREAM, "idle-timeout:after=300ms") == STREAM


def test_keepalives_prevent_an_idle_timeout() -> None:
    spoken = response("chunked", *((2000 + 100_000 * n, b": ka\n\n") for n in range(6)), (602_000, DONE))
    assert bent(spoken, "idle-timeout:after=150ms") == spoken


def test_a_default_idle_timeout_is_a_minute() -> None:
    slow = response("chunked", (2000, E1), (60_002_001, DONE))
    assert bent(slow, "idle-timeout").end_at == 60_002_000
    assert bent(STREAM, "idle-timeout") == STREAM


def test_silence_before_the_status_line_and_before_the_end_counts() -> None:
    late = response("chunked", (3_000_000, E1), head_at=2_000_000)
    assert bent(late, "idle-timeout:after=1s") == Response((), End.FIN, 1_000_000, method="POST")
    closing = response("close", (2000, E1), end_at=5_000_000)
    played = bent(closing, "idle-timeout:after=1s")
    assert played.wire == closing.wire
    assert ending(played) == (End.FIN, 1_002_000, Then.OPEN, 0)


def test_an_idle_timeout_ends_a_hang() -> None:
    hung = bent(STREAM, "stall:at=2ev")
    played = bent(hung, "idle-timeout:after=1s")
    assert ending(played) == (End.FIN, 1_302_000, Then.OPEN, 0)
    assert played.wire == hung.wire
    assert bent(Response((), End.HANG, 7), "idle-timeout:after=1ms") == Response((), End.FIN, 1000)


# ---------------------------------------------------------------- compressed


@pytest.mark.parametrize("spec", ["speed:x=2", "rate:bytes=1000", "stall:at=50pct,for=1s", "jitter:by=1s", "buffer"])
def test_faults_of_bytes_and_times_leave_a_compressed_stream_alone(spec: str) -> None:
    recorded = gzipped([(2000, E1 + E2), (3000, E3)])
    played = bent(recorded, spec)
    assert played.wire == recorded.wire
    assert played != recorded
    assert events(b"".join(text for _, text in inflated(played)), b"text/event-stream")[-1].data == b"333"


# ---------------------------------------------------------------- how they stand together


def test_a_stall_ends_with_a_reset() -> None:
    played = bent(bent(STREAM, "stall:at=2ev"), "cut:at=5s,end=rst")
    assert ending(played) == (End.RST, 5_000_000, Then.OPEN, 0)
    assert not scan(played).whole
    assert body(played) == E1 + E2


def test_a_position_is_a_value() -> None:
    assert fault("stall:at=1ev") == CATALOGUE["stall"](Position(Unit.EVENTS, 1), "forever")
