"""Where two requests differ, as text that is safe to print: no credential, nothing that a terminal would obey.

It must not know which differences count; it is given what does.
"""

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, AnyStr

from mockllm.core.content import Content, Form, Json
from mockllm.core.multipart import Part
from mockllm.core.pointer import GONE
from mockllm.core.redact import MASK
from mockllm.core.shown import shown, shown_bytes, shown_pair

ABSENT = "absent"

NEAR = 4096
"""A text is searched for credentials so far around what is shown of it."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
# Between a name and its value: as in JSON within a string, in a query or code, or in the parts of a broken form.
_ASSIGNED = r"""(?i)((?<![a-z0-9])(?:%s)(?:[\\"'\s]{0,8}[:=]|"?\r\n\r\n)[\\"'\s]{0,8})[^\r\n]+"""
_LOOKS_SECRET = re.compile(rb"(?i)auth(?!or)|key(?![a-z])|token(?!s)|secret|cookie|passw|credential|session|signature")
_LOOKS_LIKE_CREDENTIAL = re.compile(rb"(?i)\s*(?:(?:bearer|basic|digest|negotiate|token|apikey)\s|sk-|eyJ)")


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where a request (`asked`) is not what a recording answers (`recorded`).

    `matcher`: method, path, query, headers or body. `place`: a JSON path (RFC 9535), a quoted name or a part of a form;
    empty where the matcher knows only one. The values are short, quoted or JSON, `absent`, or masked.
    """

    matcher: str
    place: str
    asked: str
    recorded: str

    def __str__(self) -> str:
        values = f"{self.asked}, recorded {self.recorded}"
        return f"{self.place} is {values}" if self.place else values


def list_difference(matcher: str, name: bytes, asked: Iterable[bytes], recorded: Iterable[bytes]) -> Difference:
    """That the values of a name differ, of a header or query parameter; those that look like credentials are masked."""
    hidden = _LOOKS_SECRET.search(name) is not None
    mine, theirs = (" and ".join(_listed(value, hidden) for value in values) for values in (asked, recorded))
    return Difference(matcher, shown_bytes(name), mine or ABSENT, theirs or ABSENT)


def _listed(value: bytes, hidden: bool) -> str:
    return MASK if hidden or _LOOKS_LIKE_CREDENTIAL.match(value) else shown_bytes(value)


def content_differences(
    asked: tuple[bytes, Content], recorded: tuple[bytes, Content], secret: Set[str]
) -> Iterator[Difference]:
    """Where two bodies differ, each given as its bytes and what counts of them; found only as far as it is read.

    `secret` are the names, in lower case, of the fields whose values are never shown.
    """
    hide = _Hider(secret)
    mine, theirs = asked[1], recorded[1]
    if isinstance(mine, Json) and isinstance(theirs, Json):
        yield from _json_differences(mine.value, theirs.value, (), hide)
    elif isinstance(mine, Form) and isinstance(theirs, Form):
        yield from _form_differences(mine, theirs, hide)
    elif isinstance(mine, Form) or isinstance(theirs, Form):
        yield Difference("body", "", _kind(*asked, hide), _kind(*recorded, hide))
    elif mine != theirs:
        yield Difference("body", "", *hide.pair(asked[0], recorded[0]))


def _kind(raw: bytes, content: Content, hide: "_Hider") -> str:
    return f"a form of {len(content.parts)} parts" if isinstance(content, Form) else hide.one(raw)


def _form_differences(asked: Form, recorded: Form, hide: "_Hider") -> Iterator[Difference]:
    for number, (mine, theirs) in enumerate(zip_longest(asked.parts, recorded.parts), 1):
        place = f"part {number}"
        if mine is None or theirs is None:
            yield Difference("body", place, _part(mine), _part(theirs))
            continue
        for what, one, other in (
            ("name", mine.name, theirs.name),
            ("filename", mine.filename, theirs.filename),
            ("type", mine.type, theirs.type),
            (f"({_part(mine)})", mine.content, theirs.content),
        ):
            if one != other:
                values = (GONE if value is None else value for value in (one, other))
                yield Difference("body", f"{place} {what}", *hide.pair(*values))


def _part(part: Part | None) -> str:
    return ABSENT if part is None else shown_bytes(part.name or b"")


def _json_differences(asked: Any, recorded: Any, steps: tuple[str | int, ...], hide: "_Hider") -> Iterator[Difference]:
    """What is not equal by `jsonvalue.canonical`, in the order of the asked value."""
    children: Iterable[tuple[str | int, Any, Any]]
    if isinstance(asked, dict) and isinstance(recorded, dict):
        children = ((name, asked.get(name, GONE), recorded.get(name, GONE)) for name in asked | recorded)
    elif isinstance(asked, list) and isinstance(recorded, list):
        children = ((i, *pair) for i, pair in enumerate(zip_longest(asked, recorded, fillvalue=GONE)))
    else:
        if not _equal(asked, recorded):
            yield Difference("body", _place(steps), *hide.under(steps, asked, recorded))
        return
    for step, mine, other in children:
        # The common case first: an equal leaf costs no generator.
        if isinstance(mine, dict | list) or not _equal(mine, other):
            yield from _json_differences(mine, other, (*steps, step), hide)


def _equal(asked: Any, recorded: Any) -> bool:
    """Whether two values are equal, where one of them is no list or object."""
    return asked is recorded or (asked == recorded and isinstance(asked, bool) == isinstance(recorded, bool))


def _place(steps: tuple[str | int, ...]) -> str:
    """A JSON path (RFC 9535): `$.messages[1].content`."""
    return "$" + "".join(map(_step, steps))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{shown(step)}]"


class _Hider:
    """Shows values without what stands under secret names, in objects and in texts that hold such a name."""

    def __init__(self, secret: Set[str]) -> None:
        self._secret = secret
        self._assigned = _ASSIGNED % "|".join(map(re.escape, sorted(secret)))

    def under(self, steps: tuple[str | int, ...], one: Any, other: Any) -> tuple[str, str]:
        """Two different values at a place in JSON."""
        if any(isinstance(step, str) and step.lower() in self._secret for step in steps):
            return ABSENT if one is GONE else MASK, ABSENT if other is GONE else MASK
        return self.pair(one, other)

    def pair(self, one: Any, other: Any) -> tuple[str, str]:
        """Two different values; of texts what is around their first difference."""
        if isinstance(one, str) and isinstance(other, str):
            return self._texts(*_clipped(one, other))
        if isinstance(one, bytes) and isinstance(other, bytes):
            return self._texts(*_clipped(one, other))
        return self.one(one), self.one(other)

    def one(self, value: Any) -> str:
        """A JSON value, bytes or GONE."""
        if value is GONE:
            return ABSENT
        if isinstance(value, bytes):
            return shown_bytes(self._hidden(value[:NEAR]))
        return shown(self._veiled(value))

    def _texts(self, one: AnyStr, other: AnyStr) -> tuple[str, str]:
        mine, theirs = self._hidden(one), self._hidden(other)
        return (MASK, MASK) if mine == theirs else shown_pair(mine, theirs)

    def _veiled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: MASK if name.lower() in self._secret else self._veiled(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._veiled(item) for item in value if item is not GONE]
        return self._hidden(value[:NEAR]) if isinstance(value, str) else value

    def _hidden(self, text: AnyStr) -> AnyStr:
        if isinstance(text, bytes):
            return re.sub(self._assigned.encode(), rb"\g<1>" + MASK.encode(), text)
        return re.sub(self._assigned, r"\g<1>" + MASK, text)


def _clipped(one: AnyStr, other: AnyStr) -> tuple[AnyStr, AnyStr]:
    """The parts of two texts from NEAR before the place where they begin to differ, at the speed of memory."""
    steps = range(0, len(one), NEAR)
    at = next((at for at in steps if one[at : at + NEAR] != other[at : at + NEAR]), len(one))
    start = max(0, at - NEAR)
    return one[start : start + 3 * NEAR], other[start : start + 3 * NEAR]
