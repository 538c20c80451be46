"""Opens a compressed body to look into it: gzip and deflate, as far as it can be read, within a bound.

It never raises and changes nothing; a body that is to be compressed again is for the faults.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

MAX_DECODED = 64 * 1024 * 1024
"""A body is not decoded beyond this (bytes)."""

_IDENTITY = (b"", b"identity")
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Decoded:
    """`pieces`: what each of the given ones adds to the text, b"" where that comes with a later one.

    `problem` says in a few words what kept the rest from being read, if anything did. `finished`: the compressed stream
    came to its end (true for a body that is not compressed).
    """

    pieces: tuple[bytes, ...]
    problem: str | None
    finished: bool


def decode(coding: bytes, pieces: Sequence[bytes]) -> Decoded:
    """Decode the pieces of a body; `coding` is its Content-Encoding in lower case (RFC 9110 §8.4), several joined by a
    comma.
    """
    if coding in _IDENTITY:
        return Decoded(tuple(pieces), None, finished=True)
    wbits = _wbits(coding, b"".join(piece[:2] for piece in pieces)[:2])
    if wbits is None:
        name = coding.decode("ascii", "backslashreplace")
        return Decoded((b"",) * len(pieces), f"compressed as {name}, which is not decoded here", finished=False)
    inflate = zlib.decompressobj(wbits)
    room = MAX_DECODED
    found: list[bytes] = []
    problem = None
    for piece in pieces:
        text = b""
        if problem is None:
            text, problem = _inflated(inflate, piece, room)
        found.append(text)
        room -= len(text)
    return Decoded(tuple(found), problem, inflate.eof)


def _inflated(inflate: "zlib._Decompress", piece: bytes, room: int) -> tuple[bytes, str | None]:
    """The text that a piece adds, and what is wrong with it."""
    try:
        # 0 would mean: no bound.
        text = inflate.decompress(piece, max(room, 1))
    except zlib.error:
        return b"", "the compressed body is corrupt"
    if inflate.unconsumed_tail or len(text) > room:
        return text[: max(room, 0)], f"larger than {MAX_DECODED >> 20} MiB once decoded"
    if inflate.unused_data:
        return text, "something follows the end of the compressed body"
    return text, None


def _wbits(coding: bytes, start: bytes) -> int | None:
    if coding in (b"gzip", b"x-gzip"):
        return _GZIP
    if coding != b"deflate":
        return None
    # Some servers send deflate without zlib's header (RFC 9110 §8.4.1.2); its check bits (RFC 1950 §2.2) tell.
    wrapped = len(start) < 2 or (start[0] & 0x0F == 8 and int.from_bytes(start) % 31 == 0)
    return _ZLIB if wrapped else _RAW
