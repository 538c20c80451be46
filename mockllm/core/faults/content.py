"""Faults of wrong content in a stream that the server began well: data that are no JSON, and an error in mid-stream.

What an error says is the dialects' business.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from mockllm.core.dialects.errors import STREAM_STYLES, StreamError, stream_error
from mockllm.core.faults.base import Fault, Position, Unit, key
from mockllm.core.faults.coding import on_text
from mockllm.core.faults.ends import shortened
from mockllm.core.faults.insert import Block, insert, place, spelled
from mockllm.core.faults.more import put_block
from mockllm.core.faults.sequence import sequence
from mockllm.core.faults.view import View, view
from mockllm.core.response import Response, Then

_FAMILY = "Wrong content"
_AFTER_FIRST = Position(Unit.EVENTS, 1)
_GARBAGE = b'{"choices":[{"delta":{"content":'


@dataclass(frozen=True, slots=True)
class Garbage:
    """An event whose data are no JSON: half an object."""

    name: ClassVar[str] = "garbage"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "garbage:at=1ev"

    at: Position = key("where; the next border between events", _AFTER_FIRST)

    def __call__(self, response: Response) -> Response:
        return put_block(response, self.at, lambda view: [_GARBAGE if view.ndjson else b"data: " + _GARBAGE])


@dataclass(frozen=True, slots=True)
class Error:
    """An error in mid-stream, under the status 200, and then the end as that kind of server makes it.

    Everything after its place is left out. vllm and openrouter send `[DONE]` after it, the others just end; all end
    cleanly, anthropic closes the connection then. Without style= it is the recording's own family; openai for
    mlx_lm.server, which sends no such thing. In a stream of JSON lines the object stands on a line, without `[DONE]`.
    """

    name: ClassVar[str] = "error"
    family: ClassVar[str] = _FAMILY
    example: ClassVar[str] = "error:at=1ev,style=vllm"

    at: Position = key("where; the next border between events", _AFTER_FIRST)
    style: (
        Literal["openai", "anthropic", "responses", "ollama", "vllm", "groq", "llama", "gemini", "openrouter"] | None
    ) = key("whose error it is", None)
    code: int | None = key("the HTTP status that it speaks of; without it the one that is usual there", None)

    def __call__(self, response: Response) -> Response:
        return on_text(response, self._failed)

    def _failed(self, seen: View) -> Response:
        found = place(seen, self.at)
        if found is None:
            return seen.parts.response
        offset, at = found
        at = max(at, seen.came_at(offset - 1)) if offset else at  # a byte order mark may come later
        style = self.style or (seen.family if seen.family in STREAM_STYLES else "openai")
        error = stream_error(style, self.code, sequence(seen)(offset) + 1)
        short = shortened(seen.parts, offset, at)
        failed = insert(view(short), [Block(offset, at, data) for data in _said(seen, error)])
        return replace(failed, then=Then.FIN, then_at=failed.end_at) if error.closes else failed


def _said(seen: View, error: StreamError) -> list[bytes]:
    """The events that say an error."""
    if seen.ndjson:
        return [spelled(seen, [error.data])]
    name = [b"event: " + error.name] if error.name else []
    done = [spelled(seen, [b"data: [DONE]"])] if error.done else []
    return [spelled(seen, [*name, b"data: " + error.data]), *done]


CONTENT: tuple[type[Fault], ...] = (Garbage, Error)
