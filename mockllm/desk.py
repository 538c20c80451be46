"""What the control plane of a replay turns: sessions, their faults, and how far their recordings were played.

It answers `control.Controlled` and knows no HTTP.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from mockllm.bending import Bending
from mockllm.core.faults.spec import render
from mockllm.core.prefix import session_name
from mockllm.core.shown import escaped
from mockllm.files import Recording
from mockllm.journal import Filter, Journal
from mockllm.library import Library
from mockllm.sessions import DEFAULT, Session, Sessions


class Desk:
    """The sessions of one replay, and how often each recording was played, an edit of it included.

    Names of sessions are checked: UsageError.
    """

    def __init__(self, library: Library, journal: Journal, bending: Bending) -> None:
        self.sessions_by_name = Sessions()
        self.journal = journal
        self._played: Counter[tuple[Path, int]] = Counter()
        self._library, self._bending = library, bending

    def note(self, recording: Recording) -> None:
        """A recording is played, or was just made."""
        self._played[_place(recording)] += 1

    def played(self, recording: Recording) -> int:
        """How often."""
        return self._played[_place(recording)]

    def session(self, name: str | None) -> Session:
        """A session, made if need be; None is the default one."""
        return self.sessions_by_name.get(DEFAULT if name is None else session_name(name))

    def exchanges(self) -> list[dict[str, Any]]:
        """The recordings in their order."""
        return [
            {
                "recording": str(item.handle),
                "method": item.method,
                "path": escaped(item.path.decode(errors="backslashreplace")),
                "played": self.played(item.handle),
            }
            for item in self._library.deck.entries
        ]

    def unused(self) -> list[Recording]:
        """The recordings that nobody asked for, in order."""
        return [item.handle for item in self._library.deck.entries if not self.played(item.handle)]

    def faults(self, session: str | None) -> dict[str, Any]:
        """The spec that applies in a session, and whether it is its own."""
        here = self._found(session)
        own = here.faults is not None
        return {"session": here.name, "faults": render(self._bending.applying(here, None)), "own": own}

    def put_faults(self, session: str | None, spec: str) -> None:
        """Raises SpecError."""
        here = self.session(session)
        here.faults = self._bending.parse([spec])
        here.counters.clear()

    def delete_faults(self, session: str | None) -> None:
        """The server's faults apply again."""
        self._found(session).faults = None

    def reset(self, session: str | None) -> None:
        """One session, or all of them."""
        names = self.sessions() if session is None else [session]
        for name in names:
            self._found(name).reset()
        self.journal.delete(Filter(session=session))

    def sessions(self) -> list[str]:
        """Their names."""
        return self.sessions_by_name.names()

    def delete_session(self, name: str) -> bool:
        """Its journal goes with it."""
        self.journal.delete(Filter(session=name))
        return self.sessions_by_name.delete(name)

    def _found(self, name: str | None) -> Session:
        """A session as it is, or as it would begin: asking about one does not make it."""
        checked = DEFAULT if name is None else session_name(name)
        return self.sessions_by_name.find(checked) or Session(checked)


def _place(recording: Recording) -> tuple[Path, int]:
    return recording.path, recording.ordinal
