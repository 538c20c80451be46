"""What is odd about where reads and chunks begin and end, and about time that a client cannot see."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from mockllm.core.http1 import Framing
from mockllm.core.loglines import duration
from mockllm.core.look import Look
from mockllm.core.oddities.base import Check, counted

SILENCE_US = 5_000_000
"""A silence this long is told: some clients give up then."""


def events_in_pieces(look: Look) -> Iterator[str]:
    """Events over several chunks, or reads."""
    for name, numbers in _kinds(look):
        spread = sum(numbers[span.first] != numbers[span.last] for span in look.events)
        if spread:
            yield f"{counted(spread, 'event')} over several {name}s"


def several_in_one(look: Look) -> Iterator[str]:
    """Several events in one chunk, or read."""
    for name, numbers in _kinds(look):
        per = Counter(numbers[span.last] for span in look.events)
        full = [count for count in per.values() if count > 1]
        if full:
            yield f"{counted(len(full), name)} with several events ({max(full)} at most)"


def half_characters(look: Look) -> Iterator[str]:
    """Characters of which a part came with one piece and the rest with the next."""
    for name, numbers in _kinds(look):
        pieces = [(text, number) for text, number in zip(look.decoded.pieces, numbers, strict=True) if text]
        borders = ((before, after) for (before, one), (after, other) in pairwise(pieces) if one != other)
        halves = sum(_is_inside_character(before, after) for before, after in borders)
        if halves:
            yield f"{counted(halves, 'character')} cut in two at the border of a {name}"


def unseen_time(look: Look) -> Iterator[str]:
    """Time between reads that is inside an event: no client can see it."""
    inside = [
        (span, look.pieces[span.first].at) for span in look.events if look.reads[span.first] != look.reads[span.last]
    ]
    if inside:
        total = sum(span.at - began for span, began in inside)
        yield f"{duration(total)} pass inside events: what reads lie there a client of events cannot see"


def silence(look: Look) -> Iterator[str]:
    """The longest wait, where it is long."""
    times = [0, *(at for at, _ in look.response.reads()), look.response.end_at]
    at, until = max(pairwise(times), key=lambda pair: pair[1] - pair[0])
    if until - at >= SILENCE_US:
        yield f"silence of {duration(until - at)}, {duration(at)} after the request"


def _kinds(look: Look) -> Iterator[tuple[str, list[int]]]:
    """What to count in: chunks where there are any, and reads where they are not the same."""
    if look.found.framing is Framing.CHUNKED:
        yield "chunk", look.chunks
    if look.found.framing is not Framing.CHUNKED or look.chunks != look.reads:
        yield "read", look.reads


def _is_inside_character(before: bytes, after: bytes) -> bool:
    """Does a border lie between the bytes of one UTF-8 character?"""
    if after[0] & 0xC0 != 0x80:
        return False
    start = next((place for place in range(1, min(3, len(before)) + 1) if before[-place] & 0xC0 != 0x80), 0)
    lead = before[-start] if start else 0
    return lead >= 0xC0 and start < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)


CHECKS: tuple[Check, ...] = (events_in_pieces, several_in_one, half_characters, unseen_time, silence)
