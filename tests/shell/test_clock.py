"""The real clock: never early, nothing left behind, on both event loops and with both timers."""

import asyncio
import errno
import os
import random
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mockllm import clock as clock_module
from mockllm.clock import HeapClock, LoopTimer, TimerFd, best_timer

HOUR = 3_600_000_000  # µs
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")


def uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    factory: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop").new_event_loop
    return factory


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    factory = uvloop_factory() if request.param == "uvloop" else None

    def run_in_new_loop(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main)

    return run_in_new_loop


@pytest.fixture(params=[pytest.param(TimerFd, marks=on_linux), LoopTimer])
def timer(request: pytest.FixtureRequest) -> Any:
    return request.param


class FakeTimer:
    """Keeps what it was set to; must not be touched once closed."""

    def __init__(self) -> None:
        self.due: int | None = None
        self.closed = False

    def set(self, due: int | None) -> None:
        assert not self.closed
        self.due = due

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@contextmanager
def faked() -> Iterator[tuple[HeapClock, FakeTimer, Callable[[], None], list[int]]]:
    """A HeapClock on a timer and a time (`[µs]`) that only move by hand; and the function that the timer would call."""
    timer, now, wakes = FakeTimer(), [0], list[Callable[[], None]]()

    def make_timer(_loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> FakeTimer:
        wakes.append(wake)
        return timer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_module, "now", lambda: now[0])
        yield HeapClock(asyncio.get_running_loop(), make_timer), timer, wakes[0], now


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_thousand_waiters_are_never_early_and_leave_nothing(run: Any, timer: Any) -> None:
    dice = random.Random(7)

    async def main() -> None:
        clock = HeapClock(asyncio.get_running_loop(), timer)

        async def waiter() -> int:
            due = clock.now() + dice.randrange(200_000)
            await clock.until(due)
            return clock.now() - due

        late = await asyncio.gather(*(waiter() for _ in range(1000)))
        assert len(late) == 1000
        assert min(late) >= 0
        assert clock.waiting == 0
        clock.close()

    run(main())


def test_one_waiter_again_and_again(run: Any, timer: Any) -> None:
    async def main() -> None:
        clock = HeapClock(asyncio.get_running_loop(), timer)
        for gap in (0, 1, 10, 100, 400, 700, 1_000, 1_600, 5_000) * 3:
            due = clock.now() + gap
            await clock.until(due)
            assert clock.now() >= due
            assert clock.waiting == 0
        clock.close()

    run(main())


def test_a_nearer_time_is_not_held_up_by_a_far_one(run: Any, timer: Any) -> None:
    async def main() -> None:
        clock = HeapClock(asyncio.get_running_loop(), timer)
        far = asyncio.create_task(clock.until(clock.now() + HOUR))
        await asyncio.sleep(0)
        await clock.until(clock.now() + 1_000)
        assert not far.done()
        far.cancel()
        with pytest.raises(asyncio.CancelledError):
            await far
        assert clock.waiting == 0
        await clock.until(clock.now() + 1_000)  # the timer still works after the sweep
        clock.close()

    run(main())


def test_closing_cancels_who_waits_and_frees_the_file(run: Any, timer: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: None)  # whatever the loop opens late
        before = open_files()
        clock = HeapClock(loop, timer)
        tasks = [asyncio.create_task(clock.until(clock.now() + HOUR)) for _ in range(3)]
        await asyncio.sleep(0)
        clock.close()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 3
        assert clock.waiting == 0
        assert open_files() == before

    run(main())


def test_a_timer_rings_for_its_last_setting_only(run: Any, timer: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock = HeapClock(loop)
        rung = asyncio.Event()
        made = timer(loop, rung.set)
        made.set(clock.now() + 2_000)
        made.set(None)
        await clock.until(clock.now() + 10_000)
        assert not rung.is_set()
        made.set(clock.now() + 2_000)
        made.set(clock.now() + HOUR)
        await clock.until(clock.now() + 10_000)
        assert not rung.is_set()
        made.set(clock.now() + 2_000)
        await rung.wait()
        made.close()
        clock.close()

    run(main())


def open_files() -> list[str]:
    return sorted(os.listdir("/dev/fd"))


def test_a_time_that_is_past_still_lets_others_run(run: Any) -> None:
    async def main() -> None:
        clock = HeapClock(asyncio.get_running_loop())
        other = asyncio.create_task(asyncio.sleep(0))
        await asyncio.sleep(0)
        await clock.until(clock.now() - 1)
        await clock.until(clock.now())
        assert other.done()
        clock.close()

    run(main())


def test_equal_times_go_on_in_the_order_they_were_asked_for_and_others_by_time() -> None:
    async def main() -> None:
        with faked() as (clock, timer, wake, now):
            order: list[int] = []

            async def waiter(name: int, due: int) -> None:
                await clock.until(due)
                order.append(name)

            tasks = [asyncio.create_task(waiter(name, due)) for name, due in enumerate((50, 30, 50, 30, 99))]
            await settle()
            assert timer.due == 30
            now[0] = 29
            wake()  # early: nobody goes on, and the timer is set again
            await settle()
            assert (order, timer.due) == ([], 30)
            now[0] = 60
            wake()
            await settle()
            assert (order, timer.due) == ([1, 3, 0, 2], 99)
            now[0] = 99
            wake()
            await asyncio.gather(*tasks)
            assert order[4:] == [4]
            assert (timer.due, clock.waiting) == (None, 0)

    asyncio.run(main())


def test_cancelled_just_after_it_was_woken() -> None:
    async def main() -> None:
        with faked() as (clock, timer, wake, now):
            task = asyncio.create_task(clock.until(10))
            other = asyncio.create_task(clock.until(20))
            await settle()
            now[0] = 10
            wake()
            task.cancel()
            await settle()
            assert task.cancelled()
            assert (clock.waiting, timer.due) == (1, 20)
            other.cancel()
            await settle()
            assert (clock.waiting, timer.due) == (0, None)

    asyncio.run(main())


def test_a_few_cancelled_among_many_stay_until_their_time_only() -> None:
    async def main() -> None:
        with faked() as (clock, timer, wake, now):
            tasks = [asyncio.create_task(clock.until(due)) for due in (10, 20, 30, 40)]
            await settle()
            tasks[0].cancel()
            await settle()
            assert (clock.waiting, timer.due) == (4, 10)
            now[0] = 20
            wake()
            await settle()
            assert (tasks[1].done(), clock.waiting, timer.due) == (True, 2, 30)
            tasks[2].cancel()  # one of two: no majority yet
            await settle()
            assert clock.waiting == 2
            tasks[3].cancel()
            await settle()
            assert (clock.waiting, timer.due) == (0, None)

    asyncio.run(main())


def test_closing_with_cancelled_and_living_waiters_touches_the_timer_no_more() -> None:
    async def main() -> None:
        with faked() as (clock, timer, _wake, _now):
            tasks = [asyncio.create_task(clock.until(due)) for due in range(1, 8)]
            await settle()
            tasks[0].cancel()
            await settle()
            tasks[1].cancel()  # not yet counted when the clock closes
            clock.close()
            await settle()
            assert all(task.cancelled() for task in tasks)
            assert (timer.closed, clock.waiting) == (True, 0)

    asyncio.run(main())


ACTIONS = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 100)),
    st.tuples(st.just("cancel"), st.integers(0, 1000)),
    st.tuples(st.just("advance"), st.integers(0, 60)),
    st.tuples(st.just("settle"), st.just(0)),
)


WAIT_FOR_MANY = [("wait", due) for due in (1, 5, 2, 6, 7, 3, 4)]
SETTLE, ADVANCE = ("settle", 0), ("advance", 1)


@given(st.lists(ACTIONS, max_size=60))
@example([*WAIT_FOR_MANY, SETTLE, *[("cancel", place) for place in (0, 2, 5, 3)]])  # the rest is no heap any more
@example([*WAIT_FOR_MANY, SETTLE, *[("cancel", place) for place in range(5)]])  # swept before the last is counted
@example([*WAIT_FOR_MANY[:3], SETTLE, ("cancel", 1), SETTLE, ADVANCE, SETTLE, ADVANCE])  # the dead outlive the living
@example([*WAIT_FOR_MANY, SETTLE, ("cancel", 0), ADVANCE, SETTLE])  # woken and cancelled at once
def test_any_order_of_waits_cancellations_and_wakes(actions: list[tuple[str, int]]) -> None:
    """Who is due goes on, who is cancelled is gone, nobody else moves, and the timer is always set in time."""

    async def main() -> None:
        with faked() as (clock, timer, wake, now):
            waits: list[tuple[int, asyncio.Task[None]]] = []
            for action, number in [*actions, ("settle", 0)]:
                if action == "wait":
                    waits.append((now[0] + number, asyncio.create_task(clock.until(now[0] + number))))
                elif action == "cancel" and waits:
                    waits[number % len(waits)][1].cancel()
                elif action == "advance":
                    await asyncio.sleep(0)  # who was just created asks with the time it was given
                    now[0] += number
                    wake()
                else:
                    await settle()
                    alive = [due for due, task in waits if not task.done()]
                    assert all(due > now[0] for due in alive)
                    assert all(due <= now[0] for due, task in waits if task.done() and not task.cancelled())
                    assert len(alive) <= clock.waiting <= 2 * len(alive)
                    assert clock._dead == clock.waiting - len(alive)
                    assert timer.due is None if not alive else timer.due is not None and timer.due <= min(alive)
            for _, task in waits:
                task.cancel()
            await settle()
            assert (clock.waiting, clock._dead, timer.due) == (0, 0, None)

    asyncio.run(main())


@on_linux
def test_linux_gives_a_timerfd_unless_no_file_is_left() -> None:
    async def main() -> None:
        import resource

        loop = asyncio.get_running_loop()
        made = best_timer(loop, lambda: None)
        assert isinstance(made, TimerFd)
        made.close()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                TimerFd(loop, lambda: None)
            assert isinstance(best_timer(loop, lambda: None), LoopTimer)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    asyncio.run(main())


def test_other_systems_use_the_loops_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "platform", "darwin")
            made = best_timer(asyncio.get_running_loop(), lambda: None)
        assert isinstance(made, LoopTimer)
        made.close()

    asyncio.run(main())
