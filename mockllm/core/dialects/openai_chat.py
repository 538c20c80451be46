"""OpenAI's chat and text completions, as OpenAI and everybody who copies it streams them.

A `role` delta, content deltas, a `finish_reason`, a chunk with usage, then `[DONE]`; an `error` instead of or
beside choices. It must not know which server speaks.
"""

from typing import Any

from mockllm.core.dialects.base import NOTHING, Meaning, Reading, dig, string, when


def read(value: dict[str, Any]) -> Reading | None:
    """The reading of a chunk, or None where it is none: it needs a list of choices."""
    choices = value.get("choices")
    if not isinstance(choices, list):
        return None
    usage = isinstance(value.get("usage"), dict) or isinstance(dig(value, "x_groq", "usage"), dict)
    meaning = when(usage, Meaning.USAGE) | when(value.get("error"), Meaning.ERROR)
    meaning |= when(value.get("prompt_progress"), Meaning.OTHER)
    text = ""
    for choice in choices:
        found = _choice(choice)
        meaning |= found.meaning
        text += found.text
    return Reading(meaning, text)


def _choice(choice: Any) -> Reading:
    delta = dig(choice, "delta")
    meaning = when(dig(choice, "finish_reason"), Meaning.FINISH)
    if not isinstance(delta, dict):
        return Reading(meaning, string(dig(choice, "text")))
    content = _content(delta.get("content"))
    more = any(item for key, item in delta.items() if key not in ("role", "content"))
    meaning |= when(delta.get("role"), Meaning.ROLE) | when(more, Meaning.OTHER)
    return Reading(meaning | content.meaning, content.text)


def _content(content: Any) -> Reading:
    """A string, or (Mistral) a list of parts of which some are text."""
    if not isinstance(content, list):
        return Reading(NOTHING, string(content))
    texts = [string(dig(part, "text")) for part in content]
    return Reading(when(not all(texts), Meaning.OTHER), "".join(texts))
