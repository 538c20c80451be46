"""OpenAI's Responses API: named events whose JSON repeats the name as `type`, and no `[DONE]`."""

from typing import Any

from mockllm.core.dialects.base import NOTHING, Meaning, Reading, dig, string, when

_ENDS = {
    "response.completed": Meaning.FINISH | Meaning.DONE,
    "response.incomplete": Meaning.FINISH | Meaning.DONE,
    "response.failed": Meaning.ERROR | Meaning.DONE,
}


def read(value: dict[str, Any]) -> Reading | None:
    """The reading of an event, or None where it is none of this family."""
    kind = string(value.get("type"))
    if kind == "keepalive":
        return Reading(Meaning.PING)
    if kind == "error" and ("error" not in value or "sequence_number" in value):
        return Reading(Meaning.ERROR)
    if not kind.startswith("response."):
        return None
    if kind == "response.output_text.delta":
        return Reading(NOTHING, string(value.get("delta")))
    meaning = _ENDS.get(kind, NOTHING) | when(isinstance(dig(value, "response", "usage"), dict), Meaning.USAGE)
    return Reading(meaning | when(kind == "response.output_item.added" and dig(value, "item", "role"), Meaning.ROLE))
