"""How a command that serves tells what happens: lines, one JSON object a line, or a live line for each exchange under
way, on a terminal.

It knows neither recorder nor replay, and nothing of where its text goes but how wide it is.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

from mockllm.core.loglines import UnderWay

TICK_S = 0.1
"""How often live lines are written anew."""
_UP = "\x1b[{}A"
_CLEAR = "\x1b[J"
"""Erase from here to the end of the screen (ECMA-48 §8.3.39)."""
_CUT = "…"


class Style(Enum):
    """What is told of exchanges."""

    QUIET = auto()
    """Nothing."""
    LINES = auto()
    """A line when one is over."""
    LIVE = auto()
    """That, and a line for each that goes on, rewritten in place."""
    JSON = auto()
    """An object when one is over; everything else that is said is an object too."""


class Logs:
    """What a command says. `write` takes text as it is, line ends included; `size` tells the terminal's columns and
    rows. An object has `command`, `at` (when it was written), and either `message` or the keys of
    `record.finished` or `journal.finished`.
    """

    def __init__(
        self,
        style: Style,
        command: str,
        write: Callable[[str], None],
        size: Callable[[], tuple[int, int]] = lambda: (80, 24),
    ) -> None:
        self._style, self._command, self._write, self._size = style, command, write, size
        self._under_way: Callable[[], Sequence[UnderWay]] = tuple
        self._shown: list[str] = []
        self.report = self._object if style is Style.JSON else None
        """For those who report objects."""

    def say(self, message: str) -> None:
        """Something that a person must know."""
        if self._style is Style.JSON:
            self._object({"message": message})
        else:
            self._line(f"mockllm: {message}")

    def log(self, line: str) -> None:
        """An exchange is over."""
        if self._style in (Style.LINES, Style.LIVE):
            self._line(line)

    def watch(self, under_way: Callable[[], Sequence[UnderWay]]) -> None:
        """Show what goes on, from now until the running loop stops, where that is the style. `under_way` gives
        a line for each exchange.
        """
        if self._style is Style.LIVE:
            self._under_way = under_way
            self._tick(asyncio.get_running_loop())

    def close(self) -> None:
        """Take the live lines away."""
        self._under_way = tuple
        self._redraw("")

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._fitted() != self._shown:
            self._redraw("")
        loop.call_later(TICK_S, self._tick, loop)

    def _line(self, line: str) -> None:
        self._redraw(f"{line}\n")

    def _object(self, found: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._write(json.dumps({"command": self._command, "at": at, **found}, ensure_ascii=False) + "\n")

    def _redraw(self, text: str) -> None:
        """Write whole lines where the live ones stand, and those below them, all at once."""
        clear = ""
        if self._shown:
            up = len(self._shown) - 1
            clear = "\r" + (_UP.format(up) if up else "") + _CLEAR
        self._shown = self._fitted()
        whole = clear + text + "\n".join(self._shown)
        if whole:
            self._write(whole)

    def _fitted(self) -> list[str]:
        """The live lines that there is room for, none longer than a row: one that wraps could not be taken back."""
        lines = self._under_way()
        columns, rows = self._size() if lines else (0, 0)
        room, width = max(1, rows - 1), max(1, columns - 4)
        if len(lines) > room:
            hidden = len(lines) - room + 1
            lines = [*lines[: room - 1], ("and", f"{hidden} more")]
        return [_cut(asked, figures, width) for asked, figures in lines]


def _cut(asked: str, figures: str, width: int) -> str:
    """Both in so many columns; of what was asked the start says enough."""
    room = max(1, width - len(figures) - 1)
    return f"{asked if len(asked) <= room else asked[: room - 1] + _CUT} {figures}"[:width]
