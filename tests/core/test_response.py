"""Responses, requests and errors as values: what they refuse, and what can be asked of them."""

import pytest

from mockllm.core.errors import CassetteError, MockllmError, NoMatchError, UpstreamError, UsageError
from mockllm.core.exchange import header
from mockllm.core.response import End, Response, Segment, Then

HEAD = Segment(5, before=b"HTTP/1.1 200 OK\r\n\r\n")


def test_a_segment_is_its_data_between_its_framing() -> None:
    assert Segment(0, b"data", b"4\r\n", b"\r\n").wire == b"4\r\ndata\r\n"
    assert Segment(0).wire == b""


def test_segments_of_one_time_are_one_read() -> None:
    response = Response((HEAD, Segment(5, b"a"), Segment(6, b"b"), Segment(6, b"c", b"<", b">")), End.FIN, 7)
    assert list(response.reads()) == [(5, HEAD.before + b"a"), (6, b"b<c>")]
    assert response.wire == HEAD.before + b"ab<c>"
    assert list(Response((), End.RST, 0).reads()) == []


@pytest.mark.parametrize(
    ("segments", "end_at", "then", "then_at"),
    [
        ((Segment(-1),), 0, Then.OPEN, 0),
        ((Segment(2), Segment(1)), 3, Then.OPEN, 0),
        ((Segment(2),), 1, Then.OPEN, 0),
        ((), -1, Then.OPEN, 0),
        ((Segment(2),), 3, Then.FIN, 2),
        ((), 3, Then.RST, 0),
    ],
)
def test_time_never_goes_back(segments: tuple[Segment, ...], end_at: int, then: Then, then_at: int) -> None:
    with pytest.raises(ValueError, match="time goes back"):
        Response(segments, End.COMPLETE, end_at, then, then_at)


def test_a_server_that_leaves_the_connection_open_does_so_at_no_time() -> None:
    assert Response((HEAD,), End.COMPLETE, 9, Then.OPEN, 0).then_at == 0
    assert Response((HEAD,), End.COMPLETE, 9, Then.FIN, 9).then_at == 9


def test_the_target_tells_no_two_responses_apart() -> None:
    assert Response((HEAD,), End.FIN, 9, target=b"/a") == Response((HEAD,), End.FIN, 9, target=b"/b")
    assert Response((HEAD,), End.FIN, 9, method="HEAD") != Response((HEAD,), End.FIN, 9)


def test_a_header_is_found_in_any_case_the_first_of_several() -> None:
    headers = ((b"A", b"1"), (b"Content-Type", b"x"), (b"content-type", b"y"))
    assert header(headers, b"CONTENT-type") == b"x"
    assert header(headers, b"content") is None


@pytest.mark.parametrize(
    ("error", "text", "status", "exit_code"),
    [
        (CassetteError("a.jsonl", 3, "this", "that"), "a.jsonl:3: found this; expected that", 500, 1),
        (UpstreamError("dns", "no such host: x"), "no such host: x", 502, 1),
        (UsageError("--speed -1"), "--speed -1", 400, 2),
        (NoMatchError("nothing recorded"), "nothing recorded", 404, 3),
    ],
)
def test_an_error_says_what_it_is_and_how_to_answer(
    error: MockllmError, text: str, status: int, exit_code: int
) -> None:
    assert isinstance(error, MockllmError)
    assert (str(error), error.status, error.exit_code) == (text, status, exit_code)


def test_an_upstream_error_says_its_reason() -> None:
    assert UpstreamError("tls", "x").reason == "tls"
