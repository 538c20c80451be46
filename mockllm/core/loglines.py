"""One line a log for what happened to an exchange, for a person at a terminal.

What it holds is text made by strangers, so it is escaped; it must not know where the line goes.
"""

from dataclasses import dataclass
from typing import Any

from mockllm.core.shown import escaped

Target = bytes
UnderWay = tuple[str, str]
"""What was asked, and what came of it until now: both print, each character in one column."""


def duration(microseconds: int) -> str:
    """µs as a person reads them: 830 µs, 12.3 ms, 4.56 s."""
    if microseconds < 1000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


@dataclass(frozen=True, slots=True)
class Came:
    """What came of an answer so far: bytes on the wire, events that a client gets, and when the first byte and the
    first event came (µs since the request; None: none did).
    """

    status: int | None
    size: int
    first: int | None
    events: int = 0
    first_event: int | None = None

    def __str__(self) -> str:
        parts = ["no head" if self.status is None else str(self.status)]
        if self.events:
            parts.append("1 event" if self.events == 1 else f"{self.events} events")
        parts += [f"{self.size} B", "nothing came" if self.first is None else f"first byte {duration(self.first)}"]
        if self.first_event is not None:
            parts.append(f"first event {duration(self.first_event)}")
        return ", ".join(parts)

    def as_object(self, method: str, target: Target) -> dict[str, Any]:
        """With what was asked, for programs."""
        return {
            "method": method,
            "target": target.decode(errors="backslashreplace"),
            "status": self.status,
            "events": self.events,
            "bytes": self.size,
            "first_byte_ms": None if self.first is None else self.first / 1000,
            "first_event_ms": None if self.first_event is None else self.first_event / 1000,
        }


def under_way(method: str, target: bytes, came: Came, elapsed: int) -> UnderWay:
    """An exchange that goes on, `elapsed` µs after its request."""
    return escaped(f"{method} {target.decode('ascii', 'backslashreplace')}"), f"{came}, {duration(elapsed)} so far"


def exchange(method: str, target: bytes, came: Came, total: int, end: str, rest: str = "") -> str:
    """One exchange in one line: what was asked, what came, when it was over (µs), how it ended."""
    line = f"{method} {target.decode(errors='backslashreplace')} {came}, {duration(total)}, {end}"
    return escaped(f"{line} {rest}" if rest else line)
