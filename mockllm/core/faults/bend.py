"""Applies faults to a response, one after another, and says what each of them did.

It decides nothing about requests: which faults fire is `firing`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mockllm.core.faults.base import Fault, Meaningless
from mockllm.core.response import Response


@dataclass(frozen=True, slots=True)
class Bent:
    """The response, and for each fault None where it had an effect, else why it had none."""

    response: Response
    idle: tuple[str | None, ...]


def bend(response: Response, faults: Sequence[Fault]) -> Bent:
    """Left to right, each on what the one before it gave."""
    idle: list[str | None] = []
    for fault in faults:
        try:
            bent = fault(response)
        except Meaningless as reason:
            idle.append(str(reason))
            continue
        idle.append("it changes nothing here" if bent == response else None)
        response = bent
    return Bent(response, tuple(idle))
