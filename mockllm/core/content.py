"""What counts of a request's body: a JSON value, the parts of a form, or bytes, without what the rules leave out.

It must not know what a body is compared with.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from mockllm.core.exchange import Request, header
from mockllm.core.jsonvalue import parse_json
from mockllm.core.multipart import Part, parse_multipart
from mockllm.core.pointer import without
from mockllm.core.rules import Rules


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value; `pointer.GONE` stands where an item was taken from a list."""

    value: Any


@dataclass(frozen=True, slots=True)
class Form:
    """The parts of a multipart body."""

    parts: tuple[Part, ...]


Content = Json | Form | bytes

_NESTED = frozenset({dict, list})


def content_of(request: Request, body: bytes, rules: Rules) -> Content:
    """What counts of a body that came with a request's headers. What is neither multipart nor JSON is bytes.

    Only forms and JSON have places, so only there are credentials and ignored places left out.
    """
    secret = rules.secrets.fields
    try:
        parts = parse_multipart(header(request.headers, b"content-type") or b"", body)
        return Form(tuple(part for part in parts if not _is_secret_part(part, secret)))
    except ValueError:
        pass
    try:
        return Json(without(without_secrets(parse_json(body), secret), rules.ignore))
    except ValueError:
        return body


def without_secrets(value: Any, secret: Set[str]) -> Any:
    """A JSON value without the fields of secret names (in lower case). The value given stays as it was.

    An object under such a name stays: it is no credential, but describes one (the JSON schema of a tool's parameter).
    """
    if isinstance(value, dict):
        kept = {}
        for name, item in value.items():  # every request comes through here: a call for each leaf would double the time
            if isinstance(item, dict):
                kept[name] = without_secrets(item, secret)
            elif name.lower() not in secret:
                kept[name] = without_secrets(item, secret) if isinstance(item, list) else item
        return kept
    if isinstance(value, list) and not _NESTED.isdisjoint(map(type, value)):
        return [without_secrets(item, secret) for item in value]
    return value


def _is_secret_part(part: Part, secret: Set[str]) -> bool:
    return part.name is not None and part.name.decode(errors="replace").lower() in secret
