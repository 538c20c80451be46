"""Taking a response apart and putting it together: the framing stays true, what is not touched keeps its spelling."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.bend import bend
from mockllm.core.faults.body import Piece, framed_chunk, put_together, take_apart
from mockllm.core.faults.edit import Edit, edit
from mockllm.core.faults.spread import spread, with_length
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Segment, Then
from tests.captures import Capture, captures
from tests.core.faults.making import body, chunks, from_capture, response, responses, strictly_whole, tracked, writes

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def head_of(length: int, start: str = "HTTP/1.1 200 OK\r\n") -> bytes:
    return f"{start}Content-Length: {length}\r\n\r\n".encode()


# ---------------------------------------------------------------- properties


@given(responses())
def test_the_parts_are_the_response(drawn: Response) -> None:
    parts = take_apart(drawn)
    assert b"".join(s.wire for s in (*parts.head, *parts.pieces, *parts.tail)) == drawn.wire or parts.shared
    assert parts.body == body(drawn)
    assert put_together(parts, parts.pieces) is drawn
    assert put_together(parts, [Piece(piece.at, piece.data) for piece in parts.pieces]) is drawn


@given(responses(), st.data())
def test_edits_change_the_body_as_they_say_and_keep_the_framing_true(drawn: Response, data: st.DataObject) -> None:
    parts = take_apart(drawn)
    edits, expected = data.draw(changes(parts.body))
    bent = edit(parts, edits)
    found = scan(bent)
    assert body(bent) == expected
    assert (found.bad, found.done, found.whole) == (parts.found.bad, parts.found.done, parts.found.whole)
    if parts.found.framing is Framing.LENGTH or (parts.found.missing and expected and not parts.unfinished):
        assert found.missing == parts.found.missing
    if parts.unfinished and expected:
        assert found.missing == parts.found.missing, "what was promised and missing is still missing"
    assert (bent.end, bent.then, bent.method, bent.target) == (drawn.end, drawn.then, drawn.method, drawn.target)


@given(responses(), st.data())
def test_pieces_that_no_edit_touches_stay_as_they_were(drawn: Response, data: st.DataObject) -> None:
    parts = take_apart(drawn)
    place = data.draw(st.integers(0, len(parts.body)))
    bent = edit(parts, [Edit(place, place, b"new")])
    unfinished = parts.pieces[-1] if parts.unfinished else None
    stop = 0
    for piece in parts.pieces:
        start, stop = stop, stop + len(piece.data)
        touched = start < place <= stop or place == start == 0
        if not touched and not parts.shared and piece is not unfinished:
            assert piece in bent.segments


@st.composite
def changes(draw: st.DrawFn, text: bytes) -> tuple[list[Edit], bytes]:
    """Edits that do not overlap, and what becomes of the text."""
    borders = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edits, expected, done = [], b"", 0
    for start, stop in zip(borders[::2], borders[1::2], strict=False):
        new = draw(st.sampled_from([b"", b"x", b"new bytes"]))
        edits.append(Edit(start, stop, new, draw(st.none() | st.integers(0, 400_000))))
        expected += text[done:start] + new
        done = stop
    return edits, expected + text[done:]


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_what_real_servers_sent_comes_apart_and_together(capture: Capture) -> None:
    recorded = from_capture(capture)
    try:
        parts = take_apart(recorded)
    except Meaningless:
        assert capture.response == b"" or b" 204 " in capture.response
        return
    assert put_together(parts, parts.pieces) is recorded
    bent = put_together(parts, [*parts.pieces, Piece(recorded.end_at, b"more")])
    assert body(bent) == parts.body + b"more"
    assert scan(bent).whole == scan(recorded).whole


# ---------------------------------------------------------------- the spelling of chunks


def test_untouched_chunks_keep_their_spelling() -> None:
    recorded = tracked([(5, HEAD), (7, b"003;x=y\r\nabc\r\n"), (9, b"2\nde\n"), (11, b"00\r\nX: y\r\n\r\n")])
    bent = edit(take_apart(recorded), [Edit(4, 5, b"xyz")])
    assert writes(bent) == [(5, HEAD), (7, b"003;x=y\r\nabc\r\n"), (9, b"4\r\ndxyz\r\n"), (11, b"00\r\nX: y\r\n\r\n")]


def test_a_chunk_that_came_in_two_reads_is_made_anew_with_all_others() -> None:
    recorded = tracked([(5, HEAD), (7, b"03\r\nabc\r\n4\r\nde"), (8, b"fg\r\n"), (9, b"0\r\n\r\n")])
    assert take_apart(recorded).shared
    bent = edit(take_apart(recorded), [Edit(0, 0, b"x")])
    assert writes(bent) == [(5, HEAD), (7, b"4\r\nxabc\r\n2\r\nde\r\n"), (8, b"2\r\nfg\r\n"), (9, b"0\r\n\r\n")]


def test_a_size_line_in_a_read_of_its_own_goes_with_its_data() -> None:
    recorded = tracked([(5, HEAD), (6, b"3\r\n"), (7, b"abc\r\n"), (9, b"0\r\n\r\n")])
    bent = edit(take_apart(recorded), [Edit(3, 3, b"!")])
    assert writes(bent) == [(5, HEAD), (7, b"4\r\nabc!\r\n"), (9, b"0\r\n\r\n")]


@pytest.mark.parametrize(
    "later",
    [
        [b"\r\n0\r\n\r\n"],
        [b"\r\n", b"0\r\n\r\n"],
        [b"\r", b"\n0\r\n\r\n"],
        [b"\r", b"\n", b"0\r\n\r\n"],
        [b"\n0\r\n\r\n"],
    ],
)
def test_the_end_of_a_chunk_in_a_later_read_is_not_sent_twice(later: list[bytes]) -> None:
    recorded = tracked([(5, HEAD), (7, b"3\r\nabc"), *enumerate(later, 8)])
    bent = edit(take_apart(recorded), [Edit(1, 2, b"")])
    assert bent.wire == HEAD + b"2\r\nac\r\n" + b"0\r\n\r\n"
    assert strictly_whole(bent)


def test_deletion_of_whole_chunks_leaves_no_empty_one() -> None:
    recorded = response("chunked", (2000, [b"aa", b"bb"]), (3000, b"cc"))
    bent = edit(take_apart(recorded), [Edit(2, 6, b"")])
    assert chunks(bent) == [(2000, b"aa")]
    assert bent.wire.endswith(b"\r\n\r\n2\r\naa\r\n0\r\n\r\n")
    assert strictly_whole(edit(take_apart(recorded), [Edit(0, 6, b"")]))


# ---------------------------------------------------------------- what is missing stays missing


def test_an_unfinished_chunk_stays_as_far_from_its_end() -> None:
    recorded = tracked([(5, HEAD), (7, b"a\r\nabc")], end=End.FIN)
    parts = take_apart(recorded)
    assert edit(parts, [Edit(3, 3, b"de")]).wire == HEAD + b"c\r\nabcde"
    assert edit(parts, [Edit(0, 3, b"")]).wire == HEAD
    inserted = put_together(parts, [Piece(6, b"xy"), *parts.pieces])
    assert inserted.wire == HEAD + b"2\r\nxy\r\na\r\nabc", "the one that nobody touched keeps its own size line"
    moved = put_together(parts, [*parts.pieces, Piece(9, b"xy")])
    assert moved.wire == HEAD + b"3\r\nabc\r\n9\r\nxy"


def test_what_an_unfinished_chunk_promised_goes_to_the_last_one_that_is_left() -> None:
    recorded = tracked([(5, HEAD), (7, b"1\r\nx\r\n"), (8, b"a\r\nabc")], end=End.FIN)
    assert edit(take_apart(recorded), [Edit(1, 4, b"")]).wire == HEAD + b"8\r\nx"


def test_a_chunk_without_its_crlf_stays_without() -> None:
    parts = take_apart(tracked([(5, HEAD), (7, b"3\r\nabc")], end=End.FIN))
    assert edit(parts, [Edit(0, 1, b"")]).wire == HEAD + b"2\r\nbc"


@pytest.mark.parametrize("size", [b"a", b"a\r\n"])
def test_a_size_line_without_its_chunk_stays_the_last_thing(size: bytes) -> None:
    parts = take_apart(tracked([(5, HEAD), (7, b"1\r\nx\r\n"), (8, size)], end=End.FIN))
    assert edit(parts, [Edit(1, 1, b"y")]).wire == HEAD + b"2\r\nxy\r\n" + size
    empty = take_apart(tracked([(5, HEAD), (8, size)], end=End.FIN))
    assert edit(empty, [Edit(0, 0, b"y", at=6)]).wire == HEAD + b"1\r\ny\r\n" + size


@pytest.mark.parametrize("end", [b"\r\nzzz\r\n", b"zzz\r\n", b"\rzzz\r\n"])
def test_garbage_between_chunks_stays_where_it_is(end: bytes) -> None:
    parts = take_apart(tracked([(5, HEAD), (7, b"1\r\nx" + end)]))
    assert parts.found.bad
    bent = edit(parts, [Edit(0, 1, b"yy")])
    assert bent.wire.startswith(HEAD + b"2\r\nyy")
    assert bent.wire.endswith(b"zzz\r\n")
    assert scan(bent).bad


def test_a_length_that_never_came_never_comes() -> None:
    recorded = response("length", (2000, b"abcd"), promised=10, end=End.RST)
    bent = edit(take_apart(recorded), [Edit(0, 0, b"xyz")])
    assert b"Content-Length: 13\r\n" in bent.wire
    assert scan(bent).missing == 6


def test_an_edit_that_keeps_the_length_keeps_how_it_is_written() -> None:
    recorded = tracked([(5, b"HTTP/1.1 200 OK\r\nContent-Length: 004\r\n\r\n"), (6, b"abcd")])
    assert edit(take_apart(recorded), [Edit(0, 1, b"x")]).wire == recorded.segments[0].wire + b"xbcd"


# ---------------------------------------------------------------- Content-Length in the head


@pytest.mark.parametrize(
    ("reads", "length", "expected"),
    [
        ([b"HTTP/1.1 200 OK\r\n", b"Content-Length: 9\r\n\r\n"], 1000, [17, 24]),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1", b"00\r\nX: y\r\n\r\n"], 7, [33, 11]),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 123", b"\r\n\r\n"], 4, [34, 4]),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r", b"\n"], 12345, [41, 1]),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5", b"\r\n", b"\r\n"], 55, [35, 2, 2]),
    ],
)
def test_a_head_in_several_reads_stays_in_them(reads: list[bytes], length: int, expected: list[int]) -> None:
    head = [Segment(at, before=data) for at, data in enumerate(reads)]
    changed = with_length(head, length)
    assert scan(Response(changed, End.FIN, 9)).missing == length
    assert [len(segment.before) for segment in changed] == expected
    assert [segment.at for segment in changed] == list(range(len(reads)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"content-length:5", b"content-length:77"),
        (b"CONTENT-LENGTH \t:  5 ", b"CONTENT-LENGTH \t:  77"),
        (b"Content-Length: 5, 5", b"Content-Length: 77"),
        (b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 77\r\nContent-Length: 77"),
        (b"X-Content-Length: 5\r\nContent-Length: 5", b"X-Content-Length: 5\r\nContent-Length: 77"),
    ],
)
def test_every_spelling_of_a_length_is_changed(line: bytes, expected: bytes) -> None:
    head = Segment(0, before=b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % line)
    assert with_length([head], 77)[0].before == b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % expected


@given(st.lists(st.binary(min_size=1, max_size=5), min_size=1), st.binary(max_size=30))
def test_new_bytes_of_a_head_are_all_there_in_no_more_reads(old: list[bytes], new: bytes) -> None:
    made = spread([Segment(at, before=data) for at, data in enumerate(old)], new)
    assert b"".join(segment.before for segment in made) == new
    assert all(segment.before for segment in made)
    assert [segment.at for segment in made] == sorted({segment.at for segment in made})


def test_an_empty_body_takes_new_bytes() -> None:
    assert edit(take_apart(tracked([(5, head_of(0))])), [Edit(0, 0, b"abc")]).wire == head_of(3) + b"abc"
    chunked = edit(take_apart(tracked([(5, HEAD), (9, b"0\r\n\r\n")])), [Edit(0, 0, b"abc")])
    assert writes(chunked) == [(5, HEAD + b"3\r\nabc\r\n"), (9, b"0\r\n\r\n")]
    close = edit(take_apart(response("close")), [Edit(0, 0, b"abc", at=7000)])
    assert chunks(close) == [(7000, b"abc")]
    assert (close.end_at, close.then, close.then_at) == (7000, Then.FIN, 7000)


# ---------------------------------------------------------------- times


def test_new_bytes_come_with_those_before_them_or_when_asked() -> None:
    parts = take_apart(response("close", (2000, b"ab"), (3000, b"cd"), end_at=9000))
    assert chunks(edit(parts, [Edit(0, 0, b"+")])) == [(2000, b"+ab"), (3000, b"cd")]
    assert chunks(edit(parts, [Edit(2, 2, b"+")])) == [(2000, b"ab+"), (3000, b"cd")]
    assert chunks(edit(parts, [Edit(3, 3, b"+"), Edit(4, 4, b"-")])) == [(2000, b"ab"), (3000, b"c+d-")]
    timed = edit(parts, [Edit(1, 1, b"+", at=2500), Edit(4, 4, b"-", at=4000)])
    assert chunks(timed) == [(2000, b"a"), (2500, b"+b"), (3000, b"cd"), (4000, b"-")]


def test_several_edits_at_one_place_stand_in_their_order() -> None:
    parts = take_apart(response("close", (2000, b"ab")))
    assert body(edit(parts, [Edit(1, 1, b"1"), Edit(0, 0, b"0"), Edit(1, 1, b"2"), Edit(1, 2, b"3")])) == b"0a123"


def test_an_edit_over_several_pieces_comes_with_the_first() -> None:
    parts = take_apart(response("close", (2000, b"abc"), (3000, b"def"), (4000, b"ghi")))
    assert chunks(edit(parts, [Edit(1, 7, b"+"), Edit(8, 9, b"-")])) == [(2000, b"a+"), (4000, b"h-")]


def test_what_comes_too_early_or_too_late_moves_what_follows() -> None:
    recorded = response("length", (2000, b"ab"), (3000, b"cd"), then=Then.FIN)
    parts = take_apart(recorded)
    bent = put_together(parts, [Piece(2000, b"ab"), Piece(5000, b"x"), replace(parts.pieces[1], at=1)])
    assert chunks(bent) == [(2000, b"ab"), (5000, b"xcd")]
    assert (bent.end_at, bent.then_at) == (5000, 5000)


def test_a_piece_as_a_chunk() -> None:
    assert framed_chunk(Piece(7, b"x" * 26)) == Segment(7, b"x" * 26, b"1a\r\n", b"\r\n")


# ---------------------------------------------------------------- where there is nothing to take apart


@pytest.mark.parametrize(
    ("wire", "method", "why"),
    [
        (b"", "POST", "there is no whole head"),
        (b"HTTP/1.1 200 OK\r\n", "POST", "there is no whole head"),
        (b"SSH-2.0\r\n\r\n", "POST", "there is no whole head"),
        (head_of(5), "HEAD", "an answer of this status or method has no body"),
        (head_of(5, "HTTP/1.1 204 No Content\r\n"), "POST", "an answer of this status or method has no body"),
        (head_of(5, "HTTP/1.1 304 Not Modified\r\n"), "GET", "an answer of this status or method has no body"),
    ],
)
def test_an_answer_without_head_or_body_is_refused(wire: bytes, method: str, why: str) -> None:
    with pytest.raises(Meaningless, match=why):
        take_apart(tracked([(5, wire)], method))


def test_interim_heads_are_part_of_the_head() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    parts = take_apart(tracked([(5, interim), (6, head_of(2) + b"ab")]))
    assert [segment.before for segment in parts.head] == [interim, head_of(2)]
    assert parts.head_at == 6
    assert edit(parts, [Edit(0, 1, b"")]).wire == interim + head_of(1) + b"b"


# ---------------------------------------------------------------- many


def test_a_large_body_is_edited_in_one_pass() -> None:
    text = b"line\n" * 100_000
    parts = take_apart(response("chunked", (2000, [text])))
    bent = edit(parts, [Edit(offset, offset + 1, b"\r\n") for offset in range(4, len(text), 5)])
    assert body(bent) == b"line\r\n" * 100_000


def test_a_body_whose_framing_comes_in_reads_of_its_own_is_taken_apart_in_one_pass() -> None:
    reads = [(5, HEAD), *((at, b"x\r\n" if at % 2 else b"1\r\n") for at in range(6, 100_006))]
    parts = take_apart(tracked(reads))
    assert len(parts.pieces) == 50_000
    assert len(put_together(parts, parts.pieces[1:]).segments) == 50_000


# ---------------------------------------------------------------- bend


class _Says:
    name = family = example = "says"

    def __init__(self, bent: Response | None) -> None:
        self.bent = bent

    def __call__(self, _: Response) -> Response:
        if self.bent is None:
            raise Meaningless("it is Tuesday")
        return self.bent


def test_bend_applies_faults_in_order_and_says_what_each_did() -> None:
    first, second = response("close", (2000, b"a")), response("close", (2000, b"b"))
    bent = bend(first, [_Says(None), _Says(first), _Says(second), _Says(second)])
    assert bent.response is second
    assert bent.idle == ("it is Tuesday", "it changes nothing here", None, "it changes nothing here")
