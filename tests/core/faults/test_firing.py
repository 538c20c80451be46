"""For which requests a fault fires: counting by spec, place and path; drawing by seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.faults.firing import fires
from mockllm.core.faults.spec import When


def fired(when: When, count: int = 10, path: str = "/v1/chat/completions") -> list[int]:
    """The numbers of the requests, of so many, that it fires for."""
    counters: dict[tuple[str, int], int] = {}
    return [number for number in range(1, count + 1) if fires("spec", 0, when, path, counters)]


@given(st.none() | st.integers(0, 12), st.integers(0, 12))
def test_it_fires_after_skip_and_so_many_times(times: int | None, skip: int) -> None:
    expected = [number for number in range(1, 11) if skip < number and (times is None or number <= skip + times)]
    assert fired(When(times, skip)) == expected


def test_c14_fires_one_after_another() -> None:
    counters: dict[tuple[str, int], int] = {}
    steps = [When(times=1), When(times=1, skip=1)]
    requests = [[fires("c14", place, when, "/v1", counters) for place, when in enumerate(steps)] for _ in range(3)]
    assert requests == [[True, False], [False, True], [False, False]]


def test_every_spec_and_every_place_counts_for_itself() -> None:
    counters: dict[tuple[str, int], int] = {}
    once = When(times=1)
    assert [fires(spec, place, once, "/", counters) for spec in "ab" for place in (0, 1)] == [True] * 4
    assert [fires(spec, place, once, "/", counters) for spec in "ab" for place in (0, 1)] == [False] * 4
    assert counters == {("a", 0): 2, ("a", 1): 2, ("b", 0): 2, ("b", 1): 2}
    assert fires("a", 0, once, "/", {})


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/v1/chat/completions", "/v1/chat/completions", True),
        ("/v1/chat/completions", "/v1/chat/completions?stream=1", True),
        ("/v1/*", "/v1/chat/completions", True),
        ("/v?/models", "/v1/models", True),
        ("/v[12]/models", "/v2/models", True),
        ("*completions", "/v1/chat/completions?x=/models", True),
        ("*/models", "/v1/chat/completions?x=/models", False),
        ("/v1", "/v1/models", False),
        ("/V1/*", "/v1/models", False),
        ("/v1/[", "/v1/[", True),
    ],
)
def test_only_requests_of_the_path_count(pattern: str, path: str, matches: bool) -> None:
    counters: dict[tuple[str, int], int] = {}
    assert fires("spec", 0, When(path=pattern), path, counters) is matches
    assert bool(counters) is matches


def test_requests_of_another_path_are_not_counted() -> None:
    counters: dict[tuple[str, int], int] = {}
    when = When(times=1, skip=1, path="/a")
    paths = ["/a", "/b", "/b", "/a", "/b", "/a"]
    assert [fires("spec", 0, when, path, counters) for path in paths] == [False, False, False, True, False, False]


def test_a_draw_fires_about_as_often_as_p_says() -> None:
    for p in (0.1, 0.5, 0.9):
        assert abs(len(fired(When(p=p), 2000)) - 2000 * p) < 100
    assert fired(When(p=0)) == []
    assert fired(When(p=1)) == list(range(1, 11))


@given(st.integers(0, 10**15), st.floats(0, 1), st.integers(0, 5), st.none() | st.integers(0, 20))
def test_a_seed_decides_every_draw(seed: int, p: float, skip: int, times: int | None) -> None:
    every = fired(When(p=p, seed=seed), 40)
    assert fired(When(p=p, seed=seed), 40) == every
    limited = fired(When(times, skip, p, seed), 40)
    assert limited == [n for n in every if skip < n and (times is None or n <= skip + times)]


def test_another_seed_draws_others_and_the_draws_never_change() -> None:
    assert fired(When(p=0.5, seed=1), 20) != fired(When(p=0.5, seed=2), 20)
    assert fired(When(p=0.3), 20) == [1, 9, 12, 13, 20]
