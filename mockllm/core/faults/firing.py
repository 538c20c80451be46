"""Which requests a fault of a spec fires for: counting, and a draw that a seed decides.

It keeps nothing: the counters are the caller's, one mapping a session.
"""

from collections.abc import MutableMapping
from fnmatch import fnmatchcase
from hashlib import blake2b

from mockllm.core.faults.spec import When

Counters = MutableMapping[tuple[str, int], int]
"""By spec and by the fault's place in it: how many requests have counted."""


def fires(spec: str, place: int, when: When, path: str, counters: Counters) -> bool:
    """Does the fault at that place of the spec fire for this request? Counts the request.

    Only requests whose path (what stands before `?`) matches `when.path` count, fired or not. Of these the fault fires
    for number i (from 1) where skip < i <= skip + times, with probability p, drawn from seed and i alone.
    """
    if when.path is not None and not fnmatchcase(path.partition("?")[0], when.path):
        return False
    number = counters.get((spec, place), 0) + 1
    counters[spec, place] = number
    over = when.times is not None and number > when.skip + when.times
    return number > when.skip and not over and _drawn(when.seed, number) < when.p


def _drawn(seed: int, number: int) -> float:
    """A number from 0 to just under 1."""
    digest = blake2b(b"%d:%d" % (seed, number), digest_size=6).digest()
    return int.from_bytes(digest) / (1 << 48)
