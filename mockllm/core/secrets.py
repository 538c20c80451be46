"""The credentials that a client sent, found by value in what comes back, in every spelling, and masked.

What is found is an exact value of 16 bytes or more, never a pattern. It must not know where values come from.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from mockllm.core.redact import MASKED
from mockllm.core.spelling import MAX_UNIT, Places, plain, spellings, unfinished

MIN_SECRET = 16
"""A shorter credential is masked only by name: it may well be a word that stands elsewhere (bytes)."""

MAX_PATTERN = 256
"""A longer credential is looked for in pieces of this length, so that little has to be held back (bytes)."""

MAX_PATTERNS = 1000
"""No more pieces than this are looked for in one exchange."""

Span = tuple[int, int, bytes]
"""Bytes start to stop of a text that are masked, and the character that masks them."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is looked for, in its plain spelling (see `spelling`). False where there is nothing."""

    patterns: tuple[bytes, ...] = ()
    _inner: frozenset[int] = field(default=frozenset(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def clear(self, text: bytes) -> bool:
        """Does no secret stand in the text, nor begin, nor an escape, at its end?"""
        return not self.open_ended(text) and not self._hits(plain(text))

    def open_ended(self, text: bytes) -> bool:
        """May a secret, or an escape, begin at the text's end? (A quick answer: at its last byte.)"""
        return text[-1] in self._inner or unfinished(text) < len(text)

    def scan(self, text: bytes) -> tuple[list[Span], int]:
        """Where secrets stand in the text so far, and from where on it may hold the beginning of one, or of an escape.

        Both depend on the text alone, not on how it came: what was found stays found when the text goes on.
        """
        stop = unfinished(text)
        form = plain(text[:stop])
        found: list[Span] = []
        keep = stop
        hits = self._hits(form)
        if hits or (form and form[-1] in self._inner):
            places = Places(text[:stop])
            for pattern in hits:
                found += _spans(form, pattern, places)
            keep = min(chain([keep], (start for start, _, _ in self._begun(form, places, len(text)))))
        return found, keep

    def spans(self, text: bytes) -> list[Span]:
        """Where secrets stand in a whole text. At its end MIN_SECRET bytes of one are enough: it was cut off there."""
        form = plain(text)
        hits = self._hits(form)
        if not hits and not (form and form[-1] in self._inner):
            return []
        places = Places(text)
        found = [span for pattern in hits for span in _spans(form, pattern, places)]
        begun = self._begun(form, places, len(text))
        return found + [(start, len(text), fill) for start, length, fill in begun if length >= MIN_SECRET]

    def cover(self, text: bytes) -> bytes:
        """A whole text with its secrets masked, each by as many bytes as it has."""
        return covered(text, self.spans(text))

    def replace(self, text: bytes) -> bytes:
        """A whole text with MASK in place of each secret, or 0 where that is but digits, so that JSON stays JSON."""
        parts: list[bytes] = []
        at = 0
        for start, stop, fill in sorted(self.spans(text)):
            if start >= at:
                parts += [text[at:start], b"0" if fill == _DIGIT else MASKED]
            at = max(at, stop)
        return b"".join([*parts, text[at:]]) if parts else text

    def _hits(self, form: bytes) -> list[bytes]:
        return [pattern for pattern in self.patterns if pattern in form]

    def _begun(self, form: bytes, places: Places, length: int) -> Iterator[tuple[int, int, bytes]]:
        """For each pattern the longest beginning of it that ends the text: where that starts, its bytes, the mask."""
        for pattern in self.patterns:
            for count in _overlaps(form, pattern):
                start = places.start(len(form) - count)
                if length - start <= MAX_UNIT * len(pattern):
                    yield start, count, _fill(pattern)
                    break


_STAR, _DIGIT = b"*", b"1"


def secrets_of(values: Iterable[bytes]) -> Secrets:
    """What to look for: those values that are long enough, in all their spellings."""
    forms = (form for value in values if len(plain(value)) >= MIN_SECRET for form in spellings(value))
    pieces = chain.from_iterable(_pieces(form) for form in forms if len(form) >= MIN_SECRET)
    patterns: dict[bytes, None] = {}
    for piece in pieces:
        patterns[piece] = None
        if len(patterns) == MAX_PATTERNS:
            break
    return Secrets(tuple(patterns), frozenset(byte for pattern in patterns for byte in pattern[:-1]))


def covered(text: bytes, spans: list[Span]) -> bytes:
    """A text with masks over spans of it; where they overlap, stars win."""
    if not spans:
        return text
    masked = bytearray(text)
    for start, stop, fill in sorted(spans, key=lambda span: span[2], reverse=True):
        masked[start:stop] = fill * (stop - start)
    return bytes(masked)


def _spans(form: bytes, pattern: bytes, places: Places) -> Iterator[Span]:
    """Every place of a pattern, also those that overlap."""
    at = form.find(pattern)
    while at >= 0:
        start, stop = places.start(at), places.stop(at + len(pattern) - 1)
        if stop - start <= MAX_UNIT * len(pattern):
            yield start, stop, _fill(pattern)
        at = form.find(pattern, at + 1)


def _overlaps(form: bytes, pattern: bytes) -> Iterator[int]:
    """How many bytes of a pattern, but not all, a text ends with: every answer, the largest first."""
    tail = form[-(len(pattern) - 1) :]
    at = tail.find(pattern[:1])
    while at >= 0:
        if pattern.startswith(tail[at:]):
            yield len(tail) - at
        at = tail.find(pattern[:1], at + 1)


def _pieces(form: bytes) -> Iterator[bytes]:
    """A long form cut up; the last piece overlaps where it would be too short."""
    for start in range(0, len(form), MAX_PATTERN):
        piece = form[start : start + MAX_PATTERN]
        yield piece if len(piece) >= MIN_SECRET else form[-MIN_SECRET:]


def _fill(pattern: bytes) -> bytes:
    """A number stays a number."""
    return _DIGIT if pattern.removeprefix(b"-").isdigit() else _STAR
