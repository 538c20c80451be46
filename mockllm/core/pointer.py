"""JSON pointers (RFC 6901) that may hold a `*`, and JSON values without the places that they name.

It must not know why a place is left out.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from mockllm.core.errors import UsageError
from mockllm.core.shown import shown

Pointer = tuple[str, ...]
"""Its steps, unescaped, at least one. ANY is every index or key at its place (and the key `*` is nothing else)."""

ANY = "*"

GONE = math.nan
"""Stands where an item was taken from a list, so that those after it keep their index. No JSON value is NaN."""

_BAD_ESCAPE = re.compile(r"~(?![01])")


def parse_pointer(text: str) -> Pointer:
    """The steps of a pointer such as `/messages/*/content` (RFC 6901 §3). Raises UsageError."""
    if not text.startswith("/"):
        what = "is the whole body" if not text else "is no JSON pointer"
        raise UsageError(f"{shown(text)} {what}: write the place of a value, such as /metadata/time or /messages/*/id")
    if _BAD_ESCAPE.search(text):
        raise UsageError(f"{shown(text)} has a ~ that stands for nothing: in a JSON pointer ~0 is a ~, ~1 is a /")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def without(value: Any, pointers: Sequence[Pointer]) -> Any:
    """A JSON value without the places that pointers name, so that present and absent come out the same.

    What lies on the way is copied, the rest shared. In a list GONE stands for an item that was taken, but not at its
    end. An index is a decimal number without leading zeros (RFC 6901 §4), a `-` names none.
    """
    if not pointers or not isinstance(value, dict | list):
        return value
    if isinstance(value, dict):
        inner = ((name, item, _inside(pointers, name)) for name, item in value.items())
        return {name: without(item, rest) for name, item, rest in inner if () not in rest}
    items = []
    for index, item in enumerate(value):
        rest = _inside(pointers, str(index))
        items.append(GONE if () in rest else without(item, rest))
    while items and items[-1] is GONE:
        items.pop()
    return items


def _inside(pointers: Iterable[Pointer], step: str) -> list[Pointer]:
    """What is left of the pointers that lead through a step; an empty one ends there."""
    return [pointer[1:] for pointer in pointers if pointer[0] in (step, ANY)]
