"""Each oddity is told where it is, and not where it is not: one hand-made answer for each, and ordinary ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm import files
from mockllm.core.cassette import loads
from mockllm.core.exchange import Exchange, Request
from mockllm.core.http1 import Tracker
from mockllm.core.look import Look
from mockllm.core.oddities import CHECKS, odd
from mockllm.core.response import End, Response, Then
from mockllm.core.summary import summarize
from mockllm.core.timeline import timeline
from tests import captures
from tests.core.faults.making import from_capture
from tests.core.nasties import NASTIES, Nasty, answers, cuttings
from tests.core.oddity_cases import CASES, CHUNKED, DONE, HEL, NDJSON, STOP, STREAM, TEXT, Case, answer, plain


@pytest.mark.parametrize("one", CASES)
def test_an_oddity_is_told(one: Case) -> None:
    [check] = [check for check in CHECKS if check.__name__ == one.check]
    assert tuple(check(Look(one.exchange))) == one.lines
    assert [line for line in odd(one.exchange) if line in one.lines] == list(one.lines)


def test_every_check_has_a_case_in_which_it_speaks() -> None:
    assert {check.__name__ for check in CHECKS} == {one.values[0].check for one in CASES if one.values[0].lines}
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    "exchange",
    [
        answer(CHUNKED, *STREAM),
        answer(TEXT, HEL, STOP, DONE, then=Then.FIN),
        plain(b'{"choices":[{"message":{"content":"hi"}}]}'),
        answer(b"HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"error":"x"}'),
        answer(b"HTTP/1.1 204 No Content\r\n\r\n"),
        answer(NDJSON, b'{"message":{"content":"a"},"done":false}\n', b'{"done":true,"done_reason":"stop"}\n'),
    ],
    ids=["chunked", "until-close", "json", "error", "no-content", "ndjson"],
)
def test_nothing_is_odd_about_ordinary_answers(exchange: Exchange) -> None:
    assert odd(exchange) == []


def shipped(name: str) -> Exchange:
    [exchange] = loads((files.shipped() / name).read_bytes(), name)
    return exchange


def test_shipped_cassettes() -> None:
    assert odd(shipped("mlx_lm.server/hello-truncated.jsonl")) == [
        "HTTP/1.0, not 1.1",
        '2 comments, such as ": keepalive 9/10"',
        "no [DONE] at the end",
        "the role is in 3 deltas",
    ]
    assert odd(shipped("quirks/nulls.jsonl")) == [
        f"{name} is null in 1 event" for name in ("delta", "tool_calls", "data")
    ]


def captured(server: str, name: str) -> Exchange:
    capture = captures.load(server, name)
    response = from_capture(capture)
    return Exchange(Request(capture.method, response.target), response)


def test_captures() -> None:
    found = odd(captured("llama-server", "ping2_stream_long_prompt"))
    assert any(line.endswith('such as ":"') for line in found), found
    assert any("chunk with several events" in line or "chunks with several events" in line for line in found), found
    assert "the server closed the connection right at the end without having said so" in found
    assert not {"HTTP/1.0, not 1.1", "no [DONE] at the end"} & set(found)
    cut = odd(captured("mlx_lm.server", "disconnect_mid_stream"))
    assert "the client left before the end" in cut
    assert "no [DONE] at the end" in cut


@pytest.mark.parametrize("capture", captures.captures(), ids=str)
def test_every_capture_can_be_looked_at(capture: captures.Capture) -> None:
    exchange = captured(capture.server, capture.name)
    rows = timeline(exchange)
    assert sum(row.bytes for row in rows) == len(capture.response)
    assert len(rows) == len(capture.reads) + 1
    assert all(isinstance(line, str) and line for line in odd(exchange))
    assert summarize(exchange).bytes == sum(len(piece.data) for piece in Look(exchange).pieces)


@given(answers().flatmap(lambda found: st.tuples(st.just(found[0]), cuttings(found[1]))))
def test_no_bytes_make_it_raise(found: tuple[str, list[tuple[int, bytes]]]) -> None:
    method, reads = found
    tracker = Tracker(method)
    segments = tuple(segment for at, read in reads for segment in tracker.feed(at + 1, read))
    at = segments[-1].at if segments else 0
    exchange = Exchange(Request(method, b"/"), Response(segments, End.FIN, at, method=method))
    odd(exchange)
    rows = timeline(exchange)
    assert sum(row.bytes for row in rows) == sum(len(read) for _, read in reads)
    assert rows[-1].at_us == sum(row.gap_us for row in rows) == at
    assert sum(len(segment.data) for segment in segments) == summarize(exchange).bytes


@pytest.mark.parametrize("nasty", NASTIES, ids=str)
def test_nasty_answers_can_be_looked_at(nasty: Nasty) -> None:
    exchange = answer(*nasty.reads, method=nasty.method)
    odd(exchange)
    assert len(timeline(exchange)) == len(nasty.reads) + 1
    assert summarize(exchange).status == nasty.status
