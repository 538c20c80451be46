"""What is odd about a head, and about what came in its place."""

import re
from collections import Counter
from collections.abc import Iterator

from mockllm.core.events import SseReader, reader_for
from mockllm.core.http1 import Framing
from mockllm.core.look import Look
from mockllm.core.oddities.base import Check
from mockllm.core.shown import shown_bytes

_INTERIM = re.compile(rb"HTTP/[0-9.]+ (1[0-9]{2})\b")
_CHARSET = re.compile(rb"(?i)charset\s*=\s*[\"']?([^\s;\"']+)")
_SEVERAL = frozenset((b"set-cookie", b"vary", b"link", b"via", b"cache-control", b"warning"))
"""Headers that servers and proxies lawfully send more than once."""


def no_head(look: Look) -> Iterator[str]:
    """Nothing, half a head, or no HTTP at all."""
    if look.found.head is not None:
        return
    if not look.found.segments:
        yield "nothing came, not even a head"
    elif look.found.bad:
        yield f"the answer is no HTTP: it begins {shown_bytes(look.response.wire[:20])}"
    else:
        yield "the head never came to its end"


def version(look: Look) -> Iterator[str]:
    """HTTP/1.0, also with chunks, which it does not know."""
    if look.found.head is None or look.found.head.version != "1.0":
        return
    chunks = look.found.framing is Framing.CHUNKED
    yield "HTTP/1.0 with chunks, which HTTP/1.0 does not know" if chunks else "HTTP/1.0, not 1.1"


def interim(look: Look) -> Iterator[str]:
    """Heads before the head."""
    heads = b"".join(segment.before for segment in look.found.segments[: look.found.head_segments])
    for status in _INTERIM.findall(heads):
        yield f"an interim head ({status.decode()}) before the head"


def in_pieces(look: Look) -> Iterator[str]:
    """A head over several reads, or with bare line feeds."""
    segments = look.found.segments[: look.found.head_segments]
    reads = len({segment.at for segment in segments})
    if reads > 1:
        yield f"the head came in {reads} reads"
    if b"\n" in b"".join(segment.before for segment in segments).replace(b"\r\n", b""):
        yield "lines of the head end with LF instead of CRLF"


def content_type(look: Look) -> Iterator[str]:
    """None, another one than the body is, or a charset that does not count."""
    if not look.body:
        return
    stated = look.content_type
    if stated is None:
        yield "no Content-Type"
    elif reader_for(stated) is None and look.stream_type is not None:
        yield f"Content-Type is {shown_bytes(stated)}, but the body is server-sent events"
    elif isinstance(reader_for(stated), SseReader) and (found := _CHARSET.search(stated)):
        if found[1].lower() not in (b"utf-8", b"utf8"):
            yield f"charset {shown_bytes(found[1])} for server-sent events, which are always UTF-8"
    elif b"json" in stated.lower() and reader_for(stated) is None and look.values == [None]:
        yield f"Content-Type is {shown_bytes(stated)}, but the body is no JSON"


def duplicates(look: Look) -> Iterator[str]:
    """A header twice, framing headers that contradict each other included."""
    head = look.found.head
    if head is None:
        return
    counts = Counter(name.strip().lower() for name, _ in head.headers)
    for name, count in counts.items():
        if count > 1 and name not in _SEVERAL:
            yield f"header {shown_bytes(name)} is there {count} times"
    if counts[b"transfer-encoding"] and counts[b"content-length"]:
        yield "both Transfer-Encoding and Content-Length"


def compressed(look: Look) -> Iterator[str]:
    """A compressed body, and what keeps it from being read."""
    if not look.coding or not look.pieces:
        return
    yield f"the body is compressed ({look.coding.decode('ascii', 'backslashreplace')})"
    if look.decoded.problem is not None:
        yield f"not all of the body can be read: {look.decoded.problem}"
    elif not look.decoded.finished:
        yield "the compressed body never came to its end"


CHECKS: tuple[Check, ...] = (no_head, version, interim, in_pieces, content_type, duplicates, compressed)
