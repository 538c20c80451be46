"""The fault language: `crlf+cut:at=3ev,end=rst` to steps and back (docs/faults.md).

It reads a fault's keys off its fields, so a new fault needs nothing here. It plays nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote_to_bytes

from mockllm.core.errors import UsageError
from mockllm.core.faults.base import Fault, Micros, Position, Unit, key_name, keys_of

NONE = "none"
_UNITS = {"us": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m)")
_POSITION = re.compile(r"([0-9]+)(ev|b)|([0-9]+(?:\.[0-9]+)?)(pct)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PLAIN = "!#$&'()*-./:;<=>?@[]^_`{|}~"  # all that needs no percent-encoding in a value
_MAX = 10**15
"""No number in a spec is larger: thirty years in µs."""


class SpecError(UsageError):
    """A fault spec that cannot be read; the text says where, what was expected and what is nearest."""

    kind = "mockllm_bad_fault"

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"fault spec, character {position + 1}: {message}")
        self.position = position


@dataclass(frozen=True, slots=True)
class When:
    """For which requests a fault fires: for number i (from 1) with skip < i <= skip + times, there with probability
    `p`.

    Only requests whose path matches `path` (a shell pattern) are counted. `seed` decides all that is random.
    """

    times: int | None = None
    skip: int = 0
    p: float = 1.0
    seed: int = 0
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a spec and when it fires."""

    fault: Fault
    when: When = field(default_factory=When)


Spec = tuple[Step, ...]
Catalogue = Mapping[str, type[Fault]]


def parse(text: str, catalogue: Catalogue) -> Spec:
    """The steps of a spec, those after the last `none`. Raises SpecError."""
    steps: list[Step] = []
    position = 0
    for part in text.split("+") if text else []:
        if part == NONE:
            steps.clear()
        else:
            steps.append(_step(part, position, catalogue))
        position += len(part) + 1
    return tuple(steps)


def render(spec: Spec) -> str:
    """The spec as text; `parse` gives the same steps back."""
    return "+".join(map(_rendered, spec)) or NONE


def join(specs: Sequence[str]) -> str:
    """Several specs of one source as one."""
    return "+".join(spec for spec in specs if spec)


def _step(text: str, position: int, catalogue: Catalogue) -> Step:
    name, _, rest = text.partition(":")
    fault = catalogue.get(name)
    if name == NONE:
        raise SpecError(position + len(name), f"{NONE} takes no keys")
    if fault is None:
        found = f"unknown fault {name!r}" if name else "nothing where a fault was expected"
        raise SpecError(position, f"{found}{nearest(name, [*catalogue, NONE])}")
    items, hints = keys_of(fault), get_type_hints(fault)
    own: dict[str, Any] = {}
    reserved: dict[str, Any] = {}
    position += len(name) + 1
    seen: set[str] = set()
    for part in rest.split(",") if rest else []:
        key, equals, raw = part.partition("=")
        if key in seen:
            raise SpecError(position, f"{name} has {key} twice")
        seen.add(key)
        if key in items:
            own[items[key].name] = _value(raw, equals, items[key], hints[items[key].name], position)
        elif key in _RESERVED:
            reserved[key] = _reserved(key, raw, position)
        else:
            found = f"{name} has no key {key!r}" if key else "nothing where a key was expected"
            raise SpecError(position, f"{found}{nearest(key, [*items, *_RESERVED])}")
        position += len(part) + 1
    missing = [key for key, item in items.items() if item.default is MISSING and key not in seen]
    if missing:
        raise SpecError(position - 1, f"{name} needs {missing[0]}=, such as {fault.example}")
    if "seed" in own:
        reserved["seed"] = own["seed"]
    return Step(_made(fault, own, position), When(**reserved))


def _made(fault: type[Fault], own: dict[str, Any], position: int) -> Fault:
    try:
        return fault(**own)
    except ValueError as error:  # keys that are fine each and make no sense together
        raise SpecError(position - 1, f"{fault.name}: {error}") from None


def _value(raw: str, equals: str, item: "Field[Any]", hint: Any, position: int) -> Any:
    choices = _choices(hint)
    if bool in choices:
        if equals:
            raise SpecError(position, f"{key_name(item)} is a flag, it takes no value")
        return True
    if not equals:
        raise SpecError(position, f"{key_name(item)} needs a value: {_expected(item, hint)}")
    text = decode(raw, position + len(key_name(item)) + 1)
    for choice in choices:
        value = _converted(text, choice, item.metadata.get("unit"))
        if value is not None:
            return value
    words = [word for choice in choices if get_origin(choice) is Literal for word in get_args(choice)]
    near = _close(text, words)
    nearest = f"; the nearest is {near!r}" if near else ""
    raise SpecError(position, f"{key_name(item)}={text!r}; expected {_expected(item, hint)}{nearest}")


def decode(raw: str, position: int) -> str:
    """A value, percent-decoded once. Raises SpecError."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeError:
        raise SpecError(position, "a value that is not UTF-8 once it is percent-decoded") from None


def _choices(hint: Any) -> list[Any]:
    """The kinds of value that a key takes, in the order in which they are tried."""
    if get_origin(hint) is Literal or not get_args(hint):
        return [hint]
    return [choice for choice in get_args(hint) if choice is not type(None)]


def _converted(text: str, kind: Any, unit: str | None) -> Any:
    if get_origin(kind) is Literal:
        return text if text in get_args(kind) else None
    if kind is Micros:
        return duration(text, unit)
    if kind is Position:
        return position_of(text)
    if kind is str:
        return text
    if not _NUMBER.fullmatch(text) or (kind is int and "." in text) or float(text) > _MAX:
        return None
    return kind(float(text))  # exact up to _MAX, however many zeros it is written with


def duration(text: str, unit: str | None = None) -> Micros | None:
    """A duration as µs, or None. A bare number is one only with the unit that the key names."""
    found = _DURATION.fullmatch(text + unit if unit and _NUMBER.fullmatch(text) else text)
    if found is None or float(found[1]) * _UNITS[found[2]] > _MAX:
        return None
    return Micros(round(float(found[1]) * _UNITS[found[2]]))


def position_of(text: str) -> Position | None:
    """`3ev`, `12b`, `50pct` or a time such as `2s`; None if it is none of them."""
    found = _POSITION.fullmatch(text)
    if found is not None and found[1]:
        return Position(Unit(found[2]), int(float(found[1]))) if float(found[1]) <= _MAX else None
    if found is not None:
        return Position(Unit.PERCENT, float(found[3])) if float(found[3]) <= 100 else None
    time = duration(text)
    return None if time is None else Position(Unit.TIME, time)


_KINDS: dict[Any, str] = {
    Position: "3ev, 12b, 50pct or a time such as 2s",
    str: "a text",
    int: "a whole number",
    float: "a number",
}


def _expected(item: "Field[Any]", hint: Any) -> str:
    unit = item.metadata.get("unit")
    named = {**_KINDS, Micros: f"a duration such as 250ms{f', or a number of {unit}' if unit else ''}"}
    told = [", ".join(get_args(c)) if get_origin(c) is Literal else named[c] for c in _choices(hint)]
    return " or ".join(told)


def _reserved(key: str, raw: str, position: int) -> Any:
    text = decode(raw, position + len(key) + 1)
    kind, expected = _RESERVED[key]
    value = _converted(text, kind, None)
    if value is None or (key == "p" and value > 1):
        raise SpecError(position, f"{key}={text!r}; expected {expected}")
    return value


_RESERVED: dict[str, tuple[Any, str]] = {
    "times": (int, "a whole number of requests"),
    "skip": (int, "a whole number of requests"),
    "p": (float, "a probability from 0 to 1"),
    "seed": (int, "a whole number"),
    "path": (str, "a path or a pattern such as /v1/*"),
}


def nearest(name: str, names: Sequence[str]) -> str:
    near = _close(name, names)
    return f"; the nearest is {near!r}" if near else f"; there are {', '.join(sorted(names))}"


def _close(name: str, names: Sequence[str]) -> str | None:
    return next(iter(get_close_matches(name.lower(), names, 1)), None)


def _rendered(step: Step) -> str:
    fault, when = step.fault, step.when
    items, hints = keys_of(type(fault)), get_type_hints(type(fault))
    shown = []
    for key, item in items.items():
        value = getattr(fault, item.name)
        if value != item.default:
            shown.append(key if value is True else f"{key}={shown_value(value, hints[item.name])}")
    for key, (kind, _) in _RESERVED.items():
        value = getattr(when, key)
        if key not in items and value != getattr(When(), key):
            shown.append(f"{key}={shown_value(value, kind)}")
    return f"{fault.name}:{','.join(shown)}" if shown else fault.name


def shown_value(value: Any, hint: Any) -> str:
    """A key's value as it is written in a spec."""
    if isinstance(value, Position):
        timed = value.unit is Unit.TIME
        return duration_text(int(value.value)) if timed else f"{_number(value.value)}{value.unit.value}"
    if isinstance(value, str):
        return quote(value, safe=_PLAIN)
    return duration_text(value) if Micros in _choices(hint) else _number(value)


def duration_text(microseconds: int) -> str:
    """µs in the largest unit that keeps them whole."""
    if not microseconds:
        return "0s"
    unit = next(unit for unit in ("m", "s", "ms", "us") if microseconds % _UNITS[unit] == 0)
    return f"{microseconds // _UNITS[unit]}{unit}"


def _number(value: float) -> str:
    return f"{Decimal(repr(value)):f}".removesuffix(".0")
