"""One line of a cassette as JSON, and its parts as typed values: each error says file, line, found and expected.

It knows what JSON is and how a string stands for bytes; what the lines mean is for `lines` and `cassette`.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from mockllm.core.errors import CassetteError

T = TypeVar("T")

_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number with decimals",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def plain_text(source: str, number: int, line: bytes) -> str:
    """A line without its end. Raises CassetteError where it is not UTF-8."""
    try:
        return line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x}, which is not UTF-8, at byte {error.start + 1} of the line"
        raise CassetteError(
            source, number, found, "UTF-8 text (other bytes go into data64, wire64 or base64)"
        ) from None


def decode_json(source: str, number: int, line: bytes) -> Any:
    """One line's JSON. Raises CassetteError."""
    try:
        return msgspec.json.decode(line)
    except RecursionError:
        raise CassetteError(source, number, "JSON nested too deeply", "fewer levels") from None
    except msgspec.DecodeError as error:
        plain_text(source, number, line)
        if _has_half_a_pair(line):
            expected = "both halves (a string that is not Unicode goes into data64, wire64 or base64)"
            raise CassetteError(source, number, "half of a surrogate pair in a string", expected) from None
        told = str(error).removeprefix("JSON is malformed: ")
        found = f"no JSON ({told[:1].lower()}{told[1:]})"
        raise CassetteError(source, number, found, "one JSON value a line") from None


def convert(source: str, number: int, value: Any, shape: type[T], at: str) -> T:
    """A JSON value as a typed one; `at` is where it stands. Raises CassetteError that names the place."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        told, _, path = str(error).partition(" - at `$")
        place = at + path.rstrip("`")
        if told.startswith("Object missing"):
            name = told.split("`")[1]
            raise CassetteError(source, number, f"no {shown(name)} in {place}", "one") from None
        expected, got = (_plainly(part) for part in told.removeprefix("Expected ").split(", got "))
        raise CassetteError(source, number, f"{got} at {place}", expected) from None


def text_of(source: str, number: int, value: str | Mapping[str, str]) -> bytes:
    """The bytes of a string or of {"base64": …}. Raises CassetteError."""
    if isinstance(value, str):
        return value.encode()
    if set(value) != {"base64"}:
        raise CassetteError(source, number, f"{shown(value)} for a string", 'a string or {"base64":"…"}')
    return base64_of(source, number, value["base64"], "base64")


def base64_of(source: str, number: int, text: str, what: str) -> bytes:
    """The bytes that base64 text stands for (RFC 4648 §4, padded); `what` is its name. Raises CassetteError."""
    try:
        return base64.b64decode(text.encode(), validate=True)
    except binascii.Error:
        raise CassetteError(source, number, f"{what} that cannot be decoded", "base64 with padding") from None


def flag(source: str, number: int, fields: Mapping[str, Any], key: str) -> bool:
    """A key that is true or false, and false where it is absent. Raises CassetteError."""
    value = fields.get(key, False)
    if not isinstance(value, bool):
        raise CassetteError(source, number, f"{key} that is {kind(value)}", "true or false")
    return value


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None or isinstance(value, bool):
        return shown(value)
    return {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}[type(value)]


def shown(value: Any) -> str:
    """A JSON value as it stands in a file, its beginning only."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 50 else text[:49] + "…"


def _has_half_a_pair(line: bytes) -> bool:
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _plainly(types: str) -> str:
    """msgspec's names of types in words."""
    named = re.sub(r"`([^`]*)`", lambda match: " or ".join(_NAMES[name] for name in match[1].split(" | ")), types)
    return f"a list of length {named}" if named.isdigit() else named
