"""What events, and answers of one JSON value, say in words: the text, why it stops, the token counts, the error.

Every dialect is asked at once, since their keys do not collide. It must not know where the JSON came from.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mockllm.core.dialects.base import dig, string
from mockllm.core.dialects.reading import read

_USAGES = (("usage",), ("message", "usage"), ("response", "usage"), ("x_groq", "usage"), ("usageMetadata",))
# Ollama and llama-server's own routes have no object for them.
_COUNTS = ("prompt_eval_count", "eval_count", "tokens_evaluated", "tokens_predicted")
_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count", "tokens_evaluated")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count", "tokens_predicted")


def text_of(value: Any) -> str:
    """The text of a JSON value, an event's or a whole answer's; "" if it has none."""
    if dig(value, "choices") is None:
        for key in ("content", "output"):  # Anthropic, Responses
            items = dig(value, key)
            if isinstance(items, list):
                return "".join(map(_part_text, items))
        return read(value)[1].text
    items = value["choices"]
    messages = [dig(item, "message", "content") for item in items] if isinstance(items, list) else []
    whole = "".join(_content_text(content) for content in messages)
    return whole or read(value)[1].text


def joined(texts: Iterable[str]) -> str:
    """Texts as one; halves of a character that stand in two of them become one character, a lone half U+FFFD."""
    return "".join(texts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def reasons_of(value: Any) -> list[str]:
    """Why the answer stops, as the server says it: a reason for each choice that has one."""
    if not isinstance(value, dict):
        return []
    keyed = (("choices", "finish_reason"), ("candidates", "finishReason"))
    items = [(item, key) for name, key in keyed for item in _list(value.get(name))]
    found = [dig(item, key) for item, key in items]
    found += [dig(value, "delta", "stop_reason"), value.get("stop_reason"), value.get("done_reason")]
    found.append(value.get("stop_type") or None)
    return [reason for reason in found if isinstance(reason, str)]


def usage_of(value: Any) -> dict[str, Any]:
    """Token counts as the server names them, {} if none."""
    found: dict[str, Any] = {}
    for path in _USAGES:
        usage = dig(value, *path)
        if isinstance(usage, dict):
            found |= usage
    counts = {key: count for key in _COUNTS if isinstance(count := dig(value, key), int)}
    return found | counts


def tokens(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the answer among counts of any family, None where they are not there."""
    pairs = [next((usage[key] for key in keys if isinstance(usage.get(key), int)), None) for keys in (_INPUT, _OUTPUT)]
    return pairs[0], pairs[1]


def delta_names(value: Any) -> list[str]:
    """What else than role and text the deltas of a chat chunk carry: `reasoning`, `tool_calls`."""
    deltas = [dig(choice, "delta") for choice in _list(dig(value, "choices"))]
    named = [key for delta in deltas if isinstance(delta, dict) for key, item in delta.items() if item]
    return [key for key in dict.fromkeys(named) if key not in ("role", "content")]


def error_of(value: Any) -> str | None:
    """What the server says went wrong, "" where it says so without words; None where it says nothing of the kind."""
    found = dig(value, "error") or dig(value, "response", "error")
    if found is None and dig(value, "type") == "error":
        found = value
    if found is None and dig(value, "object") == "error":  # older vLLM
        found = value
    if not found:
        return None
    return string(found) or string(dig(found, "message"))


def _content_text(content: Any) -> str:
    return string(content) or "".join(map(_part_text, _list(content)))


def _part_text(part: Any) -> str:
    """The text of a part of a message, or of an item of Responses' output, which has parts itself."""
    return string(dig(part, "text")) or "".join(string(dig(inner, "text")) for inner in _list(dig(part, "content")))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
