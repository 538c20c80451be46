"""Cassettes for Python programs: what was asked, and what a client saw of the answer.

Nothing is served here, and nothing is changed.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mockllm import files
from mockllm.core import exchange as core
from mockllm.core.jsonvalue import parse_json
from mockllm.core.look import Look
from mockllm.core.matching import path_of
from mockllm.core.summary import Summary, summary_of


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a client gets: `at_us` is when its last byte came, since the request; `name` is "" for the default.

    Bytes that are not UTF-8 become U+FFFD.
    """

    name: str
    data: str
    id: str | None
    at_us: int

    @property
    def json(self) -> Any:
        """The data as JSON, None where they are none."""
        try:
            return json.loads(self.data)
        except ValueError:
            return None


@dataclass(frozen=True)
class Recorded:
    """An exchange of a cassette. Times are µs since the request was sent; `exchange` is all there is, in bytes.

    `status` is None where the answer has no head. `ttft_us`: when the first event came that is no ping, or the first
    byte of a body that is no stream. `end`: complete, fin, rst, hang, client (FORMAT.md).
    """

    source: str
    exchange: core.Exchange

    @cached_property
    def _look(self) -> Look:
        return Look(self.exchange)

    @cached_property
    def _summary(self) -> Summary:
        return summary_of(self._look)

    @property
    def method(self) -> str:
        """Of the request."""
        return self.exchange.request.method

    @property
    def target(self) -> str:
        """Path and query."""
        return self.exchange.request.target.decode(errors="replace")

    @property
    def path(self) -> str:
        """The target without its query."""
        return path_of(self.exchange.request.target).decode(errors="replace")

    @property
    def asked(self) -> Any:
        """The request's body as JSON, None where it is none."""
        return _json(self.exchange.request.body or b"")

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the header line says beside the request: `recorded`, `upstream`, `origin`."""
        return self.exchange.meta

    @property
    def status(self) -> int | None:
        return self._summary.status

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The answer's, in their own case and order."""
        head = self._look.found.head
        pairs = () if head is None else head.headers
        return tuple((name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in pairs)

    @property
    def body(self) -> bytes:
        """Without framing, and decompressed."""
        return self._look.body

    @property
    def json(self) -> Any:
        """The body as JSON, None where it is none, as a stream is."""
        return _json(self.body)

    @property
    def text(self) -> str:
        """The words of the answer, streamed or not."""
        return self._summary.text

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events that a client gets: no comments, no empty blocks."""
        return tuple(
            Event(
                span.event.name.decode("utf-8", "replace"),
                span.event.data.decode("utf-8", "replace"),
                None if span.event.id is None else span.event.id.decode("utf-8", "replace"),
                span.at,
            )
            for span in self._look.events
        )

    @property
    def usage(self) -> Mapping[str, Any]:
        """Token counts under the server's own names; empty where it says none."""
        return self._summary.usage

    @property
    def ttft_us(self) -> int | None:
        return self._summary.ttft_us

    @property
    def duration_us(self) -> int:
        return self._summary.duration_us

    @property
    def end(self) -> str:
        return self._summary.end.value

    def __repr__(self) -> str:
        return (
            f"<{self.method} {self.target}: {self.status}, {len(self.events)} events, {self.end}, from {self.source}>"
        )


@dataclass(frozen=True, slots=True)
class Cassette:
    """The exchanges of a file, or of a folder's files, in order."""

    path: Path
    exchanges: tuple[Recorded, ...]

    def __len__(self) -> int:
        return len(self.exchanges)

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self.exchanges)

    def __getitem__(self, index: int) -> Recorded:
        return self.exchanges[index]


def load(path: str | os.PathLike[str]) -> Cassette:
    """Read a cassette: a file, or a folder of them. Raises UsageError, CassetteError, MockllmError.

    A last line that is torn (the recorder was killed) is left out, and said as a warning of the logger `mockllm`.

    >>> import mockllm
    >>> hello = mockllm.load(mockllm.shipped() / "hello-usage.jsonl")[0]
    >>> hello.text, hello.status, hello.end
    ('Hello world', 200, 'complete')
    >>> hello.usage["completion_tokens"]
    3
    >>> hello.events[-1].data
    '[DONE]'
    >>> hello.ttft_us < hello.duration_us
    True
    """
    paths = files.find([Path(path)])
    found = (recording for recording, _ in files.scan(paths, logging.getLogger("mockllm").warning))
    return Cassette(Path(path), tuple(Recorded(str(recording), files.read(recording)) for recording in found))


def _json(body: bytes) -> Any:
    try:
        return parse_json(body)
    except ValueError:
        return None
