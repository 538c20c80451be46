"""A request, and a request with its answer.

Plain frozen values, no socket and no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mockllm.core.response import Response

Headers = tuple[tuple[bytes, bytes], ...]
"""Names and values in their own case and order, duplicates kept."""

MAX_BODY = 64 * 1024 * 1024
"""A request body larger than this is relayed and played, but not kept on tape and not compared (bytes)."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked. `target` is as it stood in the request line.

    `body` None means any body (hand-written and imported tapes, or one larger than MAX_BODY). `early`: the answer
    began before the request was fully sent; `cut`: the body was never finished.
    """

    method: str
    target: bytes
    headers: Headers = ()
    body: bytes | None = b""
    early: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a cassette that is kept through a rewrite: a comment, an empty line, or a code of a later version.

    `index` is the number of lines between it and the header line that are no notes: before the first segment it is 0;
    -1 is before the header line. `interval` is the µs that its own first number says; 0 for the others.
    """

    index: int
    text: str
    interval: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and the response to it, with all that its cassette says beside them.

    `meta` holds the other keys of the header line (recorded, upstream, origin, …), `end_meta` those of the end line
    (`by`, …), `extras` the unknown keys of a segment's line, by the segment's index (-1: of an early request's line).
    """

    request: Request
    response: Response
    meta: Mapping[str, Any] = field(default_factory=dict)
    end_meta: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


def header(headers: Headers, name: bytes) -> bytes | None:
    """The value of the first header of that name (case-insensitive), or None."""
    lowered = name.lower()
    return next((value for key, value in headers if key.lower() == lowered), None)
