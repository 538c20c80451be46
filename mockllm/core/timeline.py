"""An answer read by read: when each came, after what silence, and what it said in a few words.

Text in here is as the server sent it: whoever prints it escapes it. It must not know how it is printed.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mockllm.core.dialects import Meaning, meaning
from mockllm.core.events import Event, Kind
from mockllm.core.exchange import Exchange
from mockllm.core.http1 import parse_head
from mockllm.core.loglines import duration
from mockllm.core.look import Look
from mockllm.core.response import End, Response, Then
from mockllm.core.saying import delta_names, error_of, reasons_of, text_of, tokens, usage_of
from mockllm.core.shown import shown_bytes

BAR = 16
"""Cells of the longest bar."""
_SHORTEST_US = 1000
_LAST_CHUNK = re.compile(rb"(?:\r?\n)?0+[ \t]*(?:;[^\n]*)?\r?(?:\n|\Z)")
_ENDS = {
    End.FIN: "closed early by the server",
    End.RST: "reset",
    End.HANG: "silence until somebody gave up",
    End.CLIENT: "the client left",
}
_THEN = {Then.FIN: "closed", Then.RST: "reset"}


@dataclass(frozen=True, slots=True)
class Row:
    """One read, or the end (`bytes` 0). `bytes` are those on the wire, `gap_us` is the time since the row before (since
    the request for the first).
    """

    at_us: int
    gap_us: int
    bytes: int
    text: str

    @property
    def bar(self) -> int:
        """How many cells a bar for the gap is long, 0 to BAR, logarithmic: 1 ms has one, 10 ms five, 1 s thirteen."""
        return min(BAR, 1 + int(4 * math.log10(self.gap_us / _SHORTEST_US))) if self.gap_us >= _SHORTEST_US else 0


def timeline(exchange: Exchange) -> list[Row]:
    """A row a read, then one for the end."""
    return timeline_of(Look(exchange))


def timeline_of(look: Look) -> list[Row]:
    """The rows of an exchange that was looked into already."""
    said: dict[int, list[str]] = {}
    for at, text in (*_heads(look), *_bodies(look), *_framing(look)):
        said.setdefault(at, []).append(text)
    rows, before = [], 0
    for at, data in look.response.reads():
        rows.append(Row(at, at - before, len(data), " ".join(said.get(at, ["(part of an event)"]))))
        before = at
    end = look.response
    return [*rows, Row(end.end_at, end.end_at - before, 0, _ending(end))]


def described(event: Event) -> str:
    """What a span of a stream says, in a few words."""
    parts = [f":{comment.decode(errors='replace')}" for comment in event.comments]
    if event.kind is Kind.TAIL:
        parts.append(f"(unfinished) {shown_bytes(event.data)}")
    elif event.kind is Kind.EVENT:
        parts += _event(event)
    elif event.retry is not None:
        parts.append(f"retry {event.retry.decode()}")
    return " ".join(parts) or "(blank)"


def _event(event: Event) -> list[str]:
    if event.data == b"[DONE]":
        return ["[DONE]"]
    value, says = event.json(), meaning(event)
    text = text_of(value)
    parts = [json.dumps(text, ensure_ascii=False)] if text else []
    parts += delta_names(value)
    parts += [f"finish {reason}" for reason in reasons_of(value)]
    usage = usage_of(value)
    if usage:
        parts.append("usage " + "/".join("?" if count is None else str(count) for count in tokens(usage)))
    error = error_of(value)
    if error is not None:
        parts.append(f"error: {error}")
    name = event.name.decode(errors="replace")
    if not parts and Meaning.PING in says:
        parts.append("ping")
    if not parts and name:
        parts.append(name)
    if not parts and Meaning.ROLE in says:
        parts.append("role")
    return parts or [shown_bytes(event.data)]


def _heads(look: Look) -> Iterator[tuple[int, str]]:
    head = look.found.segments[: look.found.head_segments] if look.found.head else look.found.segments
    pending = b""
    for segment in head:
        pending += segment.before
        if not pending.endswith((b"\n\r\n", b"\n\n")):
            whole = look.found.head is not None or not look.found.bad
            yield segment.at, "(part of the head)" if whole else shown_bytes(segment.before)
            continue
        parsed = parse_head(pending)
        yield segment.at, "" if parsed is None else pending.partition(b"\n")[0].decode(errors="replace").rstrip("\r")
        pending = b""


def _bodies(look: Look) -> Iterator[tuple[int, str]]:
    if look.stream_type is not None:
        yield from ((span.at, described(span.event)) for span in look.spans)
        return
    for piece, text in zip(look.pieces, look.decoded.pieces, strict=True):
        yield piece.at, shown_bytes(text) if text else f"({len(piece.data)} compressed bytes)"


def _framing(look: Look) -> Iterator[tuple[int, str]]:
    if look.found.head is None:
        return
    surplus = look.surplus
    for segment in look.found.segments[look.found.head_segments : len(look.found.segments) - len(surplus)]:
        if not segment.data:
            last = _LAST_CHUNK.match(segment.before)
            yield segment.at, "(last chunk)" if last else f"(framing) {shown_bytes(segment.before)}"
    for segment in surplus:
        yield segment.at, f"(after the end) {shown_bytes(segment.wire)}"


def _ending(response: Response) -> str:
    if response.end is not End.COMPLETE:
        return f"{response.end.value}: {_ENDS[response.end]}"
    if response.then is Then.OPEN:
        return "complete"
    later = response.then_at - response.end_at
    return f"complete, then {_THEN[response.then]}" + (f" {duration(later)} later" if later else "")
