"""The cassettes that a replay plays from: an index in memory, bodies on disk until they are played.

It knows files and what they hold, no sockets and no time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from mockllm import files
from mockllm.core.deck import Deck, Drawn, Positions, entry
from mockllm.core.exchange import Request
from mockllm.core.matching import path_of
from mockllm.core.nearest import Sketch, nearest, sketch
from mockllm.core.response import Response
from mockllm.files import Recording
from mockllm.play import Plan

MAX_PLANS = 64 * 1024 * 1024
"""Bytes of memory for the plans that are kept for the next time they are played."""
STEP_COST = 160
"""What one step of a plan takes beside its bytes: a tuple and its numbers."""


class Library:
    """Recordings in the order of their paths and places. `positions` is how far they were played.

    Raises UsageError and CassetteError when made; `warn` is told what is odd but playable.
    """

    def __init__(self, paths: Iterable[Path], warn: Callable[[str], None]) -> None:
        self.files = files.find(paths)
        self._deck = Deck(entry(_answered(request), recording) for recording, request in files.scan(self.files, warn))
        self._positions: Positions = {}
        self._sketches: dict[Recording, Sketch] = {}

    def __len__(self) -> int:
        return len(self._deck.entries)

    def draw(self, asked: Request) -> Drawn[Recording] | None:
        """The recording that answers now, or None."""
        return self._deck.draw(asked, self._positions)

    def nearest(self, asked: Request, *, same_place: bool) -> Recording | None:
        """The recording most like a request; `same_place`: only of the same method and path. Reads files: not for a
        loop.
        """
        method, path = asked.method, path_of(asked.target)
        found = self._deck.candidates(method, path)
        if not found and not same_place:
            found = list(self._deck.entries)
        return nearest(sketch(asked), ((item.handle, self._sketch(item.handle)) for item in found))

    def _sketch(self, recording: Recording) -> Sketch:
        if recording not in self._sketches:
            self._sketches[recording] = sketch(files.read_request(recording))
        return self._sketches[recording]


def _answered(recorded: Request) -> Request:
    """What a recording answers. A body whose end was never seen stands for any body: its rest is unknown."""
    return replace(recorded, body=None) if recorded.cut else recorded


class Plans:
    """The plans of recordings, made once and kept within MAX_PLANS, the latest played last to go; made anew for an
    edited file.
    """

    def __init__(self, make: Callable[[Response], Plan]) -> None:
        self._make = make
        self._kept: OrderedDict[Recording, tuple[files.Stamp, bool, Plan]] = OrderedDict()
        self._size = 0

    def get(self, recording: Recording) -> tuple[bool, Plan]:
        """Whether the recorded answer began before its request was fully sent, and the plan.

        Raises CassetteError, or MockllmError where the file is gone.
        """
        stamp = files.stamp(recording.path)
        kept = self._kept.pop(recording, None)
        if kept is not None and kept[0] == stamp:
            self._kept[recording] = kept
            return kept[1:]
        if kept is not None:
            self._size -= _cost(kept[2])
        exchange = files.read(recording)
        made = self._make(exchange.response)
        self._kept[recording] = stamp, exchange.request.early, made
        self._size += _cost(made)
        while self._size > MAX_PLANS and len(self._kept) > 1:
            _, (_, _, oldest) = self._kept.popitem(last=False)
            self._size -= _cost(oldest)
        return exchange.request.early, made


def _cost(plan: Plan) -> int:
    return len(plan.buffer) + STEP_COST * len(plan.steps)
