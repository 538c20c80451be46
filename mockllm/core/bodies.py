"""Hides credentials in a request's body: by the names of JSON fields and parts of forms, or at places in its JSON.

It must not know heads, nor what becomes of the values that it hides.
"""

import json
import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

from mockllm.core.jsonvalue import parse_json
from mockllm.core.pointer import ANY, Pointer
from mockllm.core.redact import MASK, MASKED, decoded, redact_pairs, secret_pairs

_PART = re.compile(rb"\n(?i:content-disposition):([^\r\n]*+)\r?\n(?:[^\r\n]++\r?\n){0,20}+\r?\n")
_PARAMETER = re.compile(rb';[ \t]*+([^=;" \t]++)=(?:"([^"]*+)"?|([^;"]*+))')
_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_FIELD = re.compile(rb'(?s)("(%b)"\s*+:\s*+")(%b)' % (_STRING, _STRING))


class Hider:
    """Hides what stands under `names` (of fields, in lower case) and at `places`.

    `found` are the values hidden, each with the name that it stood under.
    """

    def __init__(self, names: Set[str], places: Sequence[Pointer]) -> None:
        self.found: list[tuple[str, bytes]] = []
        self._names, self._places = names, places
        self._changed = False

    def hide(self, content_type: bytes, body: bytes) -> bytes:
        """The body with MASK for what is hidden; JSON is spelled anew where that is anything, forms stay as they are.

        An object under a secret name is no credential: it describes one (the JSON schema of a tool's parameter). What
        is neither JSON nor a form is searched for `"name": "value"`.
        """
        kind = content_type.partition(b";")[0].strip().lower()
        if kind.startswith(b"multipart/"):
            return self._parts(body)
        if kind == b"application/x-www-form-urlencoded":
            names = frozenset(name.encode() for name in self._names)
            found = secret_pairs(body, names)
            self.found += ((name.decode(), form) for name, value in found for form in (value, decoded(value)))
            return redact_pairs(body, names)
        try:
            value = parse_json(body)
        except ValueError:
            return _FIELD.sub(self._field, body)
        hidden = self._json(value, self._places)
        return json.dumps(hidden, ensure_ascii=False, separators=(",", ":")).encode() if self._changed else body

    def _parts(self, body: bytes) -> bytes:
        hidden: list[bytes] = []
        at = 0
        for head in _PART.finditer(body):
            if head.end() < at:  # it stands in a value that is hidden
                continue
            stop = body.find(b"\n--", head.end() - 1)
            value = body[head.end() : len(body) if stop < 0 else stop].removesuffix(b"\r")
            told = {name.lower(): quoted or token for name, quoted, token in _PARAMETER.findall(head[1])}
            hidden += [body[at : head.end()], self._value(told.get(b"name", b""), value)]
            at = head.end() + len(value)
        return b"".join([*hidden, body[at:]])

    def _field(self, match: "re.Match[bytes]") -> bytes:
        before, name, value = match.groups()
        return before + self._value(name, value)

    def _value(self, name: bytes, value: bytes) -> bytes:
        told = name.decode(errors="replace")
        if told.lower() not in self._names or value in (b"", MASKED):
            return value
        self.found.append((told, value))
        return MASKED

    def _json(self, value: Any, places: Sequence[Pointer]) -> Any:
        if isinstance(value, dict):
            return {name: self._item(item, name, _inside(places, name)) for name, item in value.items()}
        if isinstance(value, list):
            if not places and not any(isinstance(item, dict | list) for item in value):
                return value
            return [self._item(item, str(index), _inside(places, str(index))) for index, item in enumerate(value)]
        return value

    def _item(self, value: Any, name: str, places: Sequence[Pointer]) -> Any:
        secret = name.lower() in self._names and not isinstance(value, dict | bool | None)
        if not secret and () not in places:
            return self._json(value, places) if isinstance(value, dict | list) else value
        if value in (MASK, "", []):
            return value
        self._changed = True
        self.found += ((name, part) for part in _strings(value))
        return MASK


def _inside(places: Sequence[Pointer], step: str) -> Sequence[Pointer]:
    """What is left of the places that lead through a step; an empty one ends there."""
    return [place[1:] for place in places if place[0] in (step, ANY)] if places else ()


def _strings(value: Any) -> Iterator[bytes]:
    """The strings and numbers in a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
    elif not isinstance(value, bool | None):
        yield str(value).encode()
