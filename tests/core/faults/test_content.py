"""An error inside a 200: what came before stays, the error is whole, and the answer ends as that server ends it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.dialects import Meaning, meaning
from mockllm.core.events import Kind, events
from mockllm.core.faults.coding import compressed, identity
from mockllm.core.faults.view import view
from mockllm.core.response import End, Response, Then
from tests.captures import load
from tests.core.faults.applying import bent, dispatched, fault, refusal, unchanged
from tests.core.faults.making import (
    NDJSON,
    SSE,
    body,
    chunks,
    from_capture,
    response,
    responses,
    strictly_whole,
    writes,
)

E1 = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
E2 = b'data: {"choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
OPENAI = b'data: {"error":{"message":"Internal server error","type":"server_error","param":null,"code":null}}\n\n'
LINES = (b'{"response":"a","done":false}\n', b'{"response":"","done":true}\n')


def chat(framing: str = "chunked", then: Then | None = None) -> Response:
    return response(framing, (2000, E1), (3000, E2), (5000, DONE), then=then)


# ---------------------------------------------------------------- properties


@given(
    responses(),
    st.builds("{}{}".format, st.integers(0, 60), st.sampled_from(["ev", "b", "pct", "us", "ms"])),
    st.sampled_from(["openai", "anthropic", "responses", "vllm", "groq"]),
)
def test_what_came_before_is_a_prefix_and_the_rest_is_a_whole_error(drawn: Response, at: str, style: str) -> None:
    changed = fault(f"error:at={at},style={style}")(drawn)
    if changed is drawn:
        return
    assert strictly_whole(changed)
    assert changed.end is End.COMPLETE
    was, now = dispatched(drawn), dispatched(changed)
    said = 2 if style == "vllm" else 1
    assert now[:-said] == was[: len(now) - said]
    found = events(body(changed), SSE.encode())
    assert found[-1].kind is Kind.EVENT
    assert Meaning.ERROR in meaning(found[-said])
    before = body(changed)[: found[-said].start]
    assert body(drawn).startswith(before)
    assert changed.end_at <= max(drawn.end_at, *(at for at, _ in drawn.reads()))


# ---------------------------------------------------------------- literal bytes and endings


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("error", [OPENAI]),
        (
            "error:style=openai,code=502",
            [OPENAI.replace(b"Internal server error", b"Bad gateway").replace(b"null}", b"502}")],
        ),
        (
            "error:style=anthropic",
            [b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'],
        ),
        (
            "error:style=responses",
            [
                b'event: error\ndata: {"type":"error","code":"server_error","message":"Internal server error",'
                b'"param":null,"sequence_number":0}\n\n'
            ],
        ),
        ("error:style=ollama", [b'data: {"error":"Internal server error"}\n\n']),
        (
            "error:style=vllm",
            [
                b'data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, '
                b'"code": 500}}\n\n',
                DONE,
            ],
        ),
        (
            "error:style=groq",
            [
                b'event: error\ndata: {"error":{"message":"Internal server error","type":"internal_server_error",'
                b'"code":null}}\n\n'
            ],
        ),
        (
            "error:style=llama",
            [b'data: {"error":{"code":500,"message":"Internal server error","type":"server_error"}}\n\n'],
        ),
    ],
)
def test_bytes(spec: str, said: list[bytes]) -> None:
    for framing in ("chunked", "length", "close"):
        changed = bent(spec, chat(framing))
        assert body(changed) == E1 + b"".join(said)
        assert strictly_whole(changed)
    assert chunks(bent(spec, chat())) == [(2000, E1), *((2000, event) for event in said)]


def test_the_answer_ends_with_the_error_as_it_ended_before() -> None:
    changed = bent("error", chat("chunked", Then.OPEN))
    assert (changed.end, changed.end_at, changed.then) == (End.COMPLETE, 2000, Then.OPEN)
    assert writes(changed)[-1][1].endswith(b"\r\n0\r\n\r\n")
    closing = response("chunked", (2000, E1), (5000, DONE), then=Then.FIN, end_at=5000)
    assert (bent("error", closing).then, bent("error", closing).then_at) == (Then.FIN, 2000)
    closed = bent("error", chat("close"))
    assert (closed.end, closed.end_at, closed.then, closed.then_at) == (End.COMPLETE, 2000, Then.FIN, 2000)
    anthropic = bent("error:style=anthropic", chat("chunked", Then.OPEN))
    assert (anthropic.then, anthropic.then_at) == (Then.FIN, 2000)


@pytest.mark.parametrize("end", [End.FIN, End.RST, End.HANG, End.CLIENT])
def test_a_stream_that_broke_off_ends_cleanly_with_its_error(end: End) -> None:
    for framing, promised in [("chunked", None), ("length", 9999)]:
        changed = bent("error:at=1ev", response(framing, (2000, E1), promised=promised, end=end))
        assert (body(changed), changed.end, changed.then) == (E1 + OPENAI, End.COMPLETE, Then.OPEN)
        assert strictly_whole(changed)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("0ev", [(2000, OPENAI)]),
        ("2ev", [(2000, E1), (3000, E2), (3000, OPENAI)]),
        ("3ev", [(2000, E1), (3000, E2), (5000, DONE), (5000, OPENAI)]),
        ("2500us", [(2000, E1), (2500, OPENAI)]),
        ("1b", [(2000, E1), (2000, OPENAI)]),
        ("0ms", [(1000, OPENAI)]),
    ],
)
def test_places(at: str, expected: list[tuple[int, bytes]]) -> None:
    changed = bent(f"error:at={at}", chat())
    assert chunks(changed) == expected
    assert changed.end_at == expected[-1][0]


def test_beyond_the_end_there_is_no_error() -> None:
    assert unchanged("error:at=4ev", chat())


def test_the_style_is_the_recordings_own() -> None:
    anthropic = bent("error:at=2ev", from_capture(load("llama-server", "messages-hello")))
    assert b'"type":"overloaded_error"' in body(anthropic)
    llama = bent("error:at=2ev", from_capture(load("llama-server", "chat-hello")))
    assert b'{"error":{"code":500,' in body(llama)
    mlx = bent("error:at=2ev", from_capture(load("mlx_lm.server", "stream_chat_short")))
    assert body(mlx).endswith(OPENAI), "mlx_lm.server has none of its own"


def test_responses_are_counted_on() -> None:
    counted = response(
        "chunked", *((2000 + n, b'data: {"type":"response.x","sequence_number":%d}\n\n' % n) for n in range(5))
    )
    said = view(bent("error:at=3ev", counted)).events[-1].json()
    assert (said["type"], said["sequence_number"]) == ("error", 3)
    odd = response("chunked", (2000, b'data: {"sequence_number":7}\n\ndata: {"sequence_number":"x"}\n\ndata: []\n\n'))
    assert view(bent("error:at=3ev,style=responses", odd)).events[-1].json()["sequence_number"] == 8


def test_the_error_is_spelled_as_the_stream_is() -> None:
    crlf = bent("error:style=vllm", bent("crlf", chat()))
    assert body(crlf).count(b"\r\n") == body(crlf).count(b"\n") == 6


def test_an_error_in_a_compressed_stream_ends_it() -> None:
    changed = bent("error", compressed(chat()))
    assert body(identity(changed)[0]) == E1 + OPENAI
    assert (changed.end_at, strictly_whole(changed)) == (2000, True)


# ---------------------------------------------------------------- JSON lines


def test_json_lines_end_with_the_error_on_a_line() -> None:
    recorded = response("chunked", (2000, LINES[0]), (3000, LINES[1]), media=NDJSON)
    assert body(bent("error", recorded)) == LINES[0] + b'{"error":"Internal server error"}\n'
    assert body(bent("error:style=vllm", recorded)).count(b"\n") == 2, "there is no [DONE] among JSON lines"
    assert json.loads(body(bent("error:style=groq", recorded)).splitlines()[-1])["error"]["code"] is None
    assert body(bent("garbage", recorded)) == LINES[0] + b'{"choices":[{"delta":{"content":\n' + LINES[1]


def test_garbage_is_no_json() -> None:
    for event in view(bent("garbage:at=2ev", chat())).events[2:3]:
        with pytest.raises(ValueError, match="Expecting"):
            json.loads(event.data)


@pytest.mark.parametrize("spec", ["error", "garbage"])
def test_a_body_that_is_no_stream_cannot_fail_in_mid_stream(spec: str) -> None:
    plain = response("length", (2000, b"{}"), media="application/json")
    assert refusal(spec, plain) == "the body is no stream of events"
