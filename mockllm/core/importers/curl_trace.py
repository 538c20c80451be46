"""What `curl --trace` and `--trace-ascii` wrote: requests, the reads of their answers and, with --trace-time, when.

curl logs a head line by line and a body read by read, with its chunks and its compression as they came. How the
connection ended is told by `remarks`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate

from mockllm.core.errors import MockllmError
from mockllm.core.exchange import Exchange, Request, header
from mockllm.core.http1 import Framing
from mockllm.core.importers.base import (
    Given,
    Imported,
    exchange_of,
    refuse_given,
    request_from,
    request_note,
    segments_of,
)
from mockllm.core.importers.dots import restored
from mockllm.core.importers.heads import LAST_CHUNK, Shown, chunk, is_framed, shown_head, with_framing
from mockllm.core.importers.remarks import ending_of
from mockllm.core.importers.trace_lines import Block, Kind, blocks
from mockllm.core.importers.transfers import Transfer, begins_head, is_continue, request_of, transfers
from mockllm.core.response import End, Segment

KIND = "a curl trace"
HEAD_GAP_US = 1000
"""Lines of a head that curl logged closer to each other came in one read."""
_UNTIMED = "the trace has no times (--trace-time keeps them): {} (--gap 20ms puts so much between two reads)"
_DOTS = (
    "--trace-ascii shows bytes that do not print as dots: line ends are put back where the shape of the stream tells"
    " them, letters outside ASCII stay dots (--trace keeps them)"
)


@dataclass(slots=True)
class _Came:
    """What came for one request: lines of heads, pieces of body, remarks of curl (b"" for a close), all with their µs.

    So many of the lines, `interim`, belong to heads before the final one. `exact`: the body is known byte for byte.
    """

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    interim: int = 0
    data: list[tuple[int, bytes]] = field(default_factory=list)
    remarks: list[tuple[int, bytes]] = field(default_factory=list)
    exact: bool = True


def read_trace(data: bytes, source: str, given: Given) -> Imported:
    """Read a trace. Raises MockllmError where it is cut off, UsageError for options about what it tells itself."""
    refuse_given(given, KIND, "content_type", "end")
    found, strange = blocks(data, source)
    timed = all(block.at is not None for block in found)
    if timed:
        refuse_given(given, "a trace with times", "gap_us")
    notes = [f"{strange} lines that are no part of the trace are left out"] if strange else []
    if not timed:
        notes.append(_UNTIMED.format("each read comes right after the one before"))
    made = [_exchange(transfer, given, source, notes, timed=timed) for transfer in transfers(found)]
    exchanges = tuple(exchange for exchange in made if exchange is not None)
    if not exchanges:
        raise MockllmError(f"{source}: is a curl trace without a request and without an answer")
    return Imported(KIND, exchanges, tuple(dict.fromkeys(notes)))


def _exchange(transfer: Transfer, given: Given, source: str, notes: list[str], *, timed: bool) -> Exchange | None:
    request, note = request_of(transfer)
    if request is None:
        request = request_from(given)
        note = request_note(request)
    else:
        refuse_given(given, KIND, "method", "path")
    if request.method == "CONNECT":
        notes.append("CONNECT left out: it is between curl and its proxy")
        return None
    notes += [note] if note else []
    came = _came(transfer, request, notes, _step(given, timed=timed))
    shown = _final_head(came, request, notes, source)
    unframed = shown is not None and _frame(shown, came, request.method, notes)
    segments, tracker = segments_of(_reads(came, shown), request.method)
    last_at = segments[-1].at if segments else 0
    ending, note = ending_of(came.remarks, tracker, last_at, unframed=unframed)
    notes += [note] if note else []
    if unframed and ending.end is End.COMPLETE:
        segments += (Segment(ending.end_at, before=LAST_CHUNK),)
    if not came.exact:
        notes.append(_DOTS)
        segments = _without_dots(segments, shown)
    return exchange_of(request, segments, ending, given.framing, source)


def _step(given: Given, *, timed: bool) -> int | None:
    """The µs between two reads of a trace without times."""
    return None if timed else max(given.gap_us or 0, 1)


def _came(transfer: Transfer, request: Request, notes: list[str], step: int | None) -> _Came:
    """What came, on the scale of a Response."""
    came, skipping = _Came(), False
    for at, block in _timed(transfer, request, step):
        if begins_head(block):
            skipping, came.interim = is_continue(block), len(came.lines)
            notes += ["100 Continue left out: it answers curl's own Expect header"] if skipping else []
        if block.kind is Kind.INFO or not block.data:
            came.remarks.append((at, block.data))
        elif block.kind is Kind.RECV_DATA:
            came.exact = came.exact and block.exact
            came.data.append((at, block.data))
        elif came.data:
            notes.append("trailers of HTTP/2 are left out")
        elif not skipping:
            came.lines.append((at, block.data if block.exact else _with_line_end(block.data)))
    return came


def _timed(transfer: Transfer, request: Request, step: int | None) -> Iterator[tuple[int, Block]]:
    """Each block with µs since the request was fully sent, or began where the answer is early (Segment)."""
    base = transfer.began if request.early else transfer.sent
    reads = 0
    for block in transfer.came:
        reads += begins_head(block) or block.kind is Kind.RECV_DATA
        base = block.at if base is None else base
        if step is None and block.at is not None and base is not None:
            yield max(0, block.at - base), block
        else:
            yield reads * (step or 1), block


def _with_line_end(line: bytes) -> bytes:
    """A line of a head from a text dump: where it does not end with CRLF, its LF became a dot."""
    return line if line.endswith(b"\r\n") else line[:-1] + b"\n"


def _final_head(came: _Came, request: Request, notes: list[str], source: str) -> Shown | None:
    """The head of the answer, as HTTP/1.1 where it came as HTTP/2; None where it is not whole."""
    shown = shown_head(b"".join(line for _, line in came.lines[came.interim :]), as_sent=True)
    if shown is None:
        return None
    if not came.exact and shown.head.values(b"content-encoding"):
        raise MockllmError(f"{source}: the body is compressed, and --trace-ascii lost its bytes: use --trace")
    shown = with_framing(shown, request.method)
    notes += shown.notes
    return shown


def _frame(shown: Shown, came: _Came, method: str, notes: list[str]) -> bool:
    """Put every read of a body that the trace shows without chunks into one; False where it has them, or none."""
    body = b"".join(data for _, data in came.data)
    if shown.framing(method) is not Framing.CHUNKED or is_framed(body) or not (body or shown.newer):
        return False
    if not shown.newer:
        notes.append("the trace shows the body without its chunks: written with one for each read")
    came.data = [(at, chunk(data)) for at, data in came.data]
    return True


def _reads(came: _Came, shown: Shown | None) -> list[tuple[int, bytes]]:
    """The reads (µs, bytes) in order, all of them at different times."""
    found: list[tuple[int, bytes]] = []
    last = 0
    for at, line in came.lines:
        if found and at - last <= HEAD_GAP_US:
            found[-1] = (found[-1][0], found[-1][1] + line)
        else:
            found.append((at, line))
        last = at
    head = b"".join(line for _, line in came.lines)
    final = b"".join(line for _, line in came.lines[came.interim :])
    if shown is not None and shown.raw != final:
        found = [(found[-1][0], head.removesuffix(final) + shown.raw)]
    found += came.data
    times = accumulate((at for at, _ in found), lambda before, at: max(before + 1, at))
    return [(at, data) for at, (_, data) in zip(times, found, strict=True)]


def _without_dots(segments: tuple[Segment, ...], shown: Shown | None) -> tuple[Segment, ...]:
    """The segments with the line ends of their body put back."""
    kind = None if shown is None else header(shown.head.headers, b"content-type")
    body = restored(b"".join(segment.data for segment in segments), kind)
    stops = list(accumulate(len(segment.data) for segment in segments))
    return tuple(
        replace(segment, data=body[stop - len(segment.data) : stop])
        for segment, stop in zip(segments, stops, strict=True)
    )
