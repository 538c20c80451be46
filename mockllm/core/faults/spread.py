"""New bytes of a head in the reads that the old ones came in.

It knows neither what a head says nor what a fault is.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from mockllm.core.response import Segment

_LENGTH = re.compile(rb"(?i)(\ncontent-length[ \t]*:[ \t]*)[0-9][0-9, \t]*")


def with_length(head: Sequence[Segment], length: int) -> tuple[Segment, ...]:
    """A head with this Content-Length, where it has one."""
    return spread(head, _LENGTH.sub(rb"\g<1>%d" % length, b"".join(segment.before for segment in head)))


def spread(head: Sequence[Segment], new: bytes) -> tuple[Segment, ...]:
    """The head with these bytes: what did not change stays in its read, what is new comes in one."""
    old = b"".join(segment.before for segment in head)
    ending = _common(old[::-1], new[::-1])
    same = min(_common(old, new), len(old) - ending, len(new) - ending)
    ends = accumulate(len(segment.before) for segment in head)
    moved = [end + len(new) - len(old) if end >= len(old) - ending else min(end, same) for end in ends]
    return tuple(
        replace(segment, before=new[start:end])
        for segment, start, end in zip(head, [0, *moved], moved, strict=False)
        if end > start
    )


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two strings begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
