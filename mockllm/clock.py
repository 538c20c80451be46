"""Waits until absolute times, many at once, never early: one heap and one timer for a whole event loop.

On Linux the timer is a timerfd, since event loops themselves tick in milliseconds (uvloop's even fire early);
elsewhere it is the loop's own. It must not know what is waited for.
"""

import asyncio
import os
import struct
import sys
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits for it. Times are int µs on one monotonic scale."""

    def now(self) -> int:
        """µs."""
        ...

    async def until(self, due: int) -> None:
        """Return at or after `due` (µs), never before. Gives way to other tasks at least once, however late it is."""
        ...


class Timer(Protocol):
    """Calls back once, at a time that can be moved; a call that comes early or for nothing does no harm."""

    def set(self, due: int | None) -> None:
        """Call at `due` (µs, `HeapClock.now`) instead of what was set before; None: not at all."""
        ...

    def close(self) -> None: ...


class TimerFd:
    """Linux's timer (timerfd_create(2)): absolute, exact to the nanosecond, and a file that any loop can watch.

    Raises OSError where the kernel has none to give.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._fd, self._settime = _open_timerfd()
        loop.add_reader(self._fd, wake)

    def set(self, due: int | None) -> None:
        # Setting it also takes back an expiry that was signalled, so the file never has to be read.
        self._settime(0 if due is None else due * 1000)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


class LoopTimer:
    """The loop's own timer.

    asyncio's may be a millisecond late. uvloop's may be early, and in the last half millisecond, which it rounds to
    nothing, it calls again and again: exact, at the cost of processor time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due: int | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None if due is None else self._loop.call_later((due - now()) / 1e6, self._wake)

    def close(self) -> None:
        self.set(None)


class HeapClock:
    """The real clock of one event loop. Everything but `now` must be called in that loop's thread.

    `timer` makes the timer; by default the best that the platform has.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timer: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Timer] | None = None,
    ) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()  # among equal times the first to ask is the first to go on
        self._dead = 0  # entries in the heap whose waiter was cancelled
        self._armed: int | None = None
        self._timer: Timer = (timer or best_timer)(loop, self._wake)

    def now(self) -> int:
        """µs of the system's monotonic clock."""
        return now()

    @property
    def waiting(self) -> int:
        """Entries in the heap: one for each that waits, and at most as many again of waiters that were cancelled."""
        return len(self._heap)

    async def until(self, due: int) -> None:
        """Return at or after `due` (µs), never before. Gives way to other tasks at least once, however late it is."""
        if due <= now():
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        heappush(self._heap, (due, next(self._order), waiter))
        if self._armed is None or due < self._armed:
            self._arm()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():  # else it was woken, and so left the heap, before its task was cancelled
                self._dead += 1
                if self._sweep():
                    self._arm()
            raise

    def close(self) -> None:
        """Stop for good. Whoever still waits is cancelled."""
        self._timer.close()
        heap, self._heap = self._heap, []
        self._dead -= len(heap)  # each of them will count itself as dead, and none is in the heap
        for _due, _order, waiter in heap:
            waiter.cancel()

    def _wake(self) -> None:
        heap = self._heap
        reached = now()
        while heap and heap[0][0] <= reached:
            waiter = heappop(heap)[2]
            if waiter.cancelled():
                self._dead -= 1
            else:
                waiter.set_result(None)
        self._sweep()
        self._arm()

    def _arm(self) -> None:
        self._armed = self._heap[0][0] if self._heap else None
        self._timer.set(self._armed)

    def _sweep(self) -> bool:
        """Drop the dead once they are the majority: so a cancelled wait costs little, and is not kept for hours."""
        if self._dead * 2 <= len(self._heap):
            return False
        alive = [entry for entry in self._heap if not entry[2].cancelled()]
        self._dead -= len(self._heap) - len(alive)
        heapify(alive)
        self._heap = alive
        return True


def best_timer(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Timer:
    """A timerfd on Linux, where the kernel gives one; else the loop's timer."""
    if sys.platform == "linux":
        try:
            return TimerFd(loop, wake)
        except OSError:  # a sandbox that forbids it, or no file left: less exact, never early all the same
            pass
    return LoopTimer(loop, wake)


def now() -> int:
    """µs of the system's monotonic clock."""
    return time.monotonic_ns() // 1000


def _open_timerfd() -> tuple[int, Callable[[int], None]]:
    """A new timerfd, and a function that sets its absolute time in ns (0: never)."""
    if sys.version_info >= (3, 13):  # pragma: no cover - a later Python than the oldest that is supported
        fd = os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

        def set_ns(ns: int) -> None:
            os.timerfd_settime_ns(fd, flags=os.TFD_TIMER_ABSTIME, initial=ns)

        return fd, set_ns
    return _open_timerfd_by_ctypes()


def _open_timerfd_by_ctypes() -> tuple[int, Callable[[int], None]]:
    """The same where Python has no timerfd of its own (before 3.13)."""
    import ctypes  # here, since nobody else needs it

    libc = ctypes.CDLL(None, use_errno=True)
    settime = libc.timerfd_settime
    settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    pack = struct.Struct("@4l").pack  # struct itimerspec: interval s, ns; value s, ns
    absolute = 1  # TFD_TIMER_ABSTIME

    def checked(result: int) -> int:
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    def set_ns(ns: int) -> None:
        checked(settime(fd, absolute, pack(0, 0, *divmod(ns, 1_000_000_000)), None))

    # TFD_NONBLOCK and TFD_CLOEXEC are O_NONBLOCK and O_CLOEXEC (timerfd_create(2))
    fd = checked(libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    return fd, set_ns
