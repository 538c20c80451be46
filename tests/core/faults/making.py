"""Responses for tests of faults: written by hand in a few words, or drawn in every framing, cut into any reads."""

import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

from hypothesis import strategies as st

from mockllm.core.http1 import Framing, Tracker, scan
from mockllm.core.response import End, Response, Segment, Then
from tests.captures import Capture

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
TARGET = b"/v1/chat/completions"

FRAMING_LINES = {"chunked": "Transfer-Encoding: chunked\r\n", "length": "Content-Length: {}\r\n", "close": ""}


def response(
    framing: str,
    *reads: tuple[int, Sequence[bytes] | bytes],
    head_at: int = 1000,
    media: str = SSE,
    lines: str = "",
    version: str = "1.1",
    end: End = End.COMPLETE,
    end_at: int | None = None,
    then: Then | None = None,
    promised: int | None = None,
    method: str = "POST",
) -> Response:
    """A 200 with that body: for each read (µs) its pieces, one chunk each in chunked framing.

    A whole answer gets its last chunk with the last read. `promised` is a Content-Length that says more than there is.
    """
    pieces = [(at, data) for at, read in reads for data in ([read] if isinstance(read, bytes) else read)]
    total = sum(len(data) for _, data in pieces) if promised is None else promised
    head = f"HTTP/{version} 200 OK\r\nContent-Type: {media}\r\n{FRAMING_LINES[framing].format(total)}{lines}\r\n"
    if framing == "chunked":
        body = [Segment(at, data, b"%x\r\n" % len(data), b"\r\n") for at, data in pieces]
    else:
        body = [Segment(at, data) for at, data in pieces]
    last = max([head_at, *(at for at, _ in pieces)])
    if framing == "chunked" and end is End.COMPLETE:
        body.append(Segment(last, before=b"0\r\n\r\n"))
    if then is None:
        then = Then.FIN if framing == "close" and end is End.COMPLETE else Then.OPEN
    end_at = last if end_at is None else end_at
    segments = (Segment(head_at, before=head.encode()), *body)
    return Response(segments, end, end_at, then, end_at if then is not Then.OPEN else 0, method, TARGET)


def from_capture(capture: Capture) -> Response:
    """What a real server sent; complete where its end is seen, else as the client that left."""
    whole = tracked(capture.reads, capture.method)
    complete = capture.ending == "eof" and scan(whole).whole
    end = End.COMPLETE if complete else End.FIN if capture.ending == "eof" else End.CLIENT
    then = Then.FIN if complete else Then.OPEN
    target = capture.request.split(b" ", 2)[1]
    return Response(whole.segments, end, capture.end_at, then, capture.end_at, capture.method, target)


def tracked(
    reads: Sequence[tuple[int, bytes]], method: str = "POST", end: End = End.COMPLETE, then: Then = Then.OPEN
) -> Response:
    """The response of these reads, cut into segments as the recorder does."""
    tracker = Tracker(method)
    segments = [segment for at, data in reads for segment in tracker.feed(at, data)]
    end_at = reads[-1][0] if reads else 0
    return Response(tuple(segments), end, end_at, then, end_at, method, TARGET)


def writes(bent: Response) -> list[tuple[int, bytes]]:
    """What is written when, one entry a write."""
    return [(at, data) for at, data in bent.reads() if data]


def chunks(bent: Response) -> list[tuple[int, bytes]]:
    """The body's pieces with their times."""
    return [(segment.at, segment.data) for segment in scan(bent).segments if segment.data]


def body(bent: Response) -> bytes:
    return scan(bent).body


def strictly_whole(bent: Response) -> bool:
    """Is it an answer that every client takes for whole, without a byte too many?"""
    found = scan(bent)
    length = sum(len(segment.wire) for segment in found.segments)
    return found.whole and not found.bad and not found.missing and length == len(bent.wire)


def all_at(at: int, bent: Response) -> Response:
    """The same segments, all at one time."""
    segments = tuple(Segment(at, s.data, s.before, s.after) for s in bent.segments)
    return Response(segments, bent.end, at, bent.then, at, bent.method, bent.target)


def gzipped(reads: list[tuple[int, bytes]]) -> Response:
    """A compressed stream, flushed after each read."""
    deflate = zlib.compressobj(wbits=31)
    packed = [(at, deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)) for at, text in reads]
    packed[-1] = (packed[-1][0], packed[-1][1] + deflate.flush())
    return response("chunked", *packed, lines="Content-Encoding: gzip\r\n")


def inflated(played: Response) -> list[tuple[int, bytes]]:
    """What a client has decoded of each piece when it came."""
    inflate = zlib.decompressobj(wbits=31)
    return [(at, inflate.decompress(data)) for at, data in chunks(played)]


# ---------------------------------------------------------------- drawn ones

EVENTS = [
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n',
    'data: {"c":"é€😀  \x85"}\n\n'.encode(),
    b"data: 1\r\n\r\n",
    b"data:2\r\r",
    b"event: ping\ndata: {}\n\n",
    b": keepalive 1/2\n\n",
    b"retry: 3000\n\n",
    b"data\n\n",
    b"id: 7\ndata: a\ndata: b\n\n",
    b"\n",
    b"data: \xff\0\n\n",
    b"data: [DONE]\n\n",
]
LINES = [b'{"response":"a","done":false}\n', '{"response":"é"}\r\n'.encode(), b"\n", b'{"done":true}\n', b'{"done":tr']
ENDINGS = [End.FIN, End.RST, End.HANG, End.CLIENT]


@st.composite
def bodies(draw: st.DrawFn, ndjson: bool = False) -> bytes:
    """A stream of events, often with an unfinished tail, now and then with a byte order mark."""
    parts = draw(st.lists(st.sampled_from(LINES if ndjson else EVENTS), max_size=8))
    text = b"".join(parts)
    if not ndjson and draw(st.booleans()) and draw(st.booleans()):
        text = b"\xef\xbb\xbf" + text
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@st.composite
def responses(draw: st.DrawFn, ndjson: bool = False) -> Response:
    """Any answer with a body, as a recorder cuts it: any framing, ending and reads, whole or broken off anywhere."""
    text = draw(bodies(ndjson=ndjson))
    framing = draw(st.sampled_from(["chunked", "length", "close"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)]) if b > a]
    made = response(framing, *((2000, piece) for piece in pieces), media=NDJSON if ndjson else SSE)
    spelled = b"".join(draw(_spelling(segment)) for segment in made.segments)
    end, then = End.COMPLETE, made.then
    if draw(st.booleans()):
        head = len(made.segments[0].wire)
        spelled = spelled[: draw(st.integers(head, len(spelled)))]
        end, then = draw(st.sampled_from(ENDINGS)), Then.OPEN
        if not scan(tracked([(0, spelled)])).done:
            return draw(_read(spelled, end, then))
        end = End.COMPLETE
    return draw(_read(spelled, end, Then.FIN if framing == "close" else draw(st.sampled_from(list(Then)))))


@st.composite
def _spelling(draw: st.DrawFn, segment: Segment) -> bytes:
    """A segment's bytes, its chunk now and then with an unusual size line."""
    if not segment.data or not segment.before or draw(st.booleans()):
        return segment.wire
    size = draw(st.sampled_from([b"%X\r\n", b"00%x\r\n", b"%x;a=b\r\n", b"%x\n"]))
    return size % len(segment.data) + segment.data + segment.after


@st.composite
def _read(draw: st.DrawFn, wire: bytes, end: End, then: Then) -> Response:
    """These bytes in some reads at some times."""
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(wire) - 1)), max_size=8)))
    gaps = draw(st.lists(st.integers(1, 90_000), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    reads = [(at, wire[a:b]) for at, (a, b) in zip(accumulate(gaps), pairwise([0, *cuts, len(wire)]), strict=True)]
    made = tracked(reads, end=end, then=then)
    later = draw(st.integers(0, 90_000))
    closing = scan(made).framing is Framing.CLOSE or end is not End.COMPLETE
    end_at = made.end_at + (later if closing else 0)
    return Response(made.segments, end, end_at, then, end_at + (0 if closing else later), "POST", TARGET)
