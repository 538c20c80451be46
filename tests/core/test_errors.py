"""What each family says when it fails, and what it sends to keep a stream open: shapes that the readers know again."""

import json
from datetime import UTC, datetime

import pytest

from mockllm.core.dialects import Meaning, meaning
from mockllm.core.dialects.errors import STATUS_STYLES, STREAM_STYLES, status_error, stream_error, usual_code
from mockllm.core.dialects.heartbeats import EPOCH, heartbeat, moment, usual
from mockllm.core.events import events

CODES = (400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 501, 502, 503, 504, 529, 418, 599)


@pytest.mark.parametrize("style", STREAM_STYLES)
@pytest.mark.parametrize("code", [None, *CODES])
def test_an_error_in_mid_stream_is_read_as_one(style: str, code: int | None) -> None:
    error = stream_error(style, code, 7)
    name = b"event: %s\n" % error.name if error.name else b""
    [event] = events(name + b"data: %s\n\n" % error.data, b"text/event-stream")
    assert Meaning.ERROR in meaning(event)


@pytest.mark.parametrize("style", STATUS_STYLES)
@pytest.mark.parametrize("code", CODES)
def test_an_error_body_is_json_that_says_so(style: str, code: int) -> None:
    media, body = status_error(style, code)
    value = json.loads(body)
    assert media.startswith(b"application/json")
    assert value["error"] if style in ("ollama", "mlx") else value["error"]["message"]


@pytest.mark.parametrize(
    ("style", "code", "name", "data", "done", "closes"),
    [
        (
            "openai",
            None,
            b"",
            {"error": {"message": "Internal server error", "type": "server_error", "param": None, "code": None}},
            False,
            False,
        ),
        (
            "openai",
            502,
            b"",
            {"error": {"message": "Bad gateway", "type": "server_error", "param": None, "code": 502}},
            False,
            False,
        ),
        (
            "anthropic",
            None,
            b"error",
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            False,
            True,
        ),
        (
            "responses",
            429,
            b"error",
            {
                "type": "error",
                "code": "rate_limit_exceeded",
                "message": "Rate limit exceeded",
                "param": None,
                "sequence_number": 7,
            },
            False,
            False,
        ),
        (
            "responses",
            None,
            b"error",
            {
                "type": "error",
                "code": "server_error",
                "message": "Internal server error",
                "param": None,
                "sequence_number": 7,
            },
            False,
            False,
        ),
        ("ollama", None, b"", {"error": "Internal server error"}, False, False),
        (
            "vllm",
            400,
            b"",
            {"error": {"message": "Invalid request", "type": "BadRequestError", "param": None, "code": 400}},
            True,
            False,
        ),
        (
            "groq",
            503,
            b"error",
            {"error": {"message": "Service unavailable", "type": "internal_server_error", "code": None}},
            False,
            False,
        ),
        (
            "llama",
            None,
            b"",
            {"error": {"code": 500, "message": "Internal server error", "type": "server_error"}},
            False,
            False,
        ),
        (
            "gemini",
            None,
            b"",
            {"error": {"code": 503, "message": "Service unavailable", "status": "UNAVAILABLE"}},
            False,
            False,
        ),
        (
            "openrouter",
            None,
            b"",
            {
                "id": "gen-0",
                "object": "chat.completion.chunk",
                "created": 0,
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}],
                "error": {"message": "Bad gateway", "code": 502},
            },
            True,
            False,
        ),
    ],
)
def test_what_each_family_says_in_mid_stream(
    style: str, code: int | None, name: bytes, data: object, done: bool, closes: bool
) -> None:
    error = stream_error(style, code, 7)
    assert (error.name, json.loads(error.data), error.done, error.closes) == (name, data, done, closes)


@pytest.mark.parametrize(
    ("style", "code", "media", "body"),
    [
        ("mlx", 404, b"application/json", b'{"error": "Not found"}'),
        ("ollama", 404, b"application/json; charset=utf-8", b'{"error":"Not found"}'),
        (
            "llama",
            503,
            b"application/json; charset=utf-8",
            b'{"error":{"code":503,"message":"Service unavailable","type":"unavailable_error"}}',
        ),
        (
            "anthropic",
            529,
            b"application/json",
            b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_0"}',
        ),
        (
            "groq",
            429,
            b"application/json",
            b'{"error":{"message":"Rate limit exceeded","type":"requests","code":"rate_limit_exceeded"}}',
        ),
        ("openrouter", 429, b"application/json", b'{"error":{"message":"Rate limit exceeded","code":429}}'),
        (
            "gemini",
            418,
            b"application/json; charset=UTF-8",
            b'{\n  "error": {\n    "code": 418,\n    "message": "HTTP status 418",\n'
            b'    "status": "FAILED_PRECONDITION"\n  }\n}\n',
        ),
        (
            "openai",
            401,
            b"application/json",
            b'{\n  "error": {\n    "message": "Invalid API key",\n    "type": "invalid_request_error",\n'
            b'    "param": null,\n    "code": "invalid_api_key"\n  }\n}',
        ),
    ],
)
def test_what_each_family_says_with_a_status(style: str, code: int, media: bytes, body: bytes) -> None:
    assert status_error(style, code) == (media, body)


def test_the_usual_code_of_a_family() -> None:
    assert [usual_code(style) for style in ("anthropic", "gemini", "openrouter", "openai", "mlx")] == [
        529,
        503,
        502,
        500,
        500,
    ]


# ---------------------------------------------------------------- heartbeats

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("mlx", b": keepalive 2/9\n\n"),
        ("llama", b":\n\n"),
        ("openrouter", b": OPENROUTER PROCESSING\n\n"),
        ("deepseek", b": keep-alive\n\n"),
        ("ping", b": ping\n\n"),
        ("sse-starlette", b": ping - 2026-11-30 12:00:00.000005+00:00\r\n\r\n"),
        ("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n'),
        ("responses", b'event: keepalive\ndata: {"type":"keepalive","sequence_number":4}\n\n'),
        ("blank", b"\n"),
    ],
)
def test_what_each_server_sends_to_keep_a_stream_open(style: str, expected: bytes) -> None:
    assert heartbeat(style, 2, 9, 4, NOON, 5) == expected
    found = events(expected, b"text/event-stream")
    assert [Meaning.PING in meaning(event) for event in found] == [style != "blank"]


def test_a_family_has_its_own_heartbeat_or_the_plain_one() -> None:
    families = ("mlx", "llama", "anthropic", "responses", "openai", "gemini", "ollama")
    assert [usual(family) for family in families] == ["mlx", "llama", "anthropic", "responses", "ping", "ping", "ping"]


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        (b"Mon, 30 Nov 2026 12:00:00 GMT", NOON),
        (b"Mon, 30 Nov 2026 13:00:00 +0100", NOON),
        (b"Mon, 30 Nov 2026 12:00:00 -0000", NOON),
        (b"Mon, 30 Nov 2026 12:00:00", NOON),
    ],
)
def test_a_recording_was_made_at_the_date_of_its_head(date: bytes, expected: datetime) -> None:
    assert str(moment(date)) == str(expected) == "2026-11-30 12:00:00+00:00"


@pytest.mark.parametrize(
    "date",
    [
        *[None, b"", b"yesterday", b"\xff", b"Mon, 99 Nov 2026 12:00:00 GMT"],
        *[b"Fri, 31 Dec 9999 23:59:59 -0100", b"Fri, 31 Dec 9999 12:00:00 GMT", b"Fri, 31 Dec 0100 12:00:00 GMT"],
    ],
)
def test_without_a_date_to_count_from_it_was_made_at_the_epoch(date: bytes | None) -> None:
    assert str(moment(date)) == str(EPOCH) == "2026-01-01 00:00:00+00:00"
