"""A response at another speed: what becomes of its times, and that nothing becomes of its bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.timing import moved, retimed

HOUR = 3_600_000_000


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """Reads at any times, several segments in some of them, every ending."""
    at, segments = 0, []
    for gap in draw(st.lists(st.sampled_from([0, 0, 1, 2, 999]) | st.integers(0, HOUR), max_size=8)):
        at += gap
        segments.append(Segment(at, draw(st.binary(max_size=3)), draw(st.binary(max_size=2))))
    end_at = at + draw(st.integers(0, HOUR))
    end, then = draw(st.sampled_from(End)), Then.OPEN
    if end is End.COMPLETE:
        then = draw(st.sampled_from(Then))
    then_at = 0 if then is Then.OPEN else end_at + draw(st.integers(0, HOUR))
    return Response(tuple(segments), end, end_at, then, then_at)


def times(response: Response) -> list[int]:
    """Of the reads, of the end, and of what came then."""
    then = [] if response.then is Then.OPEN else [response.then_at]
    return [*(at for at, data in response.reads() if data), response.end_at, *then]


def pieces(response: Response) -> list[bytes]:
    return [data for _, data in response.reads() if data]


@given(responses())
def test_as_recorded_is_the_recording(response: Response) -> None:
    assert retimed(response) is response


@given(responses(), st.floats(0.001, 1000), st.none() | st.integers(0, HOUR))
def test_only_times_change_and_reads_stay_apart(response: Response, speed: float, max_gap: int | None) -> None:
    played = retimed(response, speed=speed, max_gap_us=max_gap)
    assert pieces(played) == pieces(response)
    assert (played.end, played.then) == (response.end, response.then)
    reads = [at for at, _ in played.reads()]
    assert all(one < other for one, other in pairwise(reads))


@given(responses(), st.floats(0.001, 1000))
def test_every_time_is_divided_by_the_speed(response: Response, speed: float) -> None:
    """Up to a µs for the rounding and one for each read that had to keep its distance."""
    played = retimed(response, speed=speed)
    for number, (one, other) in enumerate(zip(times(played), times(response), strict=True)):
        assert other / speed - 1 <= one <= other / speed + 1 + number


@given(responses(), st.integers(0, HOUR))
def test_no_silence_is_longer_than_the_cap_and_no_shorter_one_changes(response: Response, cap: int) -> None:
    played = [0, *times(retimed(response, max_gap_us=cap))]
    gaps = [other - one for one, other in pairwise(played)]
    recorded = [other - one for one, other in pairwise([0, *times(response)])]
    assert gaps == [min(gap, cap) for gap in recorded] or cap == 0
    assert all(gap <= max(cap, 1) for gap in gaps)


def test_the_cap_comes_before_the_speed() -> None:
    response = Response((Segment(4_000, b"a"), Segment(14_000, b"b")), End.FIN, 15_000)
    played = retimed(response, speed=2, max_gap_us=6_000)
    assert times(played) == [2_000, 5_000, 5_500]


def test_roundings_do_not_add_up() -> None:
    segments = tuple(Segment(at, b"x") for at in range(0, 10_000, 10))
    played = retimed(Response(segments, End.FIN, 10_000), speed=3)
    assert [segment.at for segment in played.segments] == [round(at / 3) for at in range(0, 10_000, 10)]


@given(responses(), st.none() | st.integers(0, HOUR))
def test_at_speed_0_everything_is_one_read_at_once(response: Response, max_gap: int | None) -> None:
    played = retimed(response, speed=0, max_gap_us=max_gap)
    assert played.wire == response.wire
    assert set(times(played)) == {0}
    assert len(list(played.reads())) <= 1


def test_the_connection_is_closed_as_long_after_the_end_as_the_speed_says() -> None:
    response = Response((Segment(10, b"a"),), End.COMPLETE, 10, Then.FIN, 40_010)
    assert retimed(response, speed=10).then_at == 4_001
    assert retimed(response, max_gap_us=1_000).then_at == 1_010


@pytest.mark.parametrize("bad", [{"speed": -1}, {"speed": float("nan")}, {"max_gap_us": -1}])
def test_what_makes_no_sense(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="cannot play at speed"):
        retimed(Response((), End.FIN, 0), **bad)  # type: ignore[arg-type]


@given(responses(), st.integers(0, 1_000))
def test_moved_asks_in_order_of_the_reads_and_lets_none_overtake(response: Response, by: int) -> None:
    asked: list[int] = []

    def move(at: int) -> int:
        asked.append(at)
        return by

    played = moved(response, move)
    assert asked == sorted(asked)
    assert pieces(played) == pieces(response)
    assert [at for at, _ in played.reads()] == list(range(by, by + len(pieces(response))))
