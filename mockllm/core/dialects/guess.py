"""Which family a recording speaks, guessed from what is at hand: the events first, then the target, then the
content type.

It must not know what a fault does with the answer.
"""

from collections.abc import Sequence

from mockllm.core.dialects import llama, mlx, ollama
from mockllm.core.dialects.reading import read
from mockllm.core.events import Event, Kind, NdjsonReader, reader_for

_SERVERS = (("mlx", mlx.signs), ("llama", llama.signs), ("ollama", ollama.signs))

_ROUTES = (
    (b"/api/chat", "ollama"),
    (b"/api/generate", "ollama"),
    (b"/messages", "anthropic"),
    (b"/responses", "responses"),
    (b":streamGenerateContent", "gemini"),
    (b":generateContent", "gemini"),
    (b"/completion", "llama"),
    (b"/infill", "llama"),
    (b"/completions", "openai"),
)


def family(target: bytes, content_type: bytes | None, events: Sequence[Event]) -> str:
    """One of openai, responses, anthropic, ollama, llama, mlx, gemini; openai where nothing tells.

    Who speaks OpenAI's chat dialect is asked closer, since its keepalives and errors are its own: mlx, llama,
    ollama. An Anthropic or Responses stream of llama-server counts as anthropic or responses.
    """
    dialect = next((name for name in map(_dialect, events) if name), "")
    if dialect not in ("", "openai"):
        return dialect
    server = next((name for name in map(_server, events) if name), "")
    return server or dialect or _by_target(target) or _by_type(content_type)


def _dialect(event: Event) -> str:
    return read(event.json())[0] if event.kind is Kind.EVENT else ""


def _server(event: Event) -> str:
    value = event.json() if event.kind is Kind.EVENT else None
    return next((name for name, signs in _SERVERS if signs(event.comments, value)), "")


def _by_target(target: bytes) -> str:
    path = target.partition(b"?")[0]
    return next((name for route, name in _ROUTES if path.endswith(route)), "")


def _by_type(content_type: bytes | None) -> str:
    return "ollama" if isinstance(reader_for(content_type), NdjsonReader) else "openai"
