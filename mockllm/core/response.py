"""A response as it stood on the wire: timed segments and how it ended.

A finished, frozen value: no socket, no clock. What head, framing and body are is not stored here but found in the bytes
(`http1.scan`), so that they cannot disagree with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import attrgetter


class End(Enum):
    """How an answer ended."""

    COMPLETE = "complete"
    """It ended as its framing says: last chunk, length reached, close of a close-delimited body."""
    FIN = "fin"
    """The server closed early: a promised terminator or length never came."""
    RST = "rst"
    """The connection was reset."""
    HANG = "hang"
    """Silence until somebody gave up."""
    CLIENT = "client"
    """The client left first; the rest is unknown."""


class Then(Enum):
    """What the server did with the connection within 50 ms after a complete answer."""

    OPEN = "open"
    FIN = "fin"
    RST = "rst"


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes of one read, or of a part of one.

    `data` is body without framing; `before` and `after` are the framing bytes around it as sent. Bytes that hold no
    body (a head, a terminator, garbage) stand in `before`, with `data` empty. `at` is µs since the request was fully
    sent (since it began, where the answer began earlier). Segments with the same `at` came in one read.
    """

    at: int
    data: bytes = b""
    before: bytes = b""
    after: bytes = b""

    @property
    def wire(self) -> bytes:
        """The bytes as they stood on the socket."""
        return self.before + self.data + self.after


@dataclass(frozen=True, slots=True)
class Response:
    """What a server sent and how it ended. Times are µs and never go back.

    `then_at` is absolute like `end_at`, and means something only where `end` is COMPLETE. `method` and `target` are the
    request's: without the method the framing cannot be told (HEAD), the target helps to tell whose dialect the body is.
    Raises ValueError where time goes back.
    """

    segments: tuple[Segment, ...]
    end: End
    end_at: int
    then: Then = Then.OPEN
    then_at: int = 0
    method: str = "GET"
    target: bytes = field(default=b"", compare=False)

    def __post_init__(self) -> None:
        last = 0
        for segment in self.segments:
            if segment.at < last:
                raise ValueError(f"time goes back: {segment.at} µs after {last} µs")
            last = segment.at
        if self.end_at < last or (self.then is not Then.OPEN and self.then_at < self.end_at):
            raise ValueError(f"time goes back: the end at {self.end_at} µs, then at {self.then_at} µs, after {last} µs")

    @property
    def wire(self) -> bytes:
        """Every byte on the socket, in order."""
        return b"".join(segment.wire for segment in self.segments)

    def reads(self) -> Iterator[tuple[int, bytes]]:
        """The reads as they came: (µs, bytes), one for all the segments of one time."""
        for at, group in groupby(self.segments, key=attrgetter("at")):
            yield at, b"".join(segment.wire for segment in group)
