"""Anthropic's Messages API: named events whose JSON repeats the name as `type`, and `message_stop` for an end."""

from typing import Any

from mockllm.core.dialects.base import NOTHING, Meaning, Reading, dig, string, when

_TYPES = {
    "message_start": NOTHING,
    "content_block_start": NOTHING,
    "content_block_delta": NOTHING,
    "content_block_stop": NOTHING,
    "message_delta": NOTHING,
    "message_stop": Meaning.DONE,
    "ping": Meaning.PING,
    "error": Meaning.ERROR,
}


def read(value: dict[str, Any]) -> Reading | None:
    """The reading of an event, or None where it is none of this family."""
    kind = string(value.get("type"))
    if kind not in _TYPES:
        return None
    usage = isinstance(value.get("usage"), dict) or isinstance(dig(value, "message", "usage"), dict)
    meaning = _TYPES[kind] | when(usage, Meaning.USAGE)
    meaning |= when(dig(value, "message", "role"), Meaning.ROLE)
    meaning |= when(dig(value, "delta", "stop_reason"), Meaning.FINISH)
    # A text block may start with text; thinking and tool input stand under keys of their own.
    return Reading(meaning, string(dig(value, "delta", "text")) or string(dig(value, "content_block", "text")))
