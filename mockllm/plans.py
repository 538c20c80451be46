"""The plans of recordings: read, bent and made once, then kept within a bound for the next time they are played.

It knows what is played, not by whom or when.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mockllm import files
from mockllm.core.decoding import decode
from mockllm.core.events import Kind, reader_for
from mockllm.core.exchange import Exchange, header
from mockllm.core.faults.base import Fault
from mockllm.core.faults.bend import bend
from mockllm.core.http1 import Scan, scan
from mockllm.core.response import Response
from mockllm.files import Recording
from mockllm.play import Plan

MAX_PLANS = 64 * 1024 * 1024
"""Bytes of all the plans that are kept."""


SMALL = 16 * 1024
"""A recording of so many bytes on disk is read in a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be played: a recording, the faults that fire, and whether its head says that it is but the closest."""

    recording: Recording
    faults: tuple[Fault, ...] = ()
    closest: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, and what is worth knowing of it.

    `early`: the recorded answer began before its request was fully sent. `idle`: for each fault None, or why it had no
    effect. `event_ends`: where in the plan's bytes each event ends that a client gets.
    """

    plan: Plan
    early: bool
    idle: tuple[str | None, ...]
    status: int | None
    event_ends: tuple[int, ...]


class Plans:
    """Makes what is wanted, once. `prepare` is applied before the faults, `finish` (with closest) after them."""

    def __init__(
        self,
        prepare: Callable[[Response], Response],
        finish: Callable[[Response, bool], Response],
        plan: Callable[[Response], Plan],
    ) -> None:
        self._prepare, self._finish, self._plan = prepare, finish, plan
        self._kept: OrderedDict[Wanted, tuple[files.Stamp, Made]] = OrderedDict()
        self._size = 0
        self._making: dict[Wanted, asyncio.Future[tuple[files.Stamp, Made]]] = {}

    async def get(self, wanted: Wanted) -> Made:
        """The plan; made anew where the file changed. A bent or a large one takes its time in a thread: others play on.

        Raises CassetteError, or MockllmError where the file is gone.
        """
        found = self._find(wanted)
        if found is not None:
            return found
        if not wanted.faults and wanted.recording.place.stop - wanted.recording.place.start <= SMALL:
            return self._keep(wanted, *self._read(wanted))
        making = self._making.get(wanted)
        if making is None:  # two who want the same wait for one
            making = self._making[wanted] = asyncio.ensure_future(asyncio.to_thread(self._read, wanted))
            making.add_done_callback(lambda _: self._making.pop(wanted, None))
        made = await asyncio.shield(making)
        return self._find(wanted) or self._keep(wanted, *made)

    def _find(self, wanted: Wanted) -> Made | None:
        stamp = files.stamp(wanted.recording.path)
        kept = self._kept.pop(wanted, None)
        if kept is not None and kept[0] != stamp:
            self._size -= _cost(kept[1])
        elif kept is not None:
            self._kept[wanted] = kept
            return kept[1]
        return None

    def _keep(self, wanted: Wanted, stamp: files.Stamp, made: Made) -> Made:
        self._kept[wanted] = stamp, made
        self._size += _cost(made)
        while self._size > MAX_PLANS and len(self._kept) > 1:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._size -= _cost(oldest)
        return made

    def _read(self, wanted: Wanted) -> tuple[files.Stamp, Made]:
        stamp = files.stamp(wanted.recording.path)
        return stamp, self._make(wanted, files.read(wanted.recording))

    def _make(self, wanted: Wanted, exchange: Exchange) -> Made:
        bent = bend(self._prepare(exchange.response), wanted.faults)
        response = self._finish(bent.response, wanted.closest)
        found = scan(response)
        status = None if found.head is None else found.head.status
        return Made(self._plan(response), exchange.request.early, bent.idle, status, event_ends(found))


def event_ends(found: Scan) -> tuple[int, ...]:
    """Where in the response's bytes on the wire each event ends that a client gets; of a compressed one, where the
    piece ends that completes it. None in a body that is no stream of events, or cannot be decoded.
    """
    reader = None if found.head is None else reader_for(header(found.head.headers, b"content-type"))
    if found.head is None or reader is None:
        return ()
    coding = b",".join(value for value in found.head.values(b"content-encoding") if value != b"identity")
    texts = decode(coding, [segment.data for segment in found.segments]).pieces
    ends = []
    wire = text = last = 0
    for segment, piece in zip(found.segments, texts, strict=True):
        start = wire + len(segment.before)
        spans = [span for span in reader.feed(piece) if span.kind is Kind.EVENT]
        ends += [start + (len(segment.data) if coding else span.stop - text) for span in spans]
        last = start + len(segment.data) if segment.data else last
        wire += len(segment.wire)
        text += len(piece)
    ends += [last for span in reader.close() if span.kind is Kind.EVENT]
    return tuple(ends)


def _cost(made: Made) -> int:
    """What a plan takes in memory, in bytes, nearly."""
    return 2000 + len(made.plan.buffer) + 16 * len(made.plan.steps) + 40 * len(made.event_ends)
