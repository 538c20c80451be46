"""A recorded answer as its client saw it: the body decoded, its events, and in which piece and when each of them came.

It looks and changes nothing; what is odd about it is for `oddities`.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from mockllm.core.decoding import Decoded, decode
from mockllm.core.events import Event, Kind, events, reader_for
from mockllm.core.exchange import Exchange, header
from mockllm.core.http1 import Framing, Head, Scan, Tracker, scan
from mockllm.core.response import Response, Segment

SSE = b"text/event-stream"
_SSE_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")


def sniffed(body: bytes) -> bytes | None:
    """`text/event-stream` where a body begins as server-sent events do, whatever its head says; else None."""
    return SSE if _SSE_START.match(body) else None


def says_close(head: Head) -> bool:
    """Does the head say that the connection will not be used again (RFC 9112 §9.3)?"""
    wishes = head.values(b"connection")
    return b"close" in wishes or (head.version == "1.0" and b"keep-alive" not in wishes)


@dataclass(frozen=True, slots=True)
class Span:
    """A span of the decoded body; `first` and `last` are the pieces (indices) that hold its first and last byte, `at`
    is when the last one came (µs).
    """

    event: Event
    first: int
    last: int
    at: int


@dataclass(frozen=True)
class Look:
    """What is found in an exchange. Offsets are bytes of the decoded body, times µs since the request."""

    exchange: Exchange

    @property
    def response(self) -> Response:
        return self.exchange.response

    @cached_property
    def found(self) -> Scan:
        return scan(self.response)

    @cached_property
    def content_type(self) -> bytes | None:
        """As the head has it."""
        return None if self.found.head is None else header(self.found.head.headers, b"content-type")

    @cached_property
    def coding(self) -> bytes:
        """Content-Encoding in lower case, several joined by a comma; b"" for none."""
        head = self.found.head
        values = [] if head is None else head.values(b"content-encoding")
        return b",".join(value for value in values if value != b"identity")

    @cached_property
    def pieces(self) -> list[Segment]:
        """The segments that hold body, each a chunk or the part of one, or of a body without chunks, that came in one
        read.
        """
        return [segment for segment in self.found.segments if segment.data]

    @cached_property
    def surplus(self) -> list[Segment]:
        """What came after the message had ended by its framing."""
        tracker = Tracker(self.response.method)
        found = []
        for segment in self.found.segments:
            if tracker.done:
                found.append(segment)
            tracker.feed(segment.at, segment.wire)
        return found

    @cached_property
    def decoded(self) -> Decoded:
        """What each piece adds to the text."""
        return decode(self.coding, [piece.data for piece in self.pieces])

    @cached_property
    def body(self) -> bytes:
        """All the text."""
        return b"".join(self.decoded.pieces)

    @cached_property
    def stream_type(self) -> bytes | None:
        """As what kind of stream the body is read: by its Content-Type, else by how it begins; None: it is none."""
        if reader_for(self.content_type) is not None:
            return self.content_type
        return sniffed(self.body)

    @cached_property
    def spans(self) -> list[Span]:
        """Everything a stream is made of; nothing where the body is none."""
        ends = list(accumulate(map(len, self.decoded.pieces)))

        def piece(offset: int) -> int:
            return bisect_right(ends, offset)

        found = events(self.body, self.stream_type)
        places = [(event, piece(event.start), piece(event.stop - 1)) for event in found]
        return [Span(event, first, last, self.pieces[last].at) for event, first, last in places]

    @cached_property
    def events(self) -> list[Span]:
        """The events that a client gets."""
        return [span for span in self.spans if span.event.kind is Kind.EVENT]

    @cached_property
    def values(self) -> list[Any]:
        """The JSON values of all events (None for one that is none), or the one of a body that is no stream."""
        if self.stream_type is not None:
            return [span.event.json() for span in self.events]
        return [Event(Kind.EVENT, 0, len(self.body), data=self.body).json()] if self.body else []

    @cached_property
    def chunks(self) -> list[int]:
        """For each piece the number of the chunk that it belongs to; of a body without chunks, of the read."""
        if self.found.framing is not Framing.CHUNKED:
            return self.reads
        numbers: list[int] = []
        between = True  # stands anything between the last data and here? Inside a chunk nothing does
        for segment in self.found.segments[self.found.head_segments :]:
            if segment.data:
                numbers.append((numbers[-1] if numbers else 0) + (between or bool(segment.before)))
            between = not segment.data or bool(segment.after)
        return numbers

    @cached_property
    def reads(self) -> list[int]:
        """For each piece the number of the read that it came in."""
        times = [piece.at for piece in self.pieces]
        return list(accumulate(int(at != before) for at, before in zip(times, [-1, *times], strict=False)))
