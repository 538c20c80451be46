"""Puts new blocks between the events of a stream, spelled with the stream's own line ends.

It decides neither what they say nor how many there are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mockllm.core.faults.base import Position, Unit
from mockllm.core.faults.body import Parts
from mockllm.core.faults.edit import Edit, edit
from mockllm.core.faults.view import BOM, View
from mockllm.core.response import Response

_LINE_END = re.compile(rb"\r\n?|\n")
_NDJSON_END = re.compile(rb"\r?\n")


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that are sent at a time (µs) at a border between events (an offset in the body)."""

    offset: int
    at: int
    data: bytes


def line_end(view: View) -> bytes:
    """The line end that a stream uses first; LF where it has none."""
    found = (_NDJSON_END if view.ndjson else _LINE_END).search(view.body)
    return found[0] if found else b"\n"


def spelled(view: View, lines: Sequence[bytes]) -> bytes:
    """The lines, and in a stream of server-sent events the blank line that ends a block."""
    end = line_end(view)
    return b"".join(line + end for line in lines) + (b"" if view.ndjson else end)


def place(view: View, position: Position) -> tuple[int, int] | None:
    """Border and time (µs) for something put at a position; None where that lies beyond the end.

    It comes with the event before it, at the start of the body with what comes first; at a time that lies between
    two events it comes then, but not before the head. Raises Meaningless.
    """
    offset, border = view.offset(position), view.border(position)
    if border is None:
        return None
    if position.unit is Unit.TIME and offset in (0, border):
        return border, max(int(position.value), view.parts.head_at)
    return border, view.came_at(border - 1 if border else 0)


def insert(view: View, blocks: Iterable[Block], parts: Parts | None = None) -> Response:
    """The response, or these parts of it, with blocks at their places and times; several at one place in their order.

    A byte order mark stays the first thing in the body.
    """
    edits: list[Edit] = []
    marked = view.body.startswith(BOM)
    for block in map(partial(_apart, view.body), blocks):
        if marked and block.offset == len(BOM) and block.at < view.came_at(0):
            edits.append(Edit(0, len(BOM), BOM + block.data, block.at))
            marked = False
        else:
            edits.append(Edit(block.offset, block.offset, block.data, block.at))
    return edit(parts or view.parts, edits)


def _apart(body: bytes, block: Block) -> Block:
    """The block so that its last CR and an LF after it are no CR LF: that LF is a blank line of its own."""
    if not block.data.endswith(b"\r") or body[block.offset : block.offset + 1] != b"\n":
        return block
    return replace(block, data=block.data.replace(b"\r", b"\n"))
