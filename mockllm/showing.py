"""`mockllm show`: cassettes for a person at a terminal, or as JSON for a program.

It opens no file itself, and decides only how things are printed; what they are is core's.
"""

import json
import re
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from mockllm import files
from mockllm.core.http1 import Framing
from mockllm.core.loglines import duration
from mockllm.core.look import Look
from mockllm.core.oddities import odd_of
from mockllm.core.oddities.base import counted
from mockllm.core.response import End
from mockllm.core.shown import escaped
from mockllm.core.summary import Summary, summary_of
from mockllm.core.timeline import BAR, Row, timeline_of
from mockllm.files import Recording

WIDTH = 100
"""Columns that everything fits into."""
_CUT = "…"
_PLACE = re.compile(r"(.+):([0-9]+)")
_COLUMNS = ("file", "method", "path", "status", "events", "bytes", "ttft", "ev/s", "duration", "end")
_FLEXIBLE = (0, 2)
"""Columns that share the room that the others leave."""
_NUMBERS = range(3, 9)
_FRAMINGS = {
    Framing.NONE: "no body",
    Framing.LENGTH: "with a length",
    Framing.CHUNKED: "in chunks",
    Framing.CLOSE: "until the close",
}


def show(paths: Sequence[Path], say: Callable[[str], None], *, as_json: bool = False) -> str:
    """What cassettes hold, as lines joined by LF; paths are files, folders, and `FILE:LINE` for the exchange there.

    One exchange is shown read by read with what is odd about it, several in a line each; as JSON one object a line,
    always with all the keys of `as_object`. `say` is told of torn last lines. Raises UsageError, CassetteError,
    MockllmError.
    """
    recordings = _recordings(paths, say)
    looks = ((recording, Look(files.read(recording))) for recording in recordings)
    if as_json:
        return "\n".join(json.dumps(as_object(recording, look)) for recording, look in looks)
    if len(recordings) == 1:
        [(recording, look)] = looks
        return "\n".join(_page(recording, look))
    return "\n".join(_table([(recording, summary_of(look)) for recording, look in looks]))


def as_object(recording: Recording, look: Look) -> dict[str, Any]:
    """An exchange for programs. These keys stay; times are µs since the request, null is what there is not.

    `file`, `line` (of its header line), `method`, `target`, `status`, `http` (version), `content_type`, `framing`
    (none, length, chunked, close), `events`, `bytes` (body as sent), `reads`, `ttft_us`, `events_per_s`,
    `duration_us`, `end`, `then` (what the server did with the connection after a complete answer), `text`, `usage`,
    `odd` (a list of lines), `timeline` (for each read, and the end: `at_us`, `gap_us`, `bytes`, `text`).
    """
    summary = summary_of(look)
    return {
        "file": str(recording.path),
        "line": recording.place.header_line,
        "method": summary.method,
        "target": _text(summary.target),
        "status": summary.status,
        "http": summary.version,
        "content_type": None if summary.content_type is None else _text(summary.content_type),
        "framing": None if summary.framing is None else summary.framing.name.lower(),
        "events": summary.events,
        "bytes": summary.bytes,
        "reads": summary.reads,
        "ttft_us": summary.ttft_us,
        "events_per_s": summary.events_per_s,
        "duration_us": summary.duration_us,
        "end": summary.end.value,
        "then": summary.then.value if summary.end is End.COMPLETE else None,
        "text": summary.text,
        "usage": summary.usage or None,
        "odd": odd_of(look),
        "timeline": [
            {"at_us": row.at_us, "gap_us": row.gap_us, "bytes": row.bytes, "text": row.text}
            for row in timeline_of(look)
        ],
    }


def _recordings(paths: Sequence[Path], say: Callable[[str], None]) -> list[Recording]:
    """The recordings in paths, in their order."""
    found: list[Recording] = []
    for path in paths:
        place = None if path.exists() else _PLACE.fullmatch(str(path))
        inside = [recording for recording, _ in files.scan(files.find([Path(place[1]) if place else path]), say)]
        found += [_at_line(inside, int(place[2]))] if place and inside else inside
    return found


def _at_line(inside: list[Recording], line: int) -> Recording:
    """The last recording that begins at a line or before it, the first one where none does."""
    return next((recording for recording in reversed(inside) if recording.place.line <= line), inside[0])


def _table(found: list[tuple[Recording, Summary]]) -> list[str]:
    """A line an exchange, under names of columns."""
    if not found:
        return ["no exchanges"]
    several = {recording.path for recording, _ in found if recording.ordinal}
    rows = [_COLUMNS, *(_figures(recording, one, recording.path in several) for recording, one in found)]
    widths = [max(map(_cells, column)) for column in zip(*rows, strict=True)]
    room = WIDTH - (len(widths) - 1) - sum(width for place, width in enumerate(widths) if place not in _FLEXIBLE)
    widths[0], widths[2] = _shared(widths[0], widths[2], room)
    return [_line(row, widths) for row in rows]


def _figures(recording: Recording, one: Summary, numbered: bool) -> tuple[str, ...]:
    name = recording.path.name.removesuffix(files.SUFFIX) + (f":{recording.place.header_line}" if numbered else "")
    return (
        escaped(name),
        _fitted(escaped(one.method), 7),
        escaped(_text(one.target)),
        "-" if one.status is None else str(one.status),
        str(one.events),
        str(one.bytes),
        "-" if one.ttft_us is None else duration(one.ttft_us),
        "-" if one.events_per_s is None else f"{one.events_per_s:.0f}",
        duration(one.duration_us),
        one.end.value,
    )


def _shared(one: int, other: int, room: int) -> tuple[int, int]:
    """The widths of two columns that share a room: what they need if there is enough, else no more than half each, or
    what the other leaves.
    """
    half = room // 2
    first = min(one, max(half, room - other))
    return first, min(other, room - first)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = []
    for place, (text, width) in enumerate(zip(row, widths, strict=True)):
        # the last part of a path says most; of a file's name its number at the start, and the line at the end
        fitted = _fitted(text, width, {0: min(4, width // 2), 2: width - 1}.get(place, 0))
        blank = " " * (width - _cells(fitted))
        cells.append(blank + fitted if place in _NUMBERS else fitted + blank)
    return " ".join(cells).rstrip()


def _page(recording: Recording, look: Look) -> list[str]:
    """One exchange: what was asked, the figures, the timeline, what it said and what is odd."""
    one = summary_of(look)
    lines = [escaped(f"{one.method} {_text(one.target)}"), escaped(str(recording)), *map(escaped, _facts(one)), ""]
    lines += map(_row, [("time", "gap", "bytes", "", "what came"), *map(_cells_of, timeline_of(look))])
    notes = _block("text", escaped(one.text)) if one.text else []
    if one.usage:
        notes += _block("usage", escaped(json.dumps(one.usage)))
    for number, oddity in enumerate(odd_of(look)):
        notes += _block("" if number else "odd", escaped(oddity))
    if notes:
        lines += ["", *notes]
    return [_fitted(line, WIDTH) for line in lines]


def _facts(one: Summary) -> list[str]:
    """What an answer was, and how much, in two lines."""
    what = ["no head"] if one.status is None else [str(one.status), f"HTTP/{one.version}"]
    if one.framing is not None:
        what.append(_FRAMINGS[one.framing])
    if one.content_type is not None:
        what.append(_text(one.content_type))
    size = f"{counted(one.bytes, 'byte')} in {counted(one.reads, 'read')}"
    much = [counted(one.events, "event"), size, duration(one.duration_us)]
    if one.ttft_us is not None:
        much.insert(2, f"first {'event' if one.events else 'byte'} after {duration(one.ttft_us)}")
    if one.events_per_s is not None:
        much.insert(3, f"{one.events_per_s:.0f} events/s")
    return [", ".join(what), f"{', '.join(much)}, {one.end.value}"]


def _cells_of(row: Row) -> tuple[str, str, str, str, str]:
    return duration(row.at_us), duration(row.gap_us), str(row.bytes or ""), "█" * row.bar, escaped(row.text)


def _row(cells: tuple[str, str, str, str, str]) -> str:
    time, gap, size, bar, text = cells
    return _fitted(f"{time:>9} {gap:>9} {size:>7}  {bar:{BAR}}  {text}", WIDTH).rstrip()


def _block(name: str, text: str) -> list[str]:
    """A name, and a text beside it over as many lines as it needs."""
    lines = textwrap.wrap(text, WIDTH - 8, break_on_hyphens=False) or [""]
    return [f"{name if not number else '':6}  {line}" for number, line in enumerate(lines)]


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _cells(text: str) -> int:
    """How many columns a text takes at a terminal."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fitted(text: str, width: int, tail: int = 0) -> str:
    """The text, cut where it takes more columns than there are; `tail` columns of its end are kept."""
    if _cells(text) <= width:
        return text
    last = _start(text[::-1], tail)[::-1]
    return _start(text, width - 1 - tail) + _CUT + last


def _start(text: str, width: int) -> str:
    """As much of a text that is wider as fits into so many columns."""
    return text[: next(place for place, used in enumerate(accumulate(map(_width, text))) if used > width)]
