"""Lines for a person at a terminal: short, with units, and with nothing in them that a terminal would obey."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.loglines import Came, duration, exchange, under_way


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (999, "999 µs"),
        (1000, "1.0 ms"),
        (12_345, "12.3 ms"),
        (999_900, "999.9 ms"),
        (1_000_000, "1.00 s"),
        (83_456_789, "83.46 s"),
    ],
)
def test_durations(us: int, text: str) -> None:
    assert duration(us) == text


@given(st.integers(0, 10**10))
def test_a_duration_is_near_what_it_says(us: int) -> None:
    number, unit = duration(us).split(" ")
    factor = {"µs": 1, "ms": 1000, "s": 1_000_000}[unit]
    decimals = len(number.partition(".")[2])
    assert abs(float(number) * factor - us) <= factor / 2 / 10**decimals + 1e-3


def test_an_exchange() -> None:
    line = exchange("POST", b"/v1/x?a=1", Came(200, 1234, 5_000), 1_500_000, "complete", "tapes/1.jsonl")
    assert line == "POST /v1/x?a=1 200, 1234 B, first byte 5.0 ms, 1.50 s, complete tapes/1.jsonl"
    assert exchange("GET", b"/", Came(None, 0, None), 10, "fin") == "GET / no head, 0 B, nothing came, 10 µs, fin"


@pytest.mark.parametrize(
    ("came", "text"),
    [
        (Came(200, 9, 1_000, 1, 2_000), "200, 1 event, 9 B, first byte 1.0 ms, first event 2.0 ms"),
        (Came(200, 9, 1_000, 2, 2_000), "200, 2 events, 9 B, first byte 1.0 ms, first event 2.0 ms"),
        (Came(200, 9, 1_000, 1), "200, 1 event, 9 B, first byte 1.0 ms"),
    ],
)
def test_events(came: Came, text: str) -> None:
    assert str(came) == text
    assert under_way("POST", b"/x", came, 3_000) == ("POST /x", f"{text}, 3.0 ms so far")
    whole = came.as_object("POST", b"/x")
    assert (whole["method"], whole["target"], whole["status"], whole["bytes"]) == ("POST", "/x", 200, 9)
    assert (whole["first_byte_ms"], whole["first_event_ms"]) == (1.0, 2.0 if came.first_event else None)


@given(st.binary(max_size=30), st.text(max_size=10), st.text(max_size=10))
def test_it_is_one_line_that_prints(target: bytes, end: str, rest: str) -> None:
    line = exchange("GET", target, Came(200, 1, 1), 1, end, rest)
    assert line.isprintable()
    assert re.match(r"GET .* 200, 1 B, ", line)
    asked, came = under_way("GET", target, Came(200, 1, 1), 1)
    assert (asked + came).isprintable()
    assert asked.isascii()
