"""Faults by what they are good for: under a name a set of specs, to run a client once with each.

It must not know who runs what.
"""

BENIGN = (
    "crlf",
    "cr",
    "mixed:seed=1",
    "nospace",
    "multiline",
    "bom",
    "ids",
    "retry",
    "comment",
    "keepalive:style=mlx,before=3",
    "split:inside=event",
    "split:random",
    "join",
)
"""Other spellings of the same events (WHATWG HTML §9.2): a client that is right sees no difference."""

SETS: dict[str, tuple[str, ...]] = {"benign": BENIGN}
