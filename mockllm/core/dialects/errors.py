"""How each server family says that it failed: as the body of an answer with an error status, and in mid-stream.

Pure text: it knows no HTTP framing and no event syntax. The shapes are those of cassettes and of the servers' own
sources; the words in them are mockllm's.
"""

import json
from dataclasses import dataclass
from typing import Any

STATUS_STYLES = ("openai", "responses", "anthropic", "ollama", "vllm", "groq", "llama", "mlx", "gemini", "openrouter")
"""The families whose error bodies are known."""

STREAM_STYLES = tuple(style for style in STATUS_STYLES if style != "mlx")
"""The families whose errors in mid-stream are known. mlx_lm.server sends none: it closes."""

_MESSAGES = {
    400: "Invalid request",
    401: "Invalid API key",
    402: "Payment required",
    403: "Permission denied",
    404: "Not found",
    408: "Request timed out",
    413: "Request too large",
    422: "Unprocessable request",
    429: "Rate limit exceeded",
    500: "Internal server error",
    501: "Not supported",
    502: "Bad gateway",
    503: "Service unavailable",
    504: "Gateway timed out",
    529: "Overloaded",
}
_ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_LLAMA = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_VLLM = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
_NAMES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error event: `name` is its type (b"" for the default), `data` its JSON.

    `done`: the family sends `[DONE]` after it. `closes`: it closes the connection after the answer.
    """

    data: bytes
    name: bytes = b""
    done: bool = False
    closes: bool = False


def usual_code(style: str) -> int:
    """The status that the family says when it is overloaded or fails."""
    return {"anthropic": 529, "gemini": 503, "openrouter": 502}.get(style, 500)


def status_error(style: str, code: int) -> tuple[bytes, bytes]:
    """Content type and body of an error answer of a family, one of STATUS_STYLES."""
    value = _object(style, code)
    if style == "anthropic":
        value["request_id"] = "req_0"
    if style in ("openai", "responses", "gemini"):
        text = json.dumps(value, indent=2)
    elif style == "mlx":
        text = json.dumps(value)
    else:
        text = _compact(value)
    charset = {"llama": b"; charset=utf-8", "ollama": b"; charset=utf-8", "gemini": b"; charset=UTF-8"}
    return b"application/json" + charset.get(style, b""), text.encode() + (b"\n" if style == "gemini" else b"")


def stream_error(style: str, code: int | None, sequence: int) -> StreamError:
    """An error in mid-stream as a family says it, one of STREAM_STYLES.

    Without a code it is the family's usual one, and OpenAI's says `null`. `sequence` is the number of the event, which
    Responses counts.
    """
    value = _object(style, code or usual_code(style))
    if style == "openai":
        value["error"]["code"] = code
    elif style == "responses":
        error = value["error"]
        value = {"type": "error", "code": error["code"] or error["type"], "message": error["message"], "param": None}
        value["sequence_number"] = sequence
    elif style == "openrouter":
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
        value = {"id": "gen-0", "object": "chat.completion.chunk", "created": 0, "choices": [choice], **value}
    text = json.dumps(value) if style == "vllm" else _compact(value)
    name = b"error" if style in ("anthropic", "responses", "groq") else b""
    return StreamError(text.encode(), name, style in ("vllm", "openrouter"), style == "anthropic")


def _object(style: str, code: int) -> dict[str, Any]:
    message = _MESSAGES.get(code, f"HTTP status {code}")
    client = code < 500
    if style in ("ollama", "mlx"):
        return {"error": message}
    if style == "anthropic":
        kind = _ANTHROPIC.get(code, "invalid_request_error" if client else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if style == "llama":
        kind = _LLAMA.get(code, "invalid_request_error" if client else "server_error")
        return {"error": {"code": code, "message": message, "type": kind}}
    if style == "gemini":
        kind = _GEMINI.get(code, "FAILED_PRECONDITION" if client else "UNKNOWN")
        return {"error": {"code": code, "message": message, "status": kind}}
    if style == "vllm":
        kind = _VLLM.get(code, "BadRequestError" if client else "InternalServerError")
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}
    if style == "openrouter":
        return {"error": {"message": message, "code": code}}
    kind = "requests" if code == 429 else "invalid_request_error" if client else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": _NAMES.get(code)}
    if style == "groq":
        del error["param"]
        error["type"] = "internal_server_error" if kind == "server_error" else kind
    return {"error": error}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
