"""Which faults bend the answer to a request, and what they did: sources, precedence, counting, and saying it once.

A request's own spec replaces its session's, which replaces the server's. It bends nothing itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.spec import Spec, Step, join, parse, render
from mockllm.sessions import Session

MAX_SAID = 1000
"""Different faults without effect that are said on stderr; the journal has them all."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A step of the spec that applies to a request, and whether its turn has come."""

    step: Step
    fires: bool


class Bending:
    """`spec` is the server's; `say` is told once of each fault that had no effect."""

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self.spec = spec
        self._say = say
        self._said: set[tuple[str, str]] = set()

    @staticmethod
    def parse(texts: Sequence[str]) -> Spec:
        """Specs of one source, in their order, as one. Raises SpecError."""
        return parse(join(texts), CATALOGUE)

    def applying(self, session: Session, own: Spec | None) -> Spec:
        """The spec that applies to a request."""
        if own is not None:
            return own
        return self.spec if session.faults is None else session.faults

    def fire(self, session: Session, own: Spec | None, path: str) -> list[Fired]:
        """The steps that apply, each counted in the session."""
        spec = self.applying(session, own)
        return list(map(Fired, spec, session.fire(spec, path)))

    def told(
        self, fired: Sequence[Fired], idle: Sequence[str | None], recording: str, hide: Callable[[str], str] = str
    ) -> list[dict[str, Any]]:
        """The faults of a request for the journal; `idle` has, for each that fired, why it had no effect, or None.

        `hide` takes the request's credentials out of a text.
        """
        reasons = iter(idle)
        told = []
        for one in fired:
            text = hide(render((one.step,)))
            why = next(reasons) if one.fires else None
            told.append({"fault": text, "fired": one.fires, "effect": one.fires and why is None, "why": why})
            if why is not None and (text, why) not in self._said and len(self._said) < MAX_SAID:
                self._said.add((text, why))
                self._say(f"fault {text} had no effect on {recording}: {why}")
        return told
