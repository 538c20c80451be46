"""What each session has of its own on a shared server: how far its recordings were played, its faults, its attempts.

Bounded, whatever clients ask for. It plays nothing.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b

from mockllm.core.deck import Positions
from mockllm.core.faults.firing import fires
from mockllm.core.faults.spec import Spec, render

DEFAULT = "default"
"""The session of requests that name none."""
MAX_SESSIONS = 1000
MAX_ATTEMPTS = 1000
"""Different requests of a session whose attempts are counted; the oldest are forgotten."""
MAX_COUNTERS = 1000
"""Different faults of a session whose requests are counted; likewise."""


@dataclass(slots=True)
class Attempt:
    """A request among those of its kind: its number (from 1), and when its answer ended (µs; None: not yet)."""

    number: int
    ended_at: int | None = None


@dataclass(slots=True)
class Session:
    """`faults` None: it has none of its own, so the server's apply."""

    name: str
    positions: Positions = field(default_factory=dict)
    faults: Spec | None = None
    counters: OrderedDict[tuple[str, int], int] = field(default_factory=OrderedDict)
    attempts: OrderedDict[bytes, Attempt] = field(default_factory=OrderedDict)

    def attempt(self, key: bytes) -> tuple[Attempt, Attempt | None]:
        """Count one more attempt at the request of that key: the new one, and the one before it."""
        before = self.attempts.pop(key, None)
        now = self.attempts[key] = Attempt(1 if before is None else before.number + 1)
        if len(self.attempts) > MAX_ATTEMPTS:
            self.attempts.popitem(last=False)
        return now, before

    def fire(self, spec: Spec, path: str) -> list[bool]:
        """Count a request of that path for a spec: which of its steps fire."""
        name = blake2b(render(spec).encode(), digest_size=16).hexdigest()
        fired = []
        for place, step in enumerate(spec):
            fired.append(fires(name, place, step.when, path, self.counters))
            if (name, place) in self.counters:
                self.counters.move_to_end((name, place))
        while len(self.counters) > MAX_COUNTERS:
            self.counters.popitem(last=False)
        return fired

    def reset(self) -> None:
        """Back to the beginning: nothing was played, no fault was counted; its own faults stay."""
        self.positions.clear()
        self.counters.clear()
        self.attempts.clear()


class Sessions:
    """The sessions by name. Beyond MAX_SESSIONS the one that was used longest ago is forgotten, never the default."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def get(self, name: str) -> Session:
        """The session of that name, made if need be."""
        session = self._sessions.pop(name, None) or Session(name)
        self._sessions[name] = session
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(oldest for oldest in self._sessions if oldest != DEFAULT)]
        return session

    def find(self, name: str) -> Session | None:
        """The session of that name, if there is one."""
        return self._sessions.get(name)

    def delete(self, name: str) -> bool:
        """Forget a session; whether it was there."""
        return self._sessions.pop(name, None) is not None

    def names(self) -> list[str]:
        """All of them, the latest used last."""
        return list(self._sessions)
