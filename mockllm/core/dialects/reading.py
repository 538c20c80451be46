"""What an event means, found by its content: the first dialect that knows its shape reads it.

No family, header or target is needed beforehand, and no data make it raise.
"""

from collections.abc import Callable
from typing import Any

from mockllm.core.dialects import anthropic, gemini, llama, ollama, openai_chat, openai_responses
from mockllm.core.dialects.base import NOTHING, Meaning, Reading, when
from mockllm.core.events import Event, Kind

_DONE = b"[DONE]"

# The shapes exclude each other but for `error`, where Responses looks closer than Anthropic.
_DIALECTS: tuple[tuple[str, Callable[[dict[str, Any]], Reading | None]], ...] = (
    ("openai", openai_chat.read),
    ("responses", openai_responses.read),
    ("anthropic", anthropic.read),
    ("ollama", ollama.read),
    ("llama", llama.read),
    ("gemini", gemini.read),
)


def read(value: Any) -> tuple[str, Reading]:
    """The dialect that knows this JSON value, and its reading; "" where none does or where many would say the same."""
    if not isinstance(value, dict):
        return "", Reading(NOTHING)
    for name, reader in _DIALECTS:
        found = reader(value)
        if found is not None:
            return name, found
    # {"error": …} alone is everybody's: an object (OpenAI, llama-server, Gemini), a string (mlx, Ollama).
    return "", Reading(when(value.get("error") or value.get("object") == "error", Meaning.ERROR))


def meaning(event: Event) -> Meaning:
    """What an event carries, at least one of the flags.

    A block is PING where it holds a comment. An unfinished tail is OTHER whatever it holds: no client gets it.
    """
    if event.kind is not Kind.EVENT:
        return Meaning.PING if event.kind is Kind.BLOCK and event.comments else Meaning.OTHER
    if event.data == _DONE:
        return Meaning.DONE
    found = read(event.json())[1]
    whole = found.meaning | when(found.text, Meaning.TEXT) | when(event.name == b"error", Meaning.ERROR)
    return whole or (Meaning.PING if event.name == b"ping" else Meaning.OTHER)


def text(event: Event) -> str:
    """The piece of the answer's text that an event carries, "" if none.

    Several choices are joined. Half a character (`\\ud83c`) stays a lone surrogate.
    """
    if event.kind is not Kind.EVENT:
        return ""
    return read(event.json())[1].text


def is_end(event: Event) -> bool:
    """Whether this event is the protocol's own end.

    `[DONE]` as the whole data, Anthropic's `message_stop`, `response.completed`, `.incomplete` and `.failed`,
    Ollama's `done: true`, `stop: true` on llama-server's own routes. An error is none: some servers send `[DONE]`
    after it.
    """
    return Meaning.DONE in meaning(event)
