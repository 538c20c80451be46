"""Faults of segments: the body stays, its cuts and its framing change."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.faults.base import Fault, Meaningless
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.spec import SpecError, parse
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Segment, Then
from tests.captures import Capture, captures
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
from tests.reference import reference

E1, E2, E3, DONE = b"data: 1\n\n", b"data: 22\n\n", b"data: 333\n\n", b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"

CUTTING = [
    "split:bytes=1",
    "split:bytes=7",
    "split:inside=utf8",
    "split:inside=crlf",
    "split:inside=event",
    "split:random",
    "split:random,seed=5,gap=1us",
    "join",
    "join:window=20ms",
]
FRAMINGS = {"chunked": Framing.CHUNKED, "length": Framing.LENGTH, "close": Framing.CLOSE}


def fault(text: str) -> Fault:
    (step,) = parse(text, CATALOGUE)
    return step.fault


def bent(recorded: Response, text: str) -> Response:
    return fault(text)(recorded)


def sse(*reads: tuple[int, bytes | list[bytes]]) -> Response:
    return response("chunked", *reads)


def head_of(played: Response) -> bytes:
    return b"".join(segment.wire for segment in scan(played).segments[: scan(played).head_segments])


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("spec", CUTTING)
@given(responses())
def test_the_body_and_how_it_ends_stay(spec: str, drawn: Response) -> None:
    played = bent(drawn, spec)
    before, after = scan(drawn), scan(played)
    assert after.body == before.body
    assert reference(after.body) == reference(before.body)
    assert (after.done, after.whole, after.bad, after.missing) == (
        before.done,
        before.whole,
        before.bad,
        before.missing,
    )
    assert (played.end, played.then) == (drawn.end, drawn.then)


@given(responses(), st.integers(1, 20))
def test_split_by_bytes_makes_no_longer_chunk_and_no_longer_write(drawn: Response, size: int) -> None:
    pieces = chunks(bent(drawn, f"split:bytes={size}"))
    assert all(len(data) <= size for _, data in pieces)
    for at, _ in pieces:
        assert sum(len(data) for when, data in pieces if when == at) <= size


@pytest.mark.parametrize("spec", CUTTING[:7])
@given(responses())
def test_split_keeps_what_was_cut_already_and_moves_nothing_to_an_earlier_time(spec: str, drawn: Response) -> None:
    pieces = scan(bent(drawn, spec)).segments
    came = [piece.at for piece in scan(drawn).segments for _ in piece.data]
    sent = [piece.at for piece in pieces for _ in piece.data]
    assert all(now >= then for now, then in zip(sent, came, strict=True))
    ends = {sum(len(s.data) for s in pieces[: n + 1]) for n in range(len(pieces))}
    was = scan(drawn).segments
    assert {sum(len(s.data) for s in was[: n + 1]) for n in range(len(was))} <= ends


@given(responses(), st.integers(0, 10**9))
def test_a_seed_repeats(drawn: Response, seed: int) -> None:
    assert bent(drawn, f"split:random,seed={seed}") == bent(drawn, f"split:random,seed={seed}")


@pytest.mark.parametrize("name", FRAMINGS)
@given(responses())
def test_another_framing_keeps_the_body_and_whether_it_is_whole(name: str, drawn: Response) -> None:
    before = scan(drawn)
    if before.bad:
        return
    played = bent(drawn, f"framing:as={name}")
    after = scan(played)
    assert after.framing is FRAMINGS[name]
    assert after.body == before.body
    assert not after.bad
    complete = drawn.end is End.COMPLETE or before.done
    if name != "close":
        assert after.done == complete
    assert (played.end is End.COMPLETE) == (drawn.end is End.COMPLETE or (before.done and drawn.end is End.CLIENT))
    assert bent(played, f"framing:as={name}") is played


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_what_real_servers_sent_keeps_its_body(capture: Capture) -> None:
    recorded = from_capture(capture)
    for spec in [*CUTTING, *(f"framing:as={name}" for name in FRAMINGS)]:
        try:
            played = bent(recorded, spec)
        except Meaningless:
            stream = b"text/event-stream" in capture.response[:1000]
            assert not stream, spec
        else:
            assert body(played) == body(recorded), spec
            assert scan(played).whole or recorded.end is not End.COMPLETE, spec


# ---------------------------------------------------------------- split (C7, C24)


def test_split_cuts_chunks_and_writes() -> None:
    recorded = sse((2000, E1), (9000, DONE))
    head = recorded.segments[0].wire
    assert writes(bent(recorded, "split:bytes=4,gap=5ms")) == [
        (1000, head),
        (2000, b"4\r\ndata\r\n"),
        (7000, b"4\r\n: 1\n\r\n"),
        (12_000, b"1\r\n\n\r\n"),
        (17_000, b"4\r\ndata\r\n"),
        (22_000, b"4\r\n: [D\r\n"),
        (27_000, b"4\r\nONE]\r\n"),
        (32_000, b"2\r\n\n\n\r\n" + LAST),
    ]


def test_split_by_bytes_counts_from_the_start_of_each_read() -> None:
    recorded = response("close", (2000, b"abcde"), (50_000, b"fgh"))
    assert chunks(bent(recorded, "split:bytes=2")) == [
        (2000, b"ab"),
        (3000, b"cd"),
        (4000, b"e"),
        (50_000, b"fg"),
        (51_000, b"h"),
    ]


def test_split_parts_chunks_of_one_read_where_they_are_too_much_for_one_write() -> None:
    recorded = sse((2000, [b"abc", b"def", b"ghi"]))
    assert writes(bent(recorded, "split:bytes=7"))[1:] == [
        (2000, b"3\r\nabc\r\n3\r\ndef\r\n1\r\ng\r\n"),
        (3000, b"2\r\nhi\r\n" + LAST),
    ]
    assert writes(bent(recorded, "split:bytes=3"))[1:] == [
        (2000, b"3\r\nabc\r\n"),
        (3000, b"3\r\ndef\r\n"),
        (4000, b"3\r\nghi\r\n" + LAST),
    ]
    assert bent(recorded, "split:bytes=9") is recorded


def test_what_follows_a_split_moves_only_if_it_would_be_overtaken() -> None:
    recorded = response("close", (2000, b"abc"), (4000, b"d"), (4500, b"e"), (9000, b"f"))
    assert chunks(bent(recorded, "split:bytes=1")) == [
        (2000, b"a"),
        (3000, b"b"),
        (4000, b"c"),
        (5000, b"d"),
        (6000, b"e"),
        (9000, b"f"),
    ]
    assert chunks(bent(recorded, "split:bytes=1,gap=999us"))[3:] == [(4000, b"d"), (4500, b"e"), (9000, b"f")]


def test_a_split_moves_the_end_if_it_would_be_overtaken() -> None:
    recorded = response("length", (2000, b"abc"), then=Then.FIN)
    played = bent(recorded, "split:bytes=1,gap=10ms")
    assert (played.end_at, played.then_at) == (22_000, 22_000)


def test_split_inside_characters() -> None:
    recorded = response("close", (2000, "aé€😀b".encode()))
    assert [data for _, data in chunks(bent(recorded, "split:inside=utf8"))] == [
        b"a\xc3",
        b"\xa9\xe2",
        b"\x82",
        b"\xac\xf0",
        b"\x9f",
        b"\x98",
        b"\x80b",
    ]
    plain = response("close", (2000, b"\x80 only ASCII \x80"))
    assert bent(plain, "split:inside=utf8") is plain


def test_split_inside_line_ends() -> None:
    recorded = response("close", (2000, b"data: 1\r\n\r\ndata: 2\n\n\r"))
    assert [data for _, data in chunks(bent(recorded, "split:inside=crlf"))] == [
        b"data: 1\r",
        b"\n\r",
        b"\ndata: 2\n\n\r",
    ]


def test_split_inside_events() -> None:
    recorded = sse((2000, E1 + b": comment\n\n" + E3 + b"data: unfinished"))
    assert [data for _, data in chunks(bent(recorded, "split:inside=event"))] == [
        b"data",
        b": 1\n\n: comment\n\ndata:",
        b" 333\n\ndata: unfinished",
    ]
    lines = response("chunked", (2000, b'{"a":1}\n{"b":2}'), media=NDJSON)
    assert [data for _, data in chunks(bent(lines, "split:inside=event"))] == [b'{"a"', b':1}\n{"b', b'":2}']


def test_split_at_random_depends_on_its_seed() -> None:
    recorded = response("close", (2000, bytes(2000)))
    sizes = [len(data) for _, data in chunks(bent(recorded, "split:random"))]
    assert min(sizes) >= 1
    assert max(sizes) <= 64
    assert 30 < len(sizes) < 200
    assert len(set(sizes)) > 15
    assert bent(recorded, "split:random,seed=1") != bent(recorded, "split:random,seed=2")


def test_untouched_chunks_keep_their_spelling() -> None:
    head = sse().segments[0].wire
    recorded = tracked([(1, head), (2, b"002;a=b\r\nab\r\n"), (9000, b"03\r\ncde\r\n"), (9001, b"00\r\n\r\n")])
    assert writes(bent(recorded, "split:bytes=2,gap=10us"))[1:] == [
        (2, b"002;a=b\r\nab\r\n"),
        (9000, b"2\r\ncd\r\n"),
        (9010, b"1\r\ne\r\n00\r\n\r\n"),
    ]


def test_split_inside_opens_a_compressed_stream_and_bytes_do_not() -> None:
    recorded = gzipped([(2000, "data: é1\n\n".encode()), (9000, E2)])
    opened = bent(recorded, "split:inside=utf8")
    assert [text for _, text in inflated(opened) if text] == [b"data: \xc3", b"\xa91\n\n", E2]
    assert strictly_whole(opened)
    assert body(bent(recorded, "split:bytes=3")) == body(recorded)
    assert [len(data) for _, data in chunks(bent(recorded, "split:bytes=3"))].count(3) > 10


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("", "one of bytes=, inside= and random is needed"),
        (":bytes=1,random", "one of bytes=, inside= and random is needed"),
        (":bytes=1,inside=utf8", "one of bytes=, inside= and random is needed"),
        (":bytes=0", "bytes= must be 1 or more"),
        (":random,gap=0s", "gap= must be 1us or more"),
        (":inside=line", "expected utf8, crlf, event"),
    ],
)
def test_splits_that_make_no_sense(keys: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        fault("split" + keys)


@pytest.mark.parametrize(
    "spec", ["split:bytes=1", "split:inside=crlf", "split:inside=event", "join", "framing:as=close"]
)
def test_what_has_no_body_or_no_events_cannot_be_cut(spec: str) -> None:
    empty = tracked([(5, b"HTTP/1.1 204 No Content\r\n\r\n")])
    with pytest.raises(Meaningless):
        bent(empty, spec)
    plain = response("length", (2000, b"{}"), media="application/json")
    with pytest.raises(Meaningless):
        bent(plain, "split:inside=event")


def test_a_large_body_in_single_bytes_costs_little() -> None:
    recorded = response("chunked", (2000, bytes(range(256)) * 512))
    tracemalloc.start()
    try:
        played = bent(recorded, "split:bytes=1,gap=1us")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(played.segments) == 2 + 131_072
    assert peak < 300 * 131_072, "bytes of memory for each byte of the body"


# ---------------------------------------------------------------- join (C7)


def test_join_makes_one_chunk_in_one_write() -> None:
    recorded = sse((2000, [E1, E2]), (302_000, E3), (602_000, DONE))
    assert writes(bent(recorded, "join")) == [
        (1000, recorded.segments[0].wire),
        (602_000, b"2c\r\n" + E1 + E2 + E3 + DONE + b"\r\n" + LAST),
    ]
    assert bent(recorded, "join").end_at == 602_000


def test_join_keeps_the_head_and_the_last_chunk_in_their_own_reads() -> None:
    head = sse().segments[0].wire
    recorded = tracked([(1000, head + b"9\r\n" + E1 + b"\r\n"), (2000, b"a\r\n" + E2 + b"\r\n"), (3000, LAST)])
    assert writes(bent(recorded, "join")) == [(1000, head), (2000, b"13\r\n" + E1 + E2 + b"\r\n"), (3000, LAST)]


def test_join_within_a_window() -> None:
    recorded = response("close", *((at * 1000, b"%d" % at) for at in (2, 5, 12, 13, 40)))
    assert chunks(bent(recorded, "join:window=10ms")) == [(12_000, b"2512"), (13_000, b"13"), (40_000, b"40")]
    assert chunks(bent(recorded, "join:window=9999us")) == [(5000, b"25"), (13_000, b"1213"), (40_000, b"40")]
    assert bent(recorded, "join:window=0s") is recorded
    assert [data for _, data in chunks(bent(sse((2000, [b"a", b"b"])), "join:window=0s"))] == [b"ab"]


def test_join_of_one_piece_changes_nothing() -> None:
    for recorded in (sse((2000, E1)), sse(), response("length", (2000, b"{}"))):
        assert bent(recorded, "join") is recorded


# ---------------------------------------------------------------- framing


def test_chunks_become_a_length() -> None:
    recorded = sse((2000, [E1, E2]), (3000, E3))
    played = bent(recorded, "framing:as=length")
    assert writes(played) == [
        (1000, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 30\r\n\r\n"),
        (2000, E1 + E2),
        (3000, E3),
    ]
    assert (played.end, played.end_at, played.then) == (End.COMPLETE, 3000, Then.OPEN)


def test_a_length_is_reached_before_the_last_chunk_would_have_come() -> None:
    head = sse().segments[0].wire
    recorded = tracked([(1000, head), (2000, b"1\r\nx\r\n"), (9000, b"0\r\nX: trailer\r\n\r\n"), (9001, b"surplus")])
    played = bent(recorded, "framing:as=length")
    assert played.wire.endswith(b"\r\n\r\nx")
    assert played.end_at == 2000


def test_a_length_becomes_chunks() -> None:
    head = b"HTTP/1.0 200 OK\r\nX: 1\r\ncontent-length: 3\r\nY: 2\r\n\r\n"
    recorded = tracked([(1000, head + b"a"), (2000, b"bc")], then=Then.FIN)
    played = bent(recorded, "framing:as=chunked")
    assert writes(played) == [
        (1000, b"HTTP/1.0 200 OK\r\nX: 1\r\nTransfer-Encoding: chunked\r\nY: 2\r\n\r\n1\r\na\r\n"),
        (2000, b"2\r\nbc\r\n" + LAST),
    ]
    assert (played.end, played.then, played.then_at) == (End.COMPLETE, Then.FIN, 2000)


def test_a_close_becomes_chunks_that_end_when_it_closed() -> None:
    recorded = response("close", (2000, E1), end_at=9000, version="1.0", lines="Connection: close\r\n")
    played = bent(recorded, "framing:as=chunked")
    assert writes(played) == [
        (
            1000,
            b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
        ),
        (2000, b"9\r\n" + E1 + b"\r\n"),
        (9000, LAST),
    ]
    assert (played.end_at, played.then, played.then_at) == (9000, Then.FIN, 9000)
    counted = bent(recorded, "framing:as=length")
    assert (counted.end_at, counted.then, counted.then_at) == (2000, Then.FIN, 9000)


@pytest.mark.parametrize(
    ("version", "lines", "kept"),
    [
        ("1.1", "", "Connection: close\r\n"),
        ("1.1", "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n", "Connection: close\r\n"),
        ("1.1", "Keep-Alive: timeout=5\r\nX: y\r\n", "X: y\r\nConnection: close\r\n"),
        ("1.0", "", ""),
        ("1.0", "Connection: keep-alive\r\n", "Connection: close\r\n"),
    ],
)
def test_a_close_says_so(version: str, lines: str, kept: str) -> None:
    recorded = response("chunked", (2000, E1), version=version, lines=lines)
    played = bent(recorded, "framing:as=close")
    start = f"HTTP/{version} 200 OK\r\nContent-Type: text/event-stream\r\n"
    assert writes(played) == [(1000, (start + kept + "\r\n").encode()), (2000, E1)]
    assert (played.end, played.end_at, played.then, played.then_at) == (End.COMPLETE, 2000, Then.FIN, 2000)


@pytest.mark.parametrize("end", [End.FIN, End.RST, End.HANG, End.CLIENT])
@pytest.mark.parametrize("source", FRAMINGS)
@pytest.mark.parametrize("target", FRAMINGS)
def test_an_answer_cut_short_stays_cut_short(end: End, source: str, target: str) -> None:
    recorded = response(source, (2000, E1), end=end, end_at=3000, promised=20)
    if source == "chunked":
        recorded = response(source, (2000, E1), end=end, end_at=3000)
    played = bent(recorded, f"framing:as={target}")
    assert (played.end, played.end_at) == (end, 3000)
    assert not scan(played).done
    if target == "length":
        assert scan(played).missing == {"chunked": 1, "length": 11, "close": 1}[source]


@pytest.mark.parametrize("end", [End.FIN, End.RST, End.HANG])
def test_what_came_whole_and_then_broke_off_comes_whole_in_another_framing(end: End) -> None:
    recorded = response("length", (2000, E1), end=end, end_at=9000)
    played = bent(recorded, "framing:as=chunked")
    assert writes(played)[1:] == [(2000, b"9\r\n" + E1 + b"\r\n" + LAST)]
    assert (played.end, played.end_at) == (end, 9000)


def test_what_the_client_left_when_it_was_whole_is_whole() -> None:
    recorded = response("length", (2000, E1), end=End.CLIENT, end_at=9000)
    assert bent(recorded, "framing:as=close").then is Then.FIN
    assert bent(recorded, "framing:as=chunked").end is End.COMPLETE


def test_an_empty_body_in_every_framing() -> None:
    assert bent(response("length"), "framing:as=chunked").wire.endswith(b"chunked\r\n\r\n" + LAST)
    assert bent(response("chunked"), "framing:as=length").wire.endswith(b"Content-Length: 0\r\n\r\n")
    assert bent(response("chunked"), "framing:as=close").wire.endswith(b"Connection: close\r\n\r\n")


def test_a_head_in_two_reads_with_an_interim_one_before_it() -> None:
    interim = b"HTTP/1.1 100 Continue\r\nContent-Length: 9\r\n\r\n"
    reads = [(1, interim), (2, b"HTTP/1.1 200 OK\nContent-Len"), (3, b"gth: 2\nX: y\n\n"), (4, b"ab")]
    assert writes(bent(tracked(reads), "framing:as=chunked")) == [
        (1, interim),
        (2, b"HTTP/1.1 200 OK\n"),
        (3, b"Transfer-Encoding: chunked\nX: y\n\n"),
        (4, b"2\r\nab\r\n" + LAST),
    ]


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\nxx", "the body is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "another transfer coding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "another transfer coding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", "the body is no HTTP"),
    ],
)
def test_what_cannot_be_framed_anew(start: bytes, why: str) -> None:
    with pytest.raises(Meaningless, match=why):
        bent(tracked([(1, start)]), "framing:as=length")


# ---------------------------------------------------------------- http


def test_http_changes_the_version_and_nothing_else() -> None:
    recorded = sse((2000, E1))
    played = bent(recorded, "http")
    assert played.wire == recorded.wire.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert scan(played).framing is Framing.CHUNKED
    assert bent(played, "http:version=1.1") == recorded
    assert bent(recorded, "http:version=1.1") == recorded
    assert bent(played, "http:version=1.0") == played


def test_http_works_without_a_body_and_leaves_interim_heads_alone() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    recorded = tracked([(1, interim + b"HTTP/1.1 204\r\n\r\n")])
    assert bent(recorded, "http").wire == interim + b"HTTP/1.0 204\r\n\r\n"
    with pytest.raises(Meaningless, match="no whole head"):
        bent(Response((Segment(1, before=b"HTTP/1.1 200"),), End.FIN, 1), "http")
