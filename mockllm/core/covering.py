"""A finished answer without credentials. Where one stands in a compressed body, that is stored decoded.

It must not know how an answer came here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from operator import itemgetter

from mockllm.core.decoding import decode
from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.body import Piece, put_together, take_apart
from mockllm.core.faults.head import change_head, with_header
from mockllm.core.http1 import Framing, Head, Tracker
from mockllm.core.masking import Mask, Part
from mockllm.core.redact import Names
from mockllm.core.response import Response
from mockllm.core.secrets import Secrets

CODINGS = frozenset((b"gzip", b"x-gzip", b"deflate"))
"""The content codings that can be looked into, in lower case."""

CONTENT_ENCODING = b"content-encoding"


@dataclass(frozen=True, slots=True)
class Covered:
    """`decoded`: the body was compressed and is no more. `unseen` says in a few words why a compressed body could not
    be searched, or not all of it.
    """

    response: Response
    decoded: bool = False
    unseen: str | None = None


def coding_of(head: Head) -> bytes:
    """How a body is compressed, in lower case: b"gzip"; several are joined by a comma, b"" is not at all."""
    return b",".join(coding for coding in head.values(CONTENT_ENCODING) if coding != b"identity")


def cover(response: Response, names: Names, secrets: Secrets) -> Covered:
    """The answer with its credentials masked: by name in its head, and secrets by value wherever they stand."""
    opened = _opened(response, secrets) if secrets else Covered(response)
    return replace(opened, response=_masked(opened.response, names, secrets))


def _opened(response: Response, secrets: Secrets) -> Covered:
    """The answer with its body decoded, if a secret is in it."""
    try:
        parts = take_apart(response)
    except Meaningless:
        return Covered(response)
    assert parts.found.head is not None, "take_apart refuses a response without a head"
    coding = coding_of(parts.found.head)
    if not coding:
        return Covered(response)
    decoded = decode(coding, [piece.data for piece in parts.pieces])
    text = b"".join(decoded.pieces)
    if not secrets.spans(text):
        return Covered(response, unseen=decoded.problem)
    pieces = _cut(secrets.cover(text), decoded.pieces)
    plain = take_apart(change_head(response, lambda lines: with_header(lines, CONTENT_ENCODING, None)))
    made = [Piece(piece.at, data) for piece, data in zip(parts.pieces, pieces, strict=True)]
    return Covered(put_together(plain, made), decoded=True)


def _masked(response: Response, names: Names, secrets: Secrets) -> Response:
    mask, tracker = Mask(names, secrets), Tracker(response.method)
    reads = ((at, data, tracker.feed(at, data)) for at, data in response.reads())
    parts = [part for at, data, segments in reads for part in mask.feed(at, data, tracker, segments)] + mask.finish()
    tracker = Tracker(response.method)
    segments = [segment for at, data in _reads(parts) for segment in tracker.feed(at, data)]
    if secrets and tracker.framing is Framing.CHUNKED:
        data = [segment.data for segment in segments]
        masked = _cut(secrets.cover(b"".join(data)), data)
        segments = [replace(segment, data=data) for segment, data in zip(segments, masked, strict=True)]
    changed = replace(response, segments=tuple(segments))
    return response if changed.wire == response.wire else changed


def _reads(parts: Iterable[Part]) -> Iterable[Part]:
    """Parts of reads as whole ones."""
    for at, group in groupby(parts, key=itemgetter(0)):
        yield at, b"".join(data for _, data in group)


def _cut(text: bytes, like: Sequence[bytes]) -> list[bytes]:
    """A text in pieces of the lengths of these."""
    stops = list(accumulate(map(len, like), initial=0))
    return [text[start:stop] for start, stop in pairwise(stops)]
