"""Changes lines of a head; every other byte of it, and the reads it came in, stay.

It works on the lines as they were sent and knows no fault.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.body import Parts
from mockllm.core.faults.spread import spread
from mockllm.core.http1 import scan
from mockllm.core.response import Response, Segment

_INTERIM = re.compile(rb"(?s)(?:HTTP/[0-9]\.[0-9] 1(?!01)[0-9]{2}\b.*?\n\r?\n)*")
_LINE = re.compile(rb"[^\n]*\n(?:[ \t][^\n]*\n)*")
"""A line of a head with its end and the folded lines that continue it (RFC 9112 §5.2)."""

Lines = list[bytes]
"""The lines of a head with their ends: the status line first, the blank one last."""


def head_lines(parts: Parts) -> Lines:
    """The lines of a response's final head, not those of a 1xx before it."""
    whole = _bytes(parts.head)
    return _LINE.findall(whole, _start(whole))


def change_head(response: Response, change: Callable[[Lines], Lines]) -> Response:
    """The response with other lines in its final head. Raises Meaningless where there is no whole head."""
    found = scan(response)
    if found.head is None:
        raise Meaningless("there is no whole head")
    head = found.segments[: found.head_segments]
    whole = _bytes(head)
    start = _start(whole)
    new = whole[:start] + b"".join(change(_LINE.findall(whole, start)))
    if new == whole:
        return response
    return replace(response, segments=(*spread(head, new), *found.segments[found.head_segments :]))


def named(lines: Lines, name: bytes) -> list[int]:
    """Where the headers of a name (lower case) stand among the lines."""
    return [index for index, line in enumerate(lines) if index and line.partition(b":")[0].strip().lower() == name]


def with_header(lines: Lines, name: bytes, value: bytes | None) -> Lines:
    """The lines with this value for a name: in place of the first of that name, else at the end.

    All others of the name go; with None so does the first.
    """
    places = named(lines, name.lower())
    kept = [line for index, line in enumerate(lines) if index not in places]
    if value is None:
        return kept
    place = places[0] if places else len(kept) - 1
    end = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    return [*kept[:place], b"%s: %s%s" % (name, value, end), *kept[place:]]


def _bytes(head: Sequence[Segment]) -> bytes:
    return b"".join(segment.before for segment in head)


def _start(whole: bytes) -> int:
    interim = _INTERIM.match(whole)
    return interim.end() if interim else 0
