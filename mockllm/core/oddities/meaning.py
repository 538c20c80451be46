"""What is odd about what a stream says: errors inside a success, no end, nulls, what follows the end."""

from collections.abc import Iterator
from typing import Any

from mockllm.core.dialects import Meaning, family, meaning, text
from mockllm.core.dialects.base import dig, string
from mockllm.core.look import Look
from mockllm.core.oddities.base import Check, counted
from mockllm.core.saying import error_of
from mockllm.core.shown import escaped, shown_bytes

_ENDS = {
    "anthropic": "message_stop",
    "responses": "response.completed",
    "ollama": '"done":true',
    "llama": '[DONE] or "stop":true',
    "gemini": None,
}


def error_in_success(look: Look) -> Iterator[str]:
    """A 200 whose body, or one of whose events, is an error."""
    head = look.found.head
    if head is None or not 200 <= head.status < 300:
        return
    errors = [error for value in look.values if (error := error_of(value)) is not None]
    if errors:
        words = f": {escaped(errors[0])}" if errors[0] else ""
        yield f"an error inside a {head.status}{words}"


def no_end(look: Look) -> Iterator[str]:
    """A stream that closed without its protocol's own end."""
    if not look.events or any(Meaning.DONE in meaning(span.event) for span in look.events):
        return
    name = _ENDS.get(family(look.response.target, look.stream_type, [span.event for span in look.events]), "[DONE]")
    if name is not None:
        yield f"no {name} at the end"


def no_reason(look: Look) -> Iterator[str]:
    """Text without a reason why it stops."""
    says = [meaning(span.event) for span in look.events]
    spoke = any(Meaning.TEXT in what for what in says)
    if spoke and not any(what & (Meaning.FINISH | Meaning.ERROR) for what in says):
        yield "no reason why the text stops (finish_reason)"


def reasons(look: Look) -> Iterator[str]:
    """More than one reason for a choice."""
    seen: dict[Any, int] = {}
    for value in look.values:
        for choice in _choices(value):
            if dig(choice, "finish_reason"):
                index = str(dig(choice, "index"))
                seen[index] = seen.get(index, 0) + 1
    twice = max(seen.values(), default=0)
    if twice > 1:
        yield f"the same choice finishes {twice} times"


def after_the_end(look: Look) -> Iterator[str]:
    """Events after the protocol's end."""
    ends = [index for index, span in enumerate(look.events) if Meaning.DONE in meaning(span.event)]
    more = len(look.events) - ends[0] - 1 if ends else 0
    if more:
        yield f"{counted(more, 'event')} after the protocol's end"


def pings(look: Look) -> Iterator[str]:
    """Heartbeats that are events."""
    count = sum(Meaning.PING in meaning(span.event) for span in look.events)
    if count:
        yield (
            f"{counted(count, 'ping')} as an event of its own"
            if count == 1
            else f"{count} pings as events of their own"
        )


def no_json(look: Look) -> Iterator[str]:
    """Data that are no JSON."""
    found = [span.event.data for span in look.events if _is_no_json(span.event.data, span.event.json())]
    if found:
        yield f"{counted(len(found), 'event')} whose data are no JSON: {shown_bytes(found[0])}"


def _is_no_json(data: bytes, value: Any) -> bool:
    return value is None and data not in (b"", b"[DONE]", b"null")


def nulls(look: Look) -> Iterator[str]:
    """`null` where clients look for an object or a list."""
    if look.stream_type is None:
        return
    names = []
    for span in look.events:
        names += ["data"] if span.event.data == b"null" else []
        for choice in _choices(span.event.json()):
            names += ["delta"] if isinstance(choice, dict) and choice.get("delta", 0) is None else []
            names += ["tool_calls"] if _is_null(dig(choice, "delta"), "tool_calls") else []
    for name in dict.fromkeys(names):
        yield f"{name} is null in {counted(names.count(name), 'event')}"


def choices(look: Look) -> Iterator[str]:
    """Empty lists of choices, and choices without a delta."""
    if look.stream_type is None:
        return
    empty = [value for value in look.values if isinstance(value, dict) and value.get("choices") == []]
    if empty:
        usage = all(isinstance(dig(value, "usage"), dict) for value in empty)
        yield f"choices is empty in {counted(len(empty), 'event')}{' (with usage)' if usage else ''}"
    bare = sum(
        isinstance(choice, dict) and not {"delta", "text", "message"} & choice.keys()
        for value in look.values
        for choice in _choices(value)
    )
    if bare:
        yield f"{counted(bare, 'choice')} without a delta"


def roles(look: Look) -> Iterator[str]:
    """The role in more than one delta."""
    count = sum(bool(dig(choice, "delta", "role")) for value in look.values for choice in _choices(value)[:1])
    if count > 1:
        yield f"the role is in {count} deltas"


def tool_calls(look: Look) -> Iterator[str]:
    """Tool calls that a client which joins them by index takes for one."""
    ids: dict[tuple[str, str], set[str]] = {}
    for choice in (choice for value in look.values for choice in _choices(value)):
        for call in _list(dig(choice, "delta", "tool_calls")):
            if name := string(dig(call, "id")):
                ids.setdefault((str(dig(choice, "index")), str(dig(call, "index"))), set()).add(name)
    shared = sum(len(names) > 1 for names in ids.values())
    if shared:
        yield f"tool calls with different ids share {counted(shared, 'index', 'indexes')}"


def half_surrogates(look: Look) -> Iterator[str]:
    r"""Halves of a character in two events (`\ud83c`, then `\udf89`)."""
    count = sum(any(0xD800 <= ord(char) < 0xE000 for char in text(span.event)) for span in look.events)
    if count:
        yield f"half a character (a lone surrogate) in the text of {counted(count, 'event')}"


def _choices(value: Any) -> list[Any]:
    return _list(dig(value, "choices"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_null(value: Any, key: str) -> bool:
    return isinstance(value, dict) and key in value and value[key] is None


CHECKS: tuple[Check, ...] = (
    error_in_success,
    no_end,
    no_reason,
    reasons,
    after_the_end,
    pings,
    no_json,
    nulls,
    choices,
    roles,
    tool_calls,
    half_surrogates,
)
