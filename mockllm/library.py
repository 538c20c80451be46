"""The cassettes that a replay plays from: an index in memory, bodies on disk until they are played.

What changes on disk while it plays is seen: an edited file at the request that it answers, a new one within a second.
It knows files and what they hold, no sockets and no clock.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mockllm import files
from mockllm.core.deck import Deck, Drawn, Entry, Positions, entry
from mockllm.core.errors import CassetteError, MockllmError
from mockllm.core.exchange import Request
from mockllm.core.matching import path_of
from mockllm.core.nearest import Sketch, nearest, sketch
from mockllm.core.rules import DEFAULT, Rules
from mockllm.files import Recording, Stamp

LOOK_US = 500_000
"""How often the folders are looked at for new files (µs), while requests come."""


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A file's recordings, as it was with that stamp. `early` are those that answer before the body is there."""

    stamp: Stamp
    entries: tuple[Entry[Recording], ...]
    early: frozenset[Recording] = frozenset()


_UNREADABLE = _Indexed((-1, -1), ())
"""No file has that stamp: it is tried again whenever edits are looked for."""


class Library:
    """Recordings in the order of their paths and places.

    Raises UsageError (unless `empty_ok`) and CassetteError when made; `warn` is told what is odd but playable, and
    later, once, what cannot be read.
    """

    def __init__(
        self, paths: Iterable[Path], warn: Callable[[str], None], rules: Rules = DEFAULT, *, empty_ok: bool = False
    ) -> None:
        self.rules = rules
        self._paths, self._warn = tuple(paths), warn
        self._watched = files.changes(files.folders(self._paths))
        self._files = {path: self._index(path) for path in files.find(self._paths, missing_ok=empty_ok)}
        self._looked = 0
        self._complaints: dict[Path, str] = {}
        self._sketches: dict[Recording, Sketch] = {}
        self._deal()

    def answers_early(self, method: str, target: bytes) -> bool:
        """Do all recordings of a method and path answer before the request's body is there, whatever it is?"""
        found = self.deck.candidates(method, path_of(target)) if self._early else []
        return bool(found) and all(item.handle in self._early for item in found)

    def __len__(self) -> int:
        return len(self.deck.entries)

    @property
    def files(self) -> list[Path]:
        """The files, in order."""
        return list(self._files)

    def draw(self, keys: Sequence[bytes], positions: Positions, now: int) -> Drawn[Recording] | None:
        """The recording that answers a request of these keys now (µs), counted in `positions`; None where there is
        none.

        Raises CassetteError where the file that answers was edited and cannot be read.
        """
        if now - self._looked > LOOK_US:
            self._looked = now
            if self._look_for_new():
                self._deal()
        while True:
            found = self.deck.draw_by(keys, ChainMap({}, positions))
            if not (self.look() if found is None else self._look_at(found.handle.path)):
                return self.deck.draw_by(keys, positions)

    def nearest(self, asked: Request, *, same_place: bool) -> Recording | None:
        """The recording most like a request; `same_place`: only of the same method and path.

        Reads files; may be called in any thread.
        """
        deck = self.deck
        found = deck.candidates(asked.method, path_of(asked.target))
        if not found and not same_place:
            found = list(deck.entries)
        sketches = ((item.handle, self._sketch(item.handle)) for item in found)
        return nearest(sketch(asked, self.rules), ((handle, seen) for handle, seen in sketches if seen is not None))

    def look(self) -> bool:
        """See now what changed on disk; whether anything did."""
        changed = self._look_for_new()
        for path in self.files:
            try:
                changed |= self._refresh(path)
            except CassetteError as error:
                self._complain(path, error)
        if changed:
            self._deal()
        return changed

    def _look_at(self, path: Path) -> bool:
        changed = self._refresh(path)
        if changed:
            self._deal()
        return changed

    def _look_for_new(self) -> bool:
        if files.changes(self._watched) == self._watched:
            return False
        self._watched = files.changes(files.folders(self._paths))  # first: what comes meanwhile is for the next time
        found = dict.fromkeys(files.find(self._paths, missing_ok=True))
        for path in self._files.keys() - found:
            with suppress(CassetteError):
                self._refresh(path)  # says that it is gone
        changed = self._files.keys() != found.keys()
        self._files = {path: self._files.get(path) or self._added(path) for path in found}
        return changed

    def _refresh(self, path: Path) -> bool:
        """Index a file anew that was edited, and see whether it is gone; whether other recordings are played now.

        Raises CassetteError where it can no longer be read: then those that were in it still are what it answers.
        """
        known = self._files[path]
        try:
            if files.stamp(path) == known.stamp:
                return False
            self._files[path] = self._index(path)
        except CassetteError:
            raise
        except MockllmError as error:
            self._complain(path, error)
            self._files[path] = _UNREADABLE
            return bool(known.entries)
        self._complaints.pop(path, None)
        return True

    def _added(self, path: Path) -> _Indexed:
        try:
            return self._index(path)
        except MockllmError as error:
            self._complain(path, error)
            return _UNREADABLE

    def _index(self, path: Path) -> _Indexed:
        stamp = files.stamp(path)
        found = list(files.scan([path], self._warn))
        early = frozenset(recording for recording, asked in found if asked.cut)
        entries = tuple(entry(_answered(asked), recording, self.rules) for recording, asked in found)
        return _Indexed(stamp, entries, early)

    def _complain(self, path: Path, error: MockllmError) -> None:
        if self._complaints.get(path) != str(error):
            self._complaints[path] = str(error)
            self._warn(f"{error}; it is not played")

    def _sketch(self, recording: Recording) -> Sketch | None:
        seen = self._sketches.get(recording)
        if seen is None:
            try:
                seen = self._sketches[recording] = sketch(files.read_request(recording), self.rules)
            except MockllmError:  # look() says so
                return None
        return seen

    def _deal(self) -> None:
        self.deck = Deck([item for indexed in self._files.values() for item in indexed.entries], self.rules)
        self._early = frozenset().union(*(indexed.early for indexed in self._files.values()))
        known = {item.handle for item in self.deck.entries}
        # a copy: other threads may be adding to it
        self._sketches = {recording: seen for recording, seen in self._sketches.copy().items() if recording in known}


def _answered(recorded: Request) -> Request:
    """What a recording answers. A body whose end was never seen stands for any body: its rest is unknown."""
    return replace(recorded, body=None) if recorded.cut else recorded
