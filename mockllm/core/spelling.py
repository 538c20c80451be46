"""A text in one spelling, whichever it has in a stream: raw, JSON-escaped (also in JSON within JSON), or
percent-encoded (also twice).

It tells where each byte came from, and must not know what is looked for.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from urllib.parse import quote

_CODED = re.compile(rb"\\u00([0-7][0-9A-Fa-f])|%(?:25){0,2}([0-7][0-9A-Fa-f])")
_UNIT = re.compile(_CODED.pattern + rb"|\\")
_UNFINISHED = re.compile(rb"(?:\\{1,8}(?:u(?:0(?:0[0-7]?)?)?)?|%(?:25){0,2}[0-7]?)\Z")
_ESCAPED_HEX = re.compile(rb"(?<=\\u)[0-9a-f]{4}")
_PERCENT_HEX = re.compile(rb"(?<=%)[0-9A-F]{2}")

MAX_BACKSLASHES = 8
"""So many backslashes in front of a character are taken for a part of its escape: JSON three levels deep."""

MAX_UNIT = MAX_BACKSLASHES + len("u0041")
"""The longest spelling of one byte."""


def plain(text: bytes) -> bytes:
    """The text with escapes of ASCII characters decoded, and without any backslash: so its spellings become equal.

    A character beyond ASCII stays as it is spelled; `spellings` gives all its forms.
    """
    if b"\\u00" in text or b"%" in text:
        text = _CODED.sub(_decoded, text)
    return text.replace(b"\\", b"") if b"\\" in text else text


def spellings(value: bytes) -> Iterator[bytes]:
    """The plain forms that a value may have in a stream: one, where it is printable ASCII without a space and a `%`."""
    yield plain(value)
    if b" " in value:
        yield plain(value.replace(b" ", b"+"))  # in a form or a query (WHATWG URL §5.1)
    if value.isascii() and b"%" not in value and value.decode().isprintable():
        return
    texts = [value.decode("latin-1"), value.decode(errors="replace")]  # servers do either
    coded = [value, *(text.encode() for text in texts)]
    percent = [quote(form, safe="").encode() for form in coded]
    percent += [b"".join(b"%%%02X" % byte for byte in form) for form in coded]
    percent += [form.replace(b"%20", b"+") for form in percent]
    escaped = [json.dumps(text).encode()[1:-1] for text in texts]
    readable = [json.dumps(text, ensure_ascii=False).encode()[1:-1] for text in texts]
    for form in (*coded, *escaped, *readable, *percent):
        yield plain(form)
    yield from (plain(_ESCAPED_HEX.sub(lambda match: match[0].upper(), form)) for form in escaped)
    yield from (plain(_PERCENT_HEX.sub(lambda match: match[0].lower(), form)) for form in percent)


def unfinished(text: bytes) -> int:
    """Where the escape begins that a text ends in the midst of; the text's length where it does not."""
    tail = text[-MAX_UNIT:]
    if b"\\" in tail or b"%" in tail:
        found = _UNFINISHED.search(tail)
        if found:
            return len(text) - len(tail) + found.start()
    return len(text)


class Places:
    """Where in a text the bytes of its plain form stand."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at: list[int] = []  # where each piece begins in the plain form
        self._pieces: list[tuple[int, int, bool]] = []  # where it stands in the text, and whether it is one escape
        at = last = 0
        for unit in _UNIT.finditer(text):
            at = self._add(at, last, unit.start(), escape=False)
            last = unit.end()
            if unit[0] != b"\\" and _decoded(unit) != b"\\":
                at = self._add(at, unit.start(), last, escape=True)
        self._add(at, last, len(text), escape=False)

    def start(self, index: int) -> int:
        """Where the spelling of the byte at an index of the plain form begins, with the backslashes that belong to it.

        Those are all before a quote, a slash or another escape; else one where their number is odd.
        """
        at, (start, _, escape) = self._piece(index)
        start += 0 if escape else index - at
        lead = self._text[start : start + 1]
        limit = start - MAX_BACKSLASHES + (lead == b"\\")
        first = start
        while first > limit and self._text[first - 1 : first] == b"\\":
            first -= 1
        return first if lead in (b'"', b"/", b"\\") else start - (start - first) % 2

    def stop(self, index: int) -> int:
        """Where the spelling of that byte ends."""
        at, (start, stop, escape) = self._piece(index)
        return stop if escape else start + index - at + 1

    def _add(self, at: int, start: int, stop: int, *, escape: bool) -> int:
        if start == stop:
            return at
        self._at.append(at)
        self._pieces.append((start, stop, escape))
        return at + (1 if escape else stop - start)

    def _piece(self, index: int) -> tuple[int, tuple[int, int, bool]]:
        number = bisect_right(self._at, index) - 1
        return self._at[number], self._pieces[number]


def _decoded(match: "re.Match[bytes]") -> bytes:
    return bytes.fromhex((match[1] or match[2]).decode())
