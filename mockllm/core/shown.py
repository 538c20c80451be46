"""Values of others on one line for a person: short, quoted, and without a character that a terminal would obey.

It must not know where the line goes.
"""

import json
from typing import Any, AnyStr

WIDTH = 60
"""A value is cut to about so many characters."""

LEAD = 20
"""So many of them stand before the place where two values begin to differ."""

_CUT = "…"


def escaped(text: str) -> str:
    r"""The text with every character that does not print (controls, bidi marks, line separators) as `\uXXXX`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def shown(value: Any) -> str:
    """A JSON value as JSON, cut to WIDTH."""
    if isinstance(value, str):
        return _window(value, 0)
    text = json.dumps(value, ensure_ascii=False)
    return escaped(text[:WIDTH]) + (_CUT if len(text) > WIDTH else "")


def shown_bytes(value: bytes) -> str:
    r"""Bytes as a quoted text cut to WIDTH; what is not UTF-8 as `\\xNN`."""
    return _window(value, 0)


def shown_pair(one: Any, other: Any) -> tuple[str, str]:
    """Two different JSON values, or two different byte strings; texts are cut around where they begin to differ."""
    if isinstance(one, str) and isinstance(other, str):
        at = _first_difference(one, other)
        return _window(one, at), _window(other, at)
    if isinstance(one, bytes) and isinstance(other, bytes):
        at = _first_difference(one, other)
        return _window(one, at), _window(other, at)
    return shown(one), shown(other)


def _window(text: str | bytes, at: int) -> str:
    """The part of a text that has `at` in it, quoted."""
    start = at - LEAD if at > WIDTH - LEAD else 0
    piece = text[start : start + WIDTH]
    if isinstance(piece, bytes):
        piece = piece.decode("utf-8", "backslashreplace")
    quoted = escaped(json.dumps(piece, ensure_ascii=False)[1:-1])
    return f'"{_CUT if start else ""}{quoted}{_CUT if start + WIDTH < len(text) else ""}"'


def _first_difference(one: AnyStr, other: AnyStr) -> int:
    """The index at which two different texts begin to differ, found by halving: at the speed of memory."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
