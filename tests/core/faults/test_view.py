"""Where a position lies in a response, when a byte came, and where something can be put between events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.events import Kind
from mockllm.core.faults.base import Meaningless, Position, Unit
from mockllm.core.faults.spec import position_of
from mockllm.core.faults.view import View, view
from mockllm.core.response import End, Response
from tests.captures import Capture, captures
from tests.core.faults.making import NDJSON, body, from_capture, response, responses, tracked

BOM = b"\xef\xbb\xbf"
E1, E2, E3 = b"data: 1\n\n", b"data: 22\n\n", b"data: 333\n\n"
COMMENT = b": ka\n\n"


def at(text: str) -> Position:
    found = position_of(text)
    assert found is not None
    return found


def seen(framing: str, *reads: tuple[int, bytes | list[bytes]], media: str = "text/event-stream") -> View:
    return view(response(framing, *reads, media=media))


# ---------------------------------------------------------------- properties


@given(st.booleans().flatmap(lambda ndjson: responses(ndjson=ndjson)))
def test_spans_cover_the_body_and_borders_lie_between_them(drawn: Response) -> None:
    found = view(drawn)
    assert b"".join(found.body[span.start : span.stop] for span in found.spans) == body(drawn)
    assert found.events == [span for span in found.spans if span.kind is Kind.EVENT]
    stops = [0, *(span.stop for span in found.spans)]
    for border in found.borders[1:]:
        assert border in stops
        assert found.body[:border].endswith((b"\n", b"\r"))
    assert found.borders == sorted(set(found.borders))


@given(responses(), st.integers(0, 20), st.integers(0, 300), st.integers(0, 100), st.integers(0, 1_000_000))
def test_a_position_is_in_the_body_or_beyond_the_end(
    drawn: Response, events: int, count: int, share: int, time: int
) -> None:
    found = view(drawn)
    for position in (
        Position(Unit.EVENTS, events),
        Position(Unit.BYTES, count),
        Position(Unit.PERCENT, share),
        Position(Unit.TIME, time),
    ):
        offset, border = found.offset(position), found.border(position)
        assert offset is None or 0 <= offset <= len(found.body)
        assert border is None or (offset is not None and offset <= border and border in found.borders)


@given(responses(), st.integers(0, 300))
def test_when_a_byte_came(drawn: Response, offset: int) -> None:
    found = view(drawn)
    came = [piece.at for piece in found.parts.pieces for _ in piece.data]
    expected = came[offset] if offset < len(came) else came[-1] if came else found.parts.head_at
    assert found.came_at(offset) == expected


@given(responses(), st.integers(0, 400_000))
def test_how_much_had_come_before_a_time(drawn: Response, time: int) -> None:
    found = view(drawn)
    assert found.came_by(time) == sum(len(piece.data) for piece in found.parts.pieces if piece.at < time)


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        ("0ev", 0),
        ("1ev", 15),
        ("2ev", 25),
        ("3ev", 36),
        ("4ev", None),
        ("0b", 0),
        ("7b", 7),
        ("36b", 36),
        ("37b", None),
        ("0pct", 0),
        ("50pct", 18),
        ("49.9pct", 17),
        ("100pct", 36),
        ("0s", 0),
        ("2ms", 0),
        ("2001us", 15),
        ("3ms", 15),
        ("3001us", 36),
        ("9ms", 36),
        ("9001us", None),
    ],
)
def test_positions(position: str, offset: int | None) -> None:
    recorded = response("close", (2000, COMMENT + E1), (3000, E2 + E3), end_at=9000)
    assert view(recorded).offset(at(position)) == offset


@pytest.mark.parametrize(
    ("ending", "offset"),
    [(b"\n\n", 9), (b"\r\n\r\n", 11), (b"\r\r", 9), (b"\n\r\n", 10), (b"\r\n\n", 10), (b"\n\r", 9)],
)
def test_an_event_ends_after_its_blank_line(ending: bytes, offset: int) -> None:
    assert seen("close", (2000, b"data: 1" + ending + b"data: 2\n\n")).offset(at("1ev")) == offset


def test_comments_and_empty_blocks_are_no_events_and_data_alone_is_one() -> None:
    found = seen("length", (2000, COMMENT + b"retry: 3\n\n" + b"event: x\n\n" + b"\n" + b"data:\n\n" + b"data: x"))
    assert len(found.events) == 1
    assert found.offset(at("1ev")) == len(COMMENT) + 10 + 10 + 1 + 7
    assert found.offset(at("2ev")) is None


def test_an_event_over_several_chunks_ends_in_the_last() -> None:
    found = seen("chunked", (2000, [b"da", b"ta: ", b"1\n"]), (3000, [b"\nda"]), (4000, [b"ta: 2\n\n"]))
    assert found.offset(at("1ev")) == 9
    assert found.came_at(8) == 3000
    assert found.ends == [2, 6, 8, 11, 18]


def test_bytes_are_those_of_the_body_not_of_its_chunks() -> None:
    found = seen("chunked", (2000, [E1, E2]))
    assert found.offset(at("9b")) == len(E1)
    assert found.body == E1 + E2


def test_a_body_that_is_empty() -> None:
    found = seen("chunked")
    assert found.offset(at("0ev")) == found.offset(at("0b")) == found.offset(at("100pct")) == 0
    assert found.offset(at("1ev")) is None
    assert found.border(at("0ev")) == 0
    assert found.border(at("1b")) is None
    assert found.came_at(0) == 1000


# ---------------------------------------------------------------- borders


@pytest.mark.parametrize(
    ("position", "border"),
    [
        ("0ev", 0),
        ("1b", 6),
        ("6b", 6),
        ("7b", 15),
        ("1ev", 15),
        ("2001us", 25),
        ("25b", 25),
        ("26b", None),
        ("2ev", 25),
    ],
)
def test_a_place_moves_on_to_the_next_border(position: str, border: int | None) -> None:
    recorded = response("close", (2000, COMMENT + E1 + E2[:1]), (3000, E2[1:] + b"data: unfinished"), end_at=9000)
    assert view(recorded).border(at(position)) == border


def test_a_byte_order_mark_stays_the_first_thing() -> None:
    found = seen("close", (2000, BOM + E1))
    assert found.borders == [3, 12]
    assert found.border(at("0ev")) == 3
    assert found.offset(at("0ev")) == 0


def test_the_end_of_a_json_line_without_its_line_end_is_no_border() -> None:
    found = seen("chunked", (2000, [b'{"a":1}\n', b"\n", b'{"done":true}']), media=NDJSON)
    assert found.ndjson
    assert found.offset(at("2ev")) == 22
    assert found.borders == [0, 8, 9]
    assert found.border(at("2ev")) is None


# ---------------------------------------------------------------- no stream


def test_events_of_what_is_no_stream_have_no_meaning() -> None:
    found = seen("length", (2000, b"{}"), media="application/json")
    assert found.content_type == b"application/json"
    assert not found.ndjson
    assert found.offset(at("50pct")) == 1
    for ask in (lambda: found.events, lambda: found.spans, lambda: found.offset(at("0ev")), lambda: found.borders):
        with pytest.raises(Meaningless, match="the body is no stream of events"):
            ask()


def test_a_response_without_a_body_has_no_view() -> None:
    with pytest.raises(Meaningless):
        view(tracked([(1, b"HTTP/1.1 204 No Content\r\n\r\n")], end=End.COMPLETE))


# ---------------------------------------------------------------- whose it is


@pytest.mark.parametrize(
    ("framing", "media", "text", "name"),
    [
        ("close", "text/event-stream", b'event: ping\ndata: {"type":"ping"}\n\n', "anthropic"),
        ("length", "application/json", b"{}", "openai"),
    ],
)
def test_the_family_is_told_by_the_events_else_by_the_target(framing: str, media: str, text: bytes, name: str) -> None:
    assert seen(framing, (2000, text), media=media).family == name


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_what_real_servers_sent_can_be_looked_at(capture: Capture) -> None:
    try:
        found = view(from_capture(capture))
    except Meaningless:
        return
    if capture.response.count(b"data: "):
        assert (found.family == "mlx") == (capture.server == "mlx_lm.server")
        assert len(found.events) == found.body.count(b"data: ")
        assert found.border(at("100pct")) == len(found.body)
