"""Opens a compressed body for faults that work on its text, and compresses it again so that it stays valid.

gzip and deflate only, within a bound. It knows no event and no fault.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.body import Parts, Piece, put_together, take_apart
from mockllm.core.faults.head import Lines, change_head, head_lines, named, with_header
from mockllm.core.faults.view import View, view
from mockllm.core.response import End, Response, Segment

MAX_DECODED = 64 * 1024 * 1024
"""A body that is larger once decoded is left alone (bytes)."""

_NAME = b"content-encoding"
_IDENTITY = (b"", b"identity")
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class _Coding:
    """How a body is compressed: zlib's `wbits`; the header lines that say so, by their place among the head's lines.

    `finished`: the compressed stream came to its end, in an answer that ended as `end`. `alone_at`: when that end
    came, where it came in a piece that held nothing else (µs).
    """

    wbits: int
    labels: tuple[tuple[int, bytes], ...]
    finished: bool
    end: End
    alone_at: int | None = None


def identity(response: Response) -> tuple[Response, Callable[[Response], Response]]:
    """The response with its body decoded piece by piece, framed anew and without Content-Encoding; and a function that
    compresses a changed one again.

    Bytes that a piece of the compressed body does not give yet come with a later piece; a piece that gives none goes.
    What is compressed again is flushed after each piece, so that a client can decode all that it has. A stream that
    was cut short stays unfinished; where the changed response ends in another way it is finished if that is complete.
    An uncompressed response comes back as it is. Raises Meaningless for another encoding, for several, for corrupt
    bytes, and beyond MAX_DECODED.
    """
    parts = take_apart(response)
    name = coding_of(parts)
    if name in _IDENTITY:
        return response, _unchanged
    wbits = _wbits(name, parts.body[:2])
    pieces, finished, alone_at = _decoded(parts.pieces, wbits)
    coding = _Coding(wbits, _labels(parts), finished, response.end, alone_at)
    plain = take_apart(change_head(response, lambda lines: with_header(lines, _NAME, None)))
    return put_together(plain, pieces), lambda changed: _encoded(changed, coding)


def on_text(response: Response, change: Callable[[View], Response]) -> Response:
    """What `change` makes of a response whose body may be compressed: it gets a view of the decoded response and
    gives the changed one, decoded too.

    Where it changes nothing the response stays as it is. Raises Meaningless as `identity` and `change` do.
    """
    plain, again = identity(response)
    changed = change(view(plain))
    return response if changed == plain else again(changed)


def compressed(response: Response) -> Response:
    """The response as gzip, flushed after each piece. Raises Meaningless where it has no body or is compressed."""
    parts = take_apart(response)
    if coding_of(parts) not in _IDENTITY:
        raise Meaningless("the body is compressed already")
    if not parts.pieces:
        raise Meaningless("there is no body")
    plain = change_head(response, lambda lines: with_header(lines, b"Content-Encoding", b"gzip"))
    whole = response.end is End.COMPLETE
    return _encoded(plain, _Coding(_GZIP, _labels(take_apart(plain)), whole, response.end))


def coding_of(parts: Parts) -> bytes:
    """What the head says of the body's encoding, in lower case: b"gzip"; several are joined by a comma."""
    assert parts.found.head is not None, "take_apart refuses a response without a head"
    return b",".join(parts.found.head.values(_NAME))


def _unchanged(response: Response) -> Response:
    return response


def _labels(parts: Parts) -> tuple[tuple[int, bytes], ...]:
    """The lines of the head that name an encoding, with their places."""
    lines = head_lines(parts)
    return tuple((place, lines[place]) for place in named(lines, _NAME))


def _labelled(lines: Lines, labels: Sequence[tuple[int, bytes]]) -> Lines:
    found = with_header(lines, _NAME, None)
    for place, line in labels:
        found.insert(min(place, len(found) - 1), line)
    return found


def _encoded(response: Response, coding: _Coding) -> Response:
    """The response with its body compressed, flushed after each piece, framed anew and labelled."""
    parts = take_apart(change_head(response, lambda lines: _labelled(lines, coding.labels)))
    deflate = zlib.compressobj(wbits=coding.wbits)
    pieces = [
        Piece(piece.at, deflate.compress(piece.data) + deflate.flush(zlib.Z_SYNC_FLUSH)) for piece in parts.pieces
    ]
    finished = coding.finished if response.end is coding.end else response.end is End.COMPLETE
    if finished:
        rest, last = deflate.flush(), pieces[-1].at if pieces else parts.head_at
        if pieces and coding.alone_at is None:
            pieces[-1] = Piece(last, pieces[-1].data + rest)
        else:
            end_at = parts.tail[0].at if parts.tail else response.end_at
            pieces.append(Piece(max(last, min(coding.alone_at or 0, end_at)), rest))
    return put_together(parts, pieces)


def _wbits(name: bytes, start: bytes) -> int:
    if name in (b"gzip", b"x-gzip"):
        return _GZIP
    if name != b"deflate":
        raise Meaningless(f"the body is compressed as {name.decode('latin-1')}, which is not decoded here")
    # Some servers send deflate without zlib's header (RFC 9110 §8.4.1.2), which is told by its check bits (RFC 1950).
    wrapped = len(start) < 2 or (start[0] & 0x0F == 8 and int.from_bytes(start) % 31 == 0)
    return _ZLIB if wrapped else _RAW


def _decoded(pieces: Sequence[Segment], wbits: int) -> tuple[list[Piece], bool, int | None]:
    """The pieces decoded, whether the compressed stream came to its end, and when, where that came alone (µs)."""
    inflate = zlib.decompressobj(wbits)
    room = MAX_DECODED
    found: list[Piece] = []
    alone_at = None
    for piece in pieces:
        try:
            data = inflate.decompress(piece.data, room + 1)
        except zlib.error:
            raise Meaningless("the compressed body is corrupt") from None
        room -= len(data)
        if room < 0:
            raise Meaningless(f"the body is larger than {MAX_DECODED >> 20} MiB once it is decoded")
        if inflate.unused_data:
            raise Meaningless("something follows the end of the compressed body")
        if data:
            found.append(Piece(piece.at, data))
        elif inflate.eof:
            alone_at = piece.at
    return found, inflate.eof, alone_at
