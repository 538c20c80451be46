"""The one loop that writes a response on time: a response becomes a plan, and a plan is written on a wire.

Every read of the recording is one write, aimed at an absolute time, so that lateness never adds up. It must not know
what a wire really is, what time really is, or which bytes it writes.
"""

import asyncio
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from statistics import median_low
from typing import Any, Protocol, overload

from mockllm.clock import Clock
from mockllm.core.http1 import Framing, scan
from mockllm.core.response import End, Response, Then


class Wire(Protocol):
    """One client's connection, as far as playing needs it. Once the client has left, every call is harmless."""

    @property
    def left(self) -> asyncio.Future[Any]:
        """Resolved when the client left, however."""
        ...

    def write(self, data: bytes) -> None:
        """Send now, in one go; what the socket does not take is buffered."""
        ...

    async def drain(self) -> None:
        """Wait while the client reads more slowly than this writes."""
        ...

    def finish(self, keep_open: bool) -> None:
        """The answer is over: the connection is ready for the next request, or is closed once all is sent."""
        ...

    @property
    def superseded(self) -> bool:
        """Whether the client has sent another request on this connection."""
        ...

    def close(self) -> None:
        """Close a connection that `finish` left open, unless another request is being answered on it."""
        ...

    async def reset(self) -> None:
        """Reset the connection, once all that was written is delivered. Returns also where the client leaves first."""
        ...


class Ending(Enum):
    """What happens to the connection in the end."""

    KEEP = auto()
    """The answer is complete and the connection stays usable."""
    FIN = auto()
    RST = auto()
    HANG = auto()
    """Silence until the client leaves."""


_THEN = {Then.OPEN: Ending.KEEP, Then.FIN: Ending.FIN, Then.RST: Ending.RST}
_END = {End.FIN: Ending.FIN, End.RST: Ending.RST, End.HANG: Ending.HANG}

MAX_WRITE = 256 * 1024
"""Bytes of one write: no read of a recording is larger, but at speed 0 all of an answer is one."""


HELD_US = 50_000
"""A connection that the server closes within this time after an answer is held until then: a recorder watched it so
long. A later close finds it idle, or in use again, and then it does not come."""


class Steps(Sequence[tuple[int, int, int]]):
    """What to write when, (due, start, stop) each: two arrays, since a stream may be cut into a million bytes."""

    __slots__ = ("_dues", "_stops")

    def __init__(self, steps: Iterable[tuple[int, int, int]]) -> None:
        """Each step starts where the one before it stops."""
        self._dues, self._stops = array("q"), array("q", [0])
        for due, _, stop in steps:
            self._dues.append(due)
            self._stops.append(stop)

    def __len__(self) -> int:
        return len(self._dues)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, int, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int, int] | Sequence[tuple[int, int, int]]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self._dues[place], self._stops[place], self._stops[place + 1]

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self._dues, self._stops, self._stops[1:], strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclass(frozen=True, slots=True)
class Plan:
    """When to write what, and how to end. Times are µs since the request was fully sent.

    `steps` are (due, start, stop): at `due` the bytes `buffer[start:stop]` are one write; together they are the buffer,
    in order. `ending_at` says when the ending comes (nothing for HANG). `over_at` is when the answer is complete, where
    the server closes the connection some time after that: a client that asked to close gets its FIN then.
    """

    buffer: bytes
    steps: Sequence[tuple[int, int, int]]
    ending: Ending
    ending_at: int
    over_at: int | None = None

    def ending_for(self, keep_alive: bool) -> tuple[Ending, int]:
        """The ending and its time for a client that would use the connection again (keep_alive), or asked to close."""
        if self.over_at is not None and not keep_alive:
            return Ending.FIN, self.over_at
        return self.ending, self.ending_at

    def closes_idle(self, keep_alive: bool) -> bool:
        """Does the server close the connection so long after the answer that the client may use it again before?"""
        return keep_alive and self.over_at is not None and self.ending_at - self.over_at > HELD_US


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a plan.

    Lateness is that of the writes (µs behind their due time, 0 where there was none), what a slow reader caused
    included. `client_left`: before the answer was over, or from a hang; leaving a complete answer does not count.
    """

    bytes_written: int
    writes: int
    late_max_us: int
    late_median_us: int
    client_left: bool


def plan(response: Response, *, on_client: End = End.CLIENT) -> Plan:
    """Decide when each read of a response is written, and how it ends.

    Where the recorded client left before the answer was whole: a FIN where the framing shows the loss, else a RST
    (`on_client` CLIENT), or silence (`on_client` HANG).
    """
    steps = Steps(_steps(response))
    last = steps[-1][0] if steps else 0
    ending = _ending(response, on_client)
    if ending is Ending.KEEP:
        return Plan(response.wire, steps, ending, ending_at=last)
    end_at = max(last, response.end_at)
    if response.end is not End.COMPLETE:
        return Plan(response.wire, steps, ending, ending_at=end_at)
    return Plan(response.wire, steps, ending, ending_at=max(end_at, response.then_at), over_at=end_at)


def _steps(response: Response) -> Iterator[tuple[int, int, int]]:
    """One write a read, but that a huge one goes in pieces, so that a slow reader of it costs little memory."""
    start = 0
    for at, data in response.reads():
        stop = start + len(data)
        for piece in range(start, stop, MAX_WRITE):
            yield at, piece, min(piece + MAX_WRITE, stop)
        start = stop


def _ending(response: Response, on_client: End) -> Ending:
    if response.end is End.COMPLETE:
        return _THEN[response.then]
    if response.end is End.CLIENT:
        return _ending_unknown(response, on_client)
    return _END[response.end]


def _ending_unknown(response: Response, on_client: End) -> Ending:
    """An ending that no client can take for the end of a whole answer, unless the answer is whole."""
    found = scan(response)
    if found.done:
        return Ending.KEEP
    if on_client is End.HANG:
        return Ending.HANG
    return Ending.FIN if found.framing in (Framing.LENGTH, Framing.CHUNKED) else Ending.RST


async def play(plan: Plan, wire: Wire, clock: Clock, started_us: int, *, keep_alive: bool) -> Played:
    """Write a plan on a wire and end as it says.

    `started_us` is the clock's time at which the request was fully there; deadlines count from it. `keep_alive`: the
    client would use the connection again. Returns at once when the client leaves, also in a silence; a cancellation
    from elsewhere is raised as CancelledError.
    """
    late: list[int] = []  # µs, one for each write
    over = False
    ending, ending_at = plan.ending_for(keep_alive)
    with _cut_short_by(wire.left):
        for due, start, stop in plan.steps:
            await clock.until(started_us + due)
            late.append(clock.now() - started_us - due)
            wire.write(plan.buffer[start:stop])
            await wire.drain()
        if plan.over_at is not None:
            await _reach(clock, started_us + plan.over_at)
            over = True
        if ending is Ending.HANG:
            await asyncio.get_running_loop().create_future()
        if plan.closes_idle(keep_alive):
            ending = Ending.KEEP
        else:
            await _reach(clock, started_us + ending_at)
    left = wire.left.done()
    if not left:
        await _end(wire, ending, keep_alive)
    return Played(
        bytes_written=plan.steps[len(late) - 1][2] if late else 0,
        writes=len(late),
        late_max_us=max(late, default=0),
        late_median_us=median_low(late) if late else 0,
        client_left=left and not over,
    )


async def _reach(clock: Clock, due: int) -> None:
    if due > clock.now():
        await clock.until(due)


async def close_idle(plan: Plan, wire: Wire, clock: Clock, started_us: int) -> None:
    """Close the connection as the plan says, some time after its answer, where it is still idle then.

    For a plan that `closes_idle`, after `play`.
    """
    with _cut_short_by(wire.left):
        await clock.until(started_us + plan.ending_at)
    if wire.left.done() or wire.superseded:
        return
    if plan.ending is Ending.RST:
        await wire.reset()
    else:
        wire.close()


async def _end(wire: Wire, ending: Ending, keep_alive: bool) -> None:
    if ending is Ending.RST:
        await wire.reset()
    else:
        wire.finish(keep_open=keep_alive and ending is Ending.KEEP)


@contextmanager
def _cut_short_by(left: asyncio.Future[Any]) -> Iterator[None]:
    """Run the block until the future is resolved, then go on after it; this costs nothing per await.

    As asyncio.timeout does it: the future's callback cancels the task, and the way out tells that cancellation from any
    other, which stays one.
    """
    task = asyncio.current_task()
    assert task is not None, "only a task can be cut short"
    before = task.cancelling()
    inside, cut = True, False

    def cancel(_left: asyncio.Future[Any]) -> None:
        nonlocal cut
        if inside:  # else the block ended just as the future was resolved
            cut = True
            task.cancel()

    left.add_done_callback(cancel)
    try:
        yield
    except asyncio.CancelledError:
        if not cut or task.cancelling() > before + 1:
            raise
    finally:
        inside = False
        left.remove_done_callback(cancel)
        if cut:
            task.uncancel()
