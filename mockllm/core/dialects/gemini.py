"""Gemini's streamGenerateContent with `alt=sse`: candidates made of parts, counts in every event, and no end of its
own.
"""

from typing import Any

from mockllm.core.dialects.base import Meaning, Reading, dig, string, when


def read(value: dict[str, Any]) -> Reading | None:
    """The reading of an event, or None where it has neither candidates nor their counts."""
    candidates = value.get("candidates")
    usage = isinstance(value.get("usageMetadata"), dict)
    if not isinstance(candidates, list):
        return Reading(Meaning.USAGE) if usage else None
    meaning = when(usage, Meaning.USAGE)
    text = ""
    for candidate in candidates:
        found = _candidate(candidate)
        meaning |= found.meaning
        text += found.text
    return Reading(meaning, text)


def _candidate(candidate: Any) -> Reading:
    meaning = when(dig(candidate, "finishReason"), Meaning.FINISH) | when(
        dig(candidate, "content", "role"), Meaning.ROLE
    )
    parts = dig(candidate, "content", "parts")
    if not isinstance(parts, list):
        return Reading(meaning)
    # A thought is a part with text too, marked so.
    texts = ["" if dig(part, "thought") else string(dig(part, "text")) for part in parts]
    return Reading(meaning | when(not all(texts), Meaning.OTHER), "".join(texts))
