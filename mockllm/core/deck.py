"""Which recording answers now: among those that answer a request, the next in recorded order, then the last one again.

A deck is an index that never changes and holds no bodies; how far it was played is the caller's, so that several can
play from one deck. It must not know what a recording is.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from mockllm.core.exchange import Request
from mockllm.core.matching import key, keys, path_of
from mockllm.core.rules import DEFAULT, Rules

T = TypeVar("T")

Positions = MutableMapping[bytes, int]
"""How many recordings of each key were drawn, repeats not among them. Starts empty; `Deck.draw` counts in it; never has
more items than the deck has keys."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A recording in the deck. `handle` is how the caller finds it."""

    key: bytes
    method: str
    path: bytes
    handle: T


@dataclass(frozen=True, slots=True)
class Drawn(Generic[T]):
    """What answers a request.

    `repeat`: all of its recordings were drawn before (it is exhausted), this is the last one again. That was not
    counted: a caller that refuses to play it leaves everything as it was.
    """

    handle: T
    repeat: bool


def entry(recorded: Request, handle: T, rules: Rules = DEFAULT) -> Entry[T]:
    """The entry for a recording, in a deck of the same rules."""
    return Entry(key(recorded, rules), recorded.method, path_of(recorded.target), handle)


class Deck(Generic[T]):
    """Recordings in their order, found by what they answer under the rules that their entries were made with."""

    def __init__(self, entries: Iterable[Entry[T]], rules: Rules = DEFAULT) -> None:
        self.entries = tuple(entries)
        self._rules = rules
        found: dict[bytes, list[T]] = {}
        for item in self.entries:
            found.setdefault(item.key, []).append(item.handle)
        self._handles = found

    def draw(self, asked: Request, positions: Positions) -> Drawn[T] | None:
        """The recording that answers now, counted in `positions`; None where there is none.

        Recordings of the same target and body come first, then those of any body, then those of any target. Each of
        these groups is played in its own order, and one that was played to its end repeats its last recording rather
        than give way to the next group.
        """
        return self.draw_by(keys(asked, self._rules), positions)

    def draw_by(self, names: Iterable[bytes], positions: Positions) -> Drawn[T] | None:
        """The same for a request whose keys (`matching.keys`, under the deck's rules) are known."""
        name = next((name for name in names if name in self._handles), None)
        if name is None:
            return None
        handles = self._handles[name]
        position = positions.get(name, 0)
        if position >= len(handles):
            return Drawn(handles[-1], repeat=True)
        positions[name] = position + 1
        return Drawn(handles[position], repeat=False)

    def unused(self, positions: Positions) -> list[T]:
        """The recordings that were never drawn, in order."""
        seen: Positions = {}
        left: list[T] = []
        for item in self.entries:
            place = seen.get(item.key, 0)
            seen[item.key] = place + 1
            if place >= positions.get(item.key, 0):
                left.append(item.handle)
        return left

    def candidates(self, method: str, path: bytes) -> list[Entry[T]]:
        """The recordings of a method and path (`matching.path_of`), in order."""
        return [item for item in self.entries if item.method == method and item.path == path]
