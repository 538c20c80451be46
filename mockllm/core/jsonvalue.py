"""What counts as JSON, and when two JSON values are equal.

The cassette keeps a body as a value only where nothing is lost by that, and a request matches by value: both ask here.
It must not know what the values mean.
"""

import json
import math
import re
from typing import Any

MAX_DEPTH = 100
"""Lists and objects nested deeper than this are not taken for JSON: no reader of them may run out of stack."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Possessive, and the closing quote optional: linear whatever a client sends.
_BRACKET_OR_STRING = re.compile(rb'[\[\]{}]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def parse_json(body: bytes) -> Any:
    """The value that a body holds. Raises ValueError where it is not JSON (RFC 8259) that keeps its meaning as a value.

    Refused beside bad syntax: bytes that are not UTF-8, a byte order mark, an object that has a key twice, a surrogate
    without its other half, NaN, Infinity and numbers too large for a double, integers longer than Python converts (4300
    digits), nesting beyond MAX_DEPTH. A number with a fraction or an exponent becomes the double nearest to it, as in
    JavaScript; an integer is exact.
    """
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check_depth(body)
    value = _DECODER.decode(body.decode("utf-8"))
    if _SURROGATE.search(body):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def canonical(value: Any) -> bytes:
    """Equal JSON values give equal bytes, unequal ones differ.

    The order of keys counts for nothing, that of lists does. Numbers are equal by value, so that 1 is 1.0: JavaScript
    prints both as 1, Python and Go do not. A number is never equal to true or false. `value` is what `parse_json` gave.
    """
    return _ENCODER.encode(_plain(value)).encode("utf-8")


def _plain(value: Any) -> Any:
    """The same value, with an int for every float that is one."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_depth(body: bytes) -> None:
    """Raises ValueError where brackets outside strings nest beyond MAX_DEPTH.

    Done before parsing, so that the answer does not depend on how deep the caller's own stack already is.
    """
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(body):
        first = match.group()[:1]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH}")
        elif first in b"]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
