"""What each session has of its own on a shared server: how far its recordings were played, its faults, its attempts.

Bounded, whatever clients ask for. It plays nothing.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from mockllm.core.deck import Positions
from mockllm.core.faults.firing import Counters
from mockllm.core.faults.spec import Spec

DEFAULT = "default"
"""The session of requests that name none."""
MAX_SESSIONS = 1000
MAX_ATTEMPTS = 1000
"""Different requests of a session whose attempts are counted; the oldest are forgotten."""


@dataclass(slots=True)
class Attempt:
    """The latest request of its kind: the how manieth it was (from 1), and when its answer ended (µs; None: not yet)."""

    number: int
    ended_at: int | None = None


@dataclass(slots=True)
class Session:
    """`faults` None: it has none of its own, so the server's apply."""

    name: str
    positions: Positions = field(default_factory=dict)
    faults: Spec | None = None
    counters: Counters = field(default_factory=dict)
    attempts: OrderedDict[bytes, Attempt] = field(default_factory=OrderedDict)

    def attempt(self, key: bytes) -> tuple[Attempt, Attempt | None]:
        """Count one more attempt at the request of that key: the new one, and the one before it."""
        before = self.attempts.pop(key, None)
        now = self.attempts[key] = Attempt(1 if before is None else before.number + 1)
        if len(self.attempts) > MAX_ATTEMPTS:
            self.attempts.popitem(last=False)
        return now, before

    def reset(self) -> None:
        """Back to the beginning: nothing was played, no fault was counted; its own faults stay."""
        self.positions.clear()
        self.counters.clear()
        self.attempts.clear()


class Sessions:
    """The sessions by name. Beyond MAX_SESSIONS the one that was used longest ago is forgotten."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def get(self, name: str) -> Session:
        """The session of that name, made if need be."""
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(name)
        return session

    def delete(self, name: str) -> bool:
        """Forget a session; whether it was there."""
        return self._sessions.pop(name, None) is not None

    def names(self) -> list[str]:
        """All of them, the latest used last."""
        return list(self._sessions)
