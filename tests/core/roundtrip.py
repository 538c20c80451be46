"""Puts reads on a tape as the recorder does, and asks of the text all that a cassette promises.

It knows the tape and its reader, and nothing of where the reads come from.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from mockllm.core.cassette import loads
from mockllm.core.exchange import Exchange, Request
from mockllm.core.response import End, Response, Then
from mockllm.core.tape import Tape, dump
from mockllm.play import plan

Reads = list[tuple[int, bytes]]
META = {"recorded": "2026-11-30T15:53:19.104Z", "upstream": "http://127.0.0.1:8080"}


@dataclass(frozen=True, slots=True)
class Taped:
    """The text of one exchange, in the parts in which it was written."""

    header: bytes
    parts: tuple[bytes, ...]
    last: bytes

    @property
    def text(self) -> bytes:
        """The whole cassette."""
        return self.up_to(len(self.parts)) + self.last

    def up_to(self, count: int) -> bytes:
        """What stands on disk when the recorder is killed after so many reads."""
        return self.header + b"".join(self.parts[:count])


def taped(method: str, reads: Iterable[tuple[int, bytes]], *, end_after: int = 7, then: Then = Then.OPEN) -> Taped:
    """Record reads, and a close of the server `end_after` µs later where the message did not end by itself."""
    tape = Tape(method)
    header = tape.begin(Request(method, b"/v1/chat/completions", ((b"Host", b"h"),), b'{"stream":true}'), META)
    parts = []
    over = None
    for at, data in reads:
        parts.append(tape.read(at, data))
        if tape.tracker.done and over is None:
            over = at
    at = tape.at + end_after if over is None else over
    end = End.COMPLETE if tape.tracker.eof() else End.FIN
    return Taped(header, tuple(parts), tape.end(end, at, then, at + 400, {}))


def only(text: bytes) -> Exchange:
    """The one exchange of a text."""
    [exchange] = loads(text)
    return exchange


def same_reads(response: Response, reads: Reads) -> None:
    """A response has exactly these reads: bytes, borders and times; and it is played so."""
    assert list(response.reads()) == reads
    played = plan(response)
    assert [(due, played.buffer[start:stop]) for due, start, stop in played.steps] == reads


def check_exact(method: str, reads: Reads, *, prefixes: bool = True) -> Exchange:
    """Record, read back and write again: the same bytes, borders, times and text; after each read a valid cassette."""
    result = taped(method, reads)
    exchange = only(result.text)
    same_reads(exchange.response, reads)
    assert dump(exchange) == result.text
    if prefixes:
        check_prefixes(result, reads, range(len(reads) + 1))
    return exchange


def check_prefixes(result: Taped, reads: Reads, counts: Iterable[int]) -> None:
    """Killed after so many reads, the recorder leaves a cassette that holds exactly them."""
    for count in counts:
        exchange = only(result.up_to(count))
        assert (exchange.response.end, exchange.end_meta) == (End.CLIENT, {"by": "kill"})
        assert list(exchange.response.reads()) == reads[:count]


def at_times(pieces: Iterable[bytes]) -> Reads:
    """Pieces as reads at made-up times: 1 µs apart, milliseconds, and a long silence among them."""
    gaps = (2_504, 1, 999, 1_000, 60_000_001)
    reads: Reads = []
    at = 0
    for index, piece in enumerate(piece for piece in pieces if piece):
        at += gaps[index % len(gaps)]
        reads.append((at, piece))
    return reads


def cut(data: bytes, *places: int) -> list[bytes]:
    """Bytes cut at some places."""
    borders = [0, *sorted(places), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(borders)]


def singly(data: bytes) -> list[bytes]:
    """Bytes one by one."""
    return [data[index : index + 1] for index in range(len(data))]
