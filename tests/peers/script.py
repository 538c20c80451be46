"""What a scripted server does after a request: a list of steps, performed in order.

A script without an ending keeps the connection open and waits for the next request. Steps are values; `server`
performs them.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

GAP_MS = 5.0
"""Two sends that follow each other without a wait are this far apart, so that they arrive as two reads."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes in one write."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so long; what the client sends and whether it leaves is seen meanwhile. 0 turns off GAP_MS."""

    ms: float


@dataclass(frozen=True, slots=True)
class Until:
    """Do nothing until the event is set, the client has reset the connection or the server is being stopped."""

    event: threading.Event


@dataclass(frozen=True, slots=True)
class ReadRest:
    """Read what is still missing of the request; only of use on a server that answers early."""


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Send a FIN, go on reading: shows when and how the other side closes."""


@dataclass(frozen=True, slots=True)
class Fin:
    """Close the connection; the script ends here."""


@dataclass(frozen=True, slots=True)
class Rst:
    """Reset the connection (linger 0); what was not yet sent is lost. The script ends here."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence until the client leaves; the script ends here."""


Step = Send | Wait | Until | ReadRest | HalfClose | Fin | Rst | Hang
Script = Sequence[Step]
Answers = Callable[[bytes], Script] | Sequence[Script]
"""A function from the request's bytes to a script, or the scripts for the first request, the second and so on."""


class Lockstep:
    """Pieces that are sent one by one, each when the client has read all of those before: distinct reads, no sleeps.

    `RawServer([[*lockstep.steps, Fin()]])` with `RawClient(…, on_read=lockstep.on_read)`; what stands between the two
    must pass on every byte.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._totals = list(accumulate(len(piece) for piece in pieces))
        self._events = [threading.Event() for _ in pieces]
        self.steps: list[Step] = []
        for piece, event in zip(pieces, self._events, strict=True):
            self.steps += [Send(piece), Until(event)]

    def on_read(self, total: int) -> None:
        """Tell that the client has `total` bytes of the answer."""
        for needed, event in zip(self._totals, self._events, strict=True):
            if needed <= total:
                event.set()
