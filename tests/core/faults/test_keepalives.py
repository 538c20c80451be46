"""Heartbeats: only in silences, only between events, exactly when they are due, and nothing else moves."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.faults import keepalives
from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.coding import compressed, identity
from mockllm.core.faults.spec import SpecError
from mockllm.core.faults.view import view
from mockllm.core.http1 import scan
from mockllm.core.response import End, Response, Then
from tests.captures import Capture, captures, load
from tests.core.faults.applying import bent, dispatched, fault, refusal, tail, unchanged
from tests.core.faults.making import (
    NDJSON,
    body,
    chunks,
    from_capture,
    response,
    responses,
    strictly_whole,
    tracked,
    writes,
)

E1 = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
E2 = b'data: {"choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
BOM = b"\xef\xbb\xbf"
MOST = 40
DEFAULT = keepalives.MOST
JSON = b'{"choices":[]}'


def chat(framing: str = "chunked", **more: object) -> Response:
    """The head at 1 ms, events at 100 and 350 ms, the end with [DONE] at 400 ms."""
    return response(framing, (100_000, E1), (350_000, E2), (400_000, DONE), **more)  # type: ignore[arg-type]


def beats(of: Response, text: bytes = PING) -> list[int]:
    """When heartbeats come (µs)."""
    return [at for at, data in chunks(of) if data == text]


def when_each_byte_came(of: Response, without: bytes) -> list[tuple[int, int]]:
    """The body's bytes with their times, heartbeats left out."""
    return [(at, byte) for at, data in chunks(of) if data != without for byte in data]


@pytest.fixture(autouse=True, scope="module")
def _few() -> Iterator[None]:
    """The bound is lower, so that streams that hang take no minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keepalives, "MOST", MOST)
        yield


# ---------------------------------------------------------------- properties


@given(responses(), st.sampled_from([1000, 2500, 20_000]))
def test_heartbeats_come_in_silences_between_events_and_nothing_else_moves(drawn: Response, every: int) -> None:
    changed = fault(f"keepalive:every={every}us,style=ping")(drawn)
    assert dispatched(changed) == dispatched(drawn)
    assert tail(changed) == tail(drawn)
    if not body(drawn).startswith(BOM):  # which comes with the first heartbeat
        assert when_each_byte_came(changed, PING) == when_each_byte_came(drawn, PING)
    assert body(changed).replace(PING, b"") == body(drawn)
    was, now = scan(drawn), scan(changed)
    assert (now.done, now.whole, now.bad) == (was.done, was.whole, was.bad)
    if drawn.end is not End.HANG:
        assert changed.end_at == drawn.end_at
    offset, last = 0, view(drawn).parts.head_at
    borders = {0, *view(drawn).borders}
    for at, data in chunks(changed):
        if data.removeprefix(BOM) == PING:
            assert at == last + every
            assert offset in borders
        elif offset in borders and offset and last + every < at and body(changed).count(PING) < MOST:
            raise AssertionError(f"no heartbeat between {last} and {at}")
        offset += len(data.replace(PING, b""))
        last = at


@given(
    responses(),
    st.integers(1, 5),
    st.sampled_from(["style=mlx", "style=llama", "style=openrouter", "style=sse-starlette", "text=x: y"]),
)
def test_comments_ahead_of_the_first_event_change_no_event(drawn: Response, before: int, style: str) -> None:
    changed = bent(f"keepalive:every=1m,before={before},{style}", drawn)
    assert dispatched(changed) == dispatched(drawn)
    assert tail(changed) == tail(drawn)
    if drawn.end is not End.HANG and body(drawn) != BOM:
        spans = view(changed).spans
        old = view(drawn).spans
        assert len(spans) == len(old) + before
        first = next((i for i, span in enumerate(spans) if span in view(changed).events), len(spans))
        before_it = next((i for i, span in enumerate(old) if span in view(drawn).events), len(old))
        assert first == before_it + before


@given(responses(), st.sampled_from(["anthropic", "responses"]))
def test_event_heartbeats_leave_the_events_they_stand_between(drawn: Response, style: str) -> None:
    changed = fault(f"keepalive:every=2ms,style={style}")(drawn)
    name, data = {"anthropic": (b"ping", b'{"type": "ping"}'), "responses": (b"keepalive", b'{"type":"keepalive"')}[
        style
    ]
    kept = [event for event in dispatched(changed) if not (event.name == name and event.data.startswith(data))]
    assert kept == dispatched(drawn)
    assert tail(changed) == tail(drawn)


@given(responses(), st.sampled_from(["30ms", "forever"]))
def test_a_held_stream_says_the_same_and_ends_later_or_never(drawn: Response, hold: str) -> None:
    try:
        changed = bent(f"keepalive:every=20ms,style=ping,hold={hold}", drawn)
    except Meaningless:
        assert tail(drawn) is not None
        return
    assert dispatched(changed) == dispatched(drawn)
    if hold == "forever":
        assert (changed.end, changed.then) == (End.HANG, Then.OPEN)
        assert not scan(changed).done
        assert beats(changed)
    elif drawn.end is not End.HANG:
        assert changed.end_at == drawn.end_at + 30_000
        assert (changed.end, changed.then) == (drawn.end, drawn.then)
        assert scan(changed).whole == scan(drawn).whole
        assert len(writes(changed)) > len(writes(drawn))


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_real_streams_take_their_own_heartbeats(capture: Capture) -> None:
    recorded = from_capture(capture)
    try:
        events = view(recorded).events
    except Meaningless:
        return
    changed = bent("keepalive:every=1ms,before=3", recorded)
    kept = [event for event in dispatched(changed) if event.name != b"ping" and b'"keepalive"' not in event.data]
    assert kept == dispatched(recorded)
    assert len(kept) == len(events)


# ---------------------------------------------------------------- literal times


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("100ms", [200_000, 300_000]),
        ("40ms", [41_000, 81_000, 140_000, 180_000, 220_000, 260_000, 300_000, 340_000, 390_000]),
        ("98999us", [99_999, 198_999, 297_998]),
        ("99ms", [199_000, 298_000]),
        ("249ms", [349_000]),
    ],
)
def test_each_silence_has_its_own_clock(every: str, expected: list[int]) -> None:
    assert beats(bent(f"keepalive:every={every},style=ping", chat())) == expected


def test_a_silence_that_is_too_short_or_begins_before_the_head_has_none() -> None:
    assert unchanged("keepalive:every=250ms,style=ping", chat())
    late = response("chunked", (900_000, E1), head_at=900_000)
    assert unchanged("keepalive:every=100ms,style=ping", late)
    assert unchanged("keepalive", chat())


def test_no_heartbeat_inside_an_event() -> None:
    recorded = response("chunked", (100_000, E1 + E2[:10]), (500_000, E2[10:]), (900_000, DONE))
    assert beats(bent("keepalive:every=90ms,style=ping", recorded)) == [91_000, 590_000, 680_000, 770_000, 860_000]
    half = response("chunked", (100_000, E1[:-1]), (500_000, E1[-1:]))
    assert unchanged("keepalive:every=150ms,style=ping", half)


def test_any_byte_begins_a_new_silence() -> None:
    recorded = response("chunked", (100_000, E1), (180_000, b": own\n\n"), (300_000, E2))
    assert beats(bent("keepalive:every=100ms,style=ping", recorded)) == [280_000]


def test_the_silence_before_the_end_counts_and_that_of_a_hang_goes_on() -> None:
    closing = response("close", (100_000, DONE), end_at=450_000)
    assert beats(bent("keepalive:every=100ms,style=ping", closing)) == [200_000, 300_000, 400_000]
    parts = tracked([(1000, chat().segments[0].before), (100_000, b"e\r\n" + DONE + b"\r\n"), (450_000, b"0\r\n\r\n")])
    assert beats(bent("keepalive:every=100ms,style=ping", parts)) == [200_000, 300_000, 400_000]
    hung = bent("keepalive:every=100ms,style=ping", response("chunked", (100_000, E1), end=End.HANG, end_at=250_000))
    assert len(beats(hung)) == MOST
    assert (hung.end, hung.end_at) == (End.HANG, beats(hung)[-1])
    half = response("chunked", (100_000, E1[:9]), end=End.HANG, end_at=900_000)
    assert beats(bent("keepalive:every=90ms,style=ping", half)) == [91_000]


def test_a_body_that_never_came_is_one_silence() -> None:
    recorded = response("chunked", end=End.FIN, end_at=350_000)
    assert chunks(bent("keepalive:every=100ms,style=ping", recorded)) == [
        (101_000, PING),
        (201_000, PING),
        (301_000, PING),
    ]


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_every_framing_holds_them(framing: str) -> None:
    changed = bent("keepalive:every=100ms,style=llama", chat(framing))
    assert body(changed) == E1 + b":\n\n:\n\n" + E2 + DONE
    assert strictly_whole(changed)


# ---------------------------------------------------------------- before=


@pytest.mark.parametrize(("before", "expected"), [(1, [50_500]), (2, [34_000, 67_000]), (3, [25_750, 50_500, 75_250])])
def test_before_is_spread_over_the_time_to_the_first_event(before: int, expected: list[int]) -> None:
    changed = bent(f"keepalive:every=1m,before={before},style=ping", chat())
    assert beats(changed) == expected
    assert writes(changed)[0][0] == 1000


def test_before_stands_in_place_of_what_every_would_put_there() -> None:
    changed = bent("keepalive:every=40ms,before=1,style=ping", chat())
    assert beats(changed) == [50_500, 140_000, 180_000, 220_000, 260_000, 300_000, 340_000, 390_000]


def test_the_head_is_sent_at_once_where_it_came_with_the_first_event() -> None:
    recorded = response("chunked", (900_000, E1), (950_000, DONE), head_at=900_000)
    changed = bent("keepalive:before=2,style=ping", recorded)
    assert [at for at, _ in writes(changed)] == [0, 300_000, 600_000, 900_000, 950_000]
    assert beats(changed) == [300_000, 600_000]
    earlier = response("chunked", (900_000, E1), (950_000, DONE), head_at=899_999)
    assert writes(bent("keepalive:before=2,style=ping", earlier))[0][0] == 899_999
    at_once = bent("keepalive:before=2,style=ping", response("chunked", (0, E1), head_at=0))
    assert body(at_once) == PING + PING + E1
    assert [at for at, _ in writes(at_once)] == [0]


def test_comments_that_are_there_keep_their_times() -> None:
    recorded = response("chunked", (40_000, b": own\n\n"), (60_000, b": ha"), (80_000, b"lf\n\n"), (101_000, E1))
    changed = bent("keepalive:before=3,style=ping", recorded)
    assert chunks(changed) == [
        (26_000, PING),
        (40_000, b": own\n\n"),
        (51_000, PING),
        (60_000, b": ha"),
        (80_000, b"lf\n\n"),
        (80_000, PING),
        (101_000, E1),
    ]


def test_without_an_event_the_time_runs_to_the_end() -> None:
    recorded = response("close", end=End.FIN, end_at=401_000)
    assert beats(bent("keepalive:before=3,style=ping", recorded)) == [101_000, 201_000, 301_000]


def test_a_byte_order_mark_stays_first() -> None:
    marked = response("chunked", (100_000, BOM + E1))
    assert chunks(bent("keepalive:before=2,style=ping", marked)) == [
        (34_000, BOM + PING),
        (67_000, PING),
        (100_000, E1),
    ]
    assert chunks(bent("keepalive:every=60ms,style=ping", marked)) == [(61_000, BOM + PING), (100_000, E1)]


# ---------------------------------------------------------------- hold=


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
def test_a_stream_held_for_a_while_ends_as_it_did_but_later(framing: str) -> None:
    changed = bent("keepalive:every=200ms,style=ping,hold=500ms", chat(framing))
    assert beats(changed) == [300_000, 600_000, 800_000]
    assert (changed.end, changed.end_at) == (End.COMPLETE, 900_000)
    assert changed.then is (Then.FIN if framing == "close" else Then.OPEN)
    assert strictly_whole(changed)
    if framing == "chunked":
        assert writes(changed)[-1] == (900_000, b"0\r\n\r\n")


def test_what_the_server_did_then_comes_later_too() -> None:
    changed = bent("keepalive:every=200ms,style=ping,hold=500ms", chat(then=Then.RST))
    assert (changed.end_at, changed.then, changed.then_at) == (900_000, Then.RST, 900_000)


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
def test_a_stream_held_for_ever_never_ends(framing: str) -> None:
    changed = bent("keepalive:every=500ms,text=ka,hold=forever", chat(framing))
    times = beats(changed, b": ka\n\n")
    assert times[:3] == [900_000, 1_400_000, 1_900_000]
    assert len(times) == MOST
    assert (changed.end, changed.end_at, changed.then) == (End.HANG, times[-1], Then.OPEN)
    found = scan(changed)
    assert (found.done, found.bad) == (False, False)
    assert found.missing == (len(b": ka\n\n") if framing == "length" else 0)
    assert not changed.wire.endswith(b"0\r\n\r\n")


def test_a_held_stream_in_gzip_is_not_finished() -> None:
    changed = bent("keepalive:every=500ms,style=ping,hold=forever", compressed(chat()))
    assert body(identity(changed)[0]) == E1 + E2 + DONE + PING * MOST
    assert changed.end is End.HANG


@pytest.mark.parametrize("text", [E1[:-1], E1 + b"data: x", b": ka"])
def test_a_stream_that_ends_inside_an_event_cannot_be_held(text: bytes) -> None:
    recorded = response("chunked", (100_000, text))
    assert "does not end between events" in refusal("keepalive:every=1ms,style=ping,hold=forever", recorded)


# ---------------------------------------------------------------- styles


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("style=mlx", [b": keepalive 1/2\n\n", b": keepalive 2/2\n\n"]),
        ("style=llama", [b":\n\n"] * 2),
        ("style=openrouter", [b": OPENROUTER PROCESSING\n\n"] * 2),
        ("style=deepseek", [b": keep-alive\n\n"] * 2),
        ("style=ping", [PING] * 2),
        ("style=anthropic", [b'event: ping\ndata: {"type": "ping"}\n\n'] * 2),
        ("style=responses", [b'event: keepalive\ndata: {"type":"keepalive","sequence_number":0}\n\n'] * 2),
        ("style=blank", [b"\n"] * 2),
        ("text=19/33", [b": 19/33\n\n"] * 2),
        ("text=", [b": \n\n"] * 2),
        (
            "style=sse-starlette",
            [
                b": ping - 2026-01-01 00:00:00.199000+00:00\r\n\r\n",
                b": ping - 2026-01-01 00:00:00.299000+00:00\r\n\r\n",
            ],
        ),
    ],
)
def test_styles(key: str, expected: list[bytes]) -> None:
    changed = bent(f"keepalive:every=100ms,{key}", chat())
    assert chunks(changed) == [
        (100_000, E1),
        (200_000, expected[0]),
        (300_000, expected[1]),
        (350_000, E2),
        (400_000, DONE),
    ]


def test_sse_starlette_counts_from_the_date_of_the_head() -> None:
    recorded = chat(lines="Date: Mon, 30 Nov 2026 15:57:33 GMT\r\n")
    changed = bent("keepalive:every=199999us,style=sse-starlette", recorded)
    assert b": ping - 2026-11-30 15:57:33.298999+00:00\r\n\r\n" in body(changed)
    whole = bent("keepalive:every=200ms,style=sse-starlette", chat(head_at=100_000, lines="Date: no date\r\n"))
    assert b": ping - 2026-01-01 00:00:00.200000+00:00\r\n\r\n" in body(whole)


def test_responses_repeat_the_number_of_the_event_before_them() -> None:
    events = [b'event: x\ndata: {"type":"response.x","sequence_number":%d}\n\n' % n for n in (3, 4)]
    recorded = response("chunked", (100_000, events[0]), (350_000, events[1]))
    changed = bent("keepalive:every=99ms", recorded)
    numbers = [json.loads(event.data)["sequence_number"] for event in dispatched(changed)]
    assert numbers == [3, 3, 3, 4]
    ahead = bent("keepalive:every=1m,before=1", recorded)
    assert [json.loads(event.data)["sequence_number"] for event in dispatched(ahead)] == [0, 3, 4]


@pytest.mark.parametrize(
    ("server", "name", "expected"),
    [
        ("mlx_lm.server", "stream_chat_short", b": keepalive 1/1\n\n"),
        ("llama-server", "chat-hello", b":\n\n"),
        ("llama-server", "messages-hello", b'event: ping\ndata: {"type": "ping"}\n\n'),
        ("llama-server", "responses-hello", b'event: keepalive\ndata: {"type":"keepalive","sequence_number":0}\n\n'),
    ],
)
def test_the_style_is_the_recordings_own(server: str, name: str, expected: bytes) -> None:
    recorded = from_capture(load(server, name))
    changed = bent("keepalive:every=1m,before=1", recorded)
    assert body(changed).count(expected) == body(recorded).count(expected) + 1


def test_a_text_is_spelled_as_the_stream_is() -> None:
    changed = bent("crlf+keepalive:every=200ms,text=x", chat())
    assert b"\r\n\r\n: x\r\n\r\ndata" in body(changed)


# ---------------------------------------------------------------- JSON


def test_newlines_before_a_body_that_is_json() -> None:
    recorded = response("length", (900_000, JSON), head_at=900_000, media="application/json; charset=utf-8")
    changed = bent("keepalive:style=blank,before=2", recorded)
    assert writes(changed)[0][0] == 0
    assert chunks(changed) == [(300_000, b"\n"), (600_000, b"\n"), (900_000, JSON)]
    assert b"Content-Length: 16\r\n" in changed.wire
    assert strictly_whole(changed)
    timed = bent("keepalive:style=blank,every=400ms", recorded)
    assert chunks(timed) == [(400_000, b"\n"), (800_000, b"\n"), (900_000, JSON)]
    assert writes(timed)[0][0] == 0
    assert unchanged("keepalive:style=blank,every=1s", recorded)


def test_a_json_body_in_several_pieces_has_them_only_at_its_start() -> None:
    recorded = response("chunked", (100_000, JSON[:5]), (900_000, JSON[5:]), media="application/json")
    assert chunks(bent("keepalive:style=blank,every=90ms", recorded)) == [
        (91_000, b"\n"),
        (100_000, JSON[:5]),
        (900_000, JSON[5:]),
    ]


@pytest.mark.parametrize(
    ("spec", "media", "why"),
    [
        ("keepalive:every=1ms", "application/json", "the body is no stream of events"),
        ("keepalive:every=1ms,style=ping", "application/json", "the body is no stream of events"),
        ("keepalive:every=1ms,style=blank", "text/html", "the body is no stream of events"),
        ("keepalive:every=1ms,style=blank,hold=1s", "application/json", "does not end between events"),
        ("keepalive:every=1ms", NDJSON, "in a stream of JSON lines only style=blank has a place"),
        ("keepalive:every=1ms,text=x", NDJSON, "in a stream of JSON lines only style=blank has a place"),
    ],
)
def test_where_they_have_no_place(spec: str, media: str, why: str) -> None:
    assert why in refusal(spec, response("length", (100_000, JSON), media=media))


def test_empty_lines_between_json_lines() -> None:
    recorded = response("chunked", (100_000, b'{"a":1}\n'), (350_000, b'{"done":true}\n'), media=NDJSON)
    changed = bent("keepalive:every=100ms,style=blank", recorded)
    assert body(changed) == b'{"a":1}\n\n\n{"done":true}\n'
    open_ended = response("close", (100_000, b'{"a":1}'), media=NDJSON, end_at=900_000)
    assert "does not end between" in refusal("keepalive:every=1ms,style=blank,hold=1s", open_ended)


# ---------------------------------------------------------------- keys, bounds


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("keepalive:every=999us", "every is at least 1ms"),
        ("keepalive:every=5", "expected a duration such as 250ms"),
        ("keepalive:text=a%0Ab", "text is one line"),
        ("keepalive:text=a,style=mlx", "stands in place of style"),
        ("keepalive:before=41", "before is at most 40"),
        ("keepalive:every=1s,hold=1s", "hold is longer than every"),
        ("keepalive:hold=never", "expected a duration such as 250ms or forever"),
        ("keepalive:style=none", "expected mlx, llama"),
    ],
)
def test_keys_that_make_no_sense(spec: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        fault(spec)


def test_the_bound_is_what_the_catalogue_says() -> None:
    assert f"There are {DEFAULT} at most" in " ".join((keepalives.Keepalive.__doc__ or "").split())
    assert DEFAULT >= 30 * 60 * 2, "half an hour of two a second"


def test_there_are_no_more_than_the_bound() -> None:
    recorded = response("close", (100_000, E1), (100_000_000, DONE))
    changed = bent("keepalive:every=1ms,style=ping,before=5", recorded)
    assert len(beats(changed)) == MOST
    assert beats(changed)[4] < 100_000 < beats(changed)[5]
