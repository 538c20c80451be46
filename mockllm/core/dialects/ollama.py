"""Ollama's own routes: one JSON object a line, each with `done`; the last has `done: true`, the reason and the counts.

On its /v1 routes it speaks OpenAI's dialect with a fingerprint of its own.
"""

from typing import Any

from mockllm.core.dialects.base import Meaning, Reading, dig, string, when


def read(value: dict[str, Any]) -> Reading | None:
    """The reading of a line of /api/chat or /api/generate, or None where it is none."""
    done = value.get("done")
    if not isinstance(done, bool):
        return None
    message = value.get("message")
    more = any(dig(message, key) for key in ("tool_calls", "thinking", "images")) or value.get("thinking")
    meaning = when(done, Meaning.FINISH | Meaning.DONE) | when(more, Meaning.OTHER)
    meaning |= when(dig(message, "role"), Meaning.ROLE)
    meaning |= when("eval_count" in value or "prompt_eval_count" in value, Meaning.USAGE)
    return Reading(meaning, string(value.get("response")) or string(dig(message, "content")))


def signs(_comments: object, value: Any) -> bool:
    """Whether an event with this JSON value shows that Ollama sent it (it sends no comments)."""
    return string(dig(value, "system_fingerprint")) == "fp_ollama"
