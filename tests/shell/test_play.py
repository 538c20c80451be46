"""Plans, and playing them: on a clock that jumps, so that hours take no time."""

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.clock import HeapClock
from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.timing import retimed
from mockllm.play import MAX_WRITE, Ending, Plan, Played, Steps, close_idle, plan, play

HOUR = 3_600_000_000  # µs
STARTED = 777  # µs: where the clock stands when the request was there
GAPS = st.sampled_from([0, 0, 1, 2, 3, 1000, 99_999, HOUR])


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """Any response: segments of one read and of several, empty ones, every ending."""
    at, segments = 0, []
    for gap, parts in draw(st.lists(st.tuples(GAPS, st.tuples(*[st.binary(max_size=4)] * 3)), max_size=12)):
        at += gap
        segments.append(Segment(at, *parts))
    end_at = at + draw(GAPS)
    then_at = end_at + draw(GAPS)
    end, then = draw(st.sampled_from(End)), draw(st.sampled_from(Then))
    return Response(tuple(segments), end, end_at, then, then_at)


SPEEDS = st.one_of(st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0, float("inf")]), st.floats(0.01, 1e9))


def planned(
    response: Response, *, speed: float = 1.0, max_gap_us: int | None = None, on_client: End = End.CLIENT
) -> Plan:
    """As a replay plans: at another speed first."""
    return plan(retimed(response, speed=speed, max_gap_us=max_gap_us), on_client=on_client)


class FakeClock:
    """Jumps to whatever is waited for; on the way it does what `agenda` holds: (µs, what), in order."""

    def __init__(self, *agenda: tuple[int, Callable[[], object]]) -> None:
        self.time = STARTED
        self.agenda = list(agenda)

    def now(self) -> int:
        return self.time

    async def until(self, due: int) -> None:
        while self.agenda and self.agenda[0][0] <= due:
            time, act = self.agenda.pop(0)
            self.time = max(self.time, time)
            act()
            await turns()
        self.time = max(self.time, due)
        await asyncio.sleep(0)


class FakeWire:
    """Keeps (µs, what was done); `drains` are the µs that each drain takes."""

    def __init__(self, clock: FakeClock, drains: tuple[int, ...] = ()) -> None:
        self.clock = clock
        self.log: list[tuple[int, object]] = []
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.drains = itertools.chain(drains, itertools.repeat(0))
        self.draining = False
        self.superseded = False

    def leave(self) -> None:
        self.left.set_result(None)

    def write(self, data: bytes) -> None:
        assert not self.draining
        self.log.append((self.clock.time - STARTED, data))

    async def drain(self) -> None:
        self.draining = True
        self.clock.time += next(self.drains)
        await asyncio.sleep(0)
        self.draining = False

    def finish(self, keep_open: bool) -> None:
        self.log.append((self.clock.time - STARTED, "keep" if keep_open else "fin"))

    def close(self) -> None:
        self.log.append((self.clock.time - STARTED, "close"))

    async def reset(self) -> None:
        await asyncio.sleep(0)
        self.log.append((self.clock.time - STARTED, "rst"))


async def turns(number: int = 4) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def played(
    made: Plan, *, keep_alive: bool = True, leave_at: int | None = None, drains: tuple[int, ...] = ()
) -> tuple[list[tuple[int, object]], Played]:
    """Play a plan in no time; where it hangs, or at `leave_at`, the client leaves. Its log, and what became of it."""

    async def main() -> tuple[list[tuple[int, object]], Played]:
        clock = FakeClock()
        wire = FakeWire(clock, drains)
        if leave_at is not None:
            clock.agenda.append((STARTED + leave_at, wire.leave))
        task = asyncio.create_task(play(made, wire, clock, STARTED, keep_alive=keep_alive))
        if made.ending is Ending.HANG and leave_at is None:
            await turns(4 * len(made.steps) + 4)
            assert not task.done()
            wire.leave()
        result = await task
        if not wire.left.done():
            wire.leave()  # too late to mean anything
        await turns()
        return wire.log, result

    return asyncio.run(main())


def writes(log: list[tuple[int, object]]) -> list[tuple[int, bytes]]:
    return [(at, what) for at, what in log if isinstance(what, bytes)]


def plain(*reads: tuple[int, bytes], end: End = End.COMPLETE, end_at: int = 0, **more: Any) -> Response:
    return Response(tuple(Segment(at, data) for at, data in reads), end, end_at, **more)


# the plan


@given(responses(), SPEEDS, st.sampled_from([None, 0, 1, 1500, HOUR]))
def test_a_plan_writes_every_byte_once_and_reads_stay_apart(
    response: Response, speed: float, max_gap_us: int | None
) -> None:
    made = planned(response, speed=speed, max_gap_us=max_gap_us)
    reads = [data for _, data in response.reads() if data]
    assert made.buffer == response.wire
    assert [made.buffer[start:stop] for _, start, stop in made.steps] == reads
    times = [due for due, _, _ in made.steps]
    assert all(0 <= earlier < later for earlier, later in itertools.pairwise(times))
    assert made.ending_at >= max(times, default=0)
    assert made.over_at is None or max(times, default=0) <= made.over_at <= made.ending_at


@given(responses())
def test_as_recorded_every_read_is_one_write_at_its_time(response: Response) -> None:
    log, result = played(plan(response))
    reads = [(at, data) for at, data in response.reads() if data]
    assert writes(log) == reads
    assert (result.writes, result.bytes_written) == (len(reads), len(response.wire))
    assert (result.late_max_us, result.late_median_us) == (0, 0)


@given(responses(), SPEEDS, SPEEDS)
def test_faster_is_never_later(response: Response, one: float, other: float) -> None:
    slow, fast = (planned(response, speed=speed) for speed in sorted((one, other)))
    assert all(early <= late for (early, *_), (late, *_) in zip(fast.steps, slow.steps, strict=True))
    assert fast.ending_at <= slow.ending_at


@given(responses(), SPEEDS)
def test_speed_divides_every_time_and_roundings_do_not_add_up(response: Response, speed: float) -> None:
    made = planned(response, speed=speed)
    reads = [at for at, data in response.reads() if data]
    for pushed, (at, (due, _, _)) in enumerate(zip(reads, made.steps, strict=True)):
        assert -0.5 <= due - at / speed <= pushed + 0.5  # 1 µs for each read that had to be kept apart


@given(responses(), st.integers(1, 2000))
def test_no_silence_is_longer_than_the_cap_and_short_ones_are_as_recorded(response: Response, cap: int) -> None:
    recorded = [0, *(at for at, data in response.reads() if data)]
    times = [0, *(due for due, _, _ in planned(response, max_gap_us=cap).steps)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(recorded)]
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [min(gap, cap) for gap in gaps]


def test_a_cap_of_0_keeps_the_reads_apart_all_the_same() -> None:
    made = planned(plain((9, b"a"), (99, b"b"), (999, b"c"), end_at=9999, then=Then.FIN, then_at=99_999), max_gap_us=0)
    assert made == Plan(b"abc", ((0, 0, 1), (1, 1, 2), (2, 2, 3)), Ending.FIN, ending_at=2, over_at=2)


def test_the_cap_comes_before_the_speed_and_holds_before_the_end_and_then_too() -> None:
    response = plain((9000, b"a"), (9500, b"b"), end_at=19_500, then=Then.FIN, then_at=29_500)
    made = planned(response, max_gap_us=2000, speed=10)
    assert made == Plan(b"ab", ((200, 0, 1), (250, 1, 2)), Ending.FIN, ending_at=650, over_at=450)


@given(responses())
def test_speed_0_is_one_write_at_once_and_the_same_ending(response: Response) -> None:
    made = planned(response, speed=0)
    assert made.buffer == response.wire
    assert made.steps == (((0, 0, len(response.wire)),) if response.wire else ())
    assert (made.ending, made.ending_at, made.over_at or 0) == (plan(response).ending, 0, 0)


def test_speed_0_writes_a_large_answer_in_pieces_so_that_a_slow_reader_costs_little() -> None:
    made = planned(plain((5, bytes(MAX_WRITE + 1)), end_at=5), speed=0)
    assert made.steps == ((0, 0, MAX_WRITE), (0, MAX_WRITE, MAX_WRITE + 1))


@pytest.mark.parametrize(("speed", "max_gap_us"), [(-1, None), (float("nan"), None), (1, -1)])
def test_nonsense_is_refused(speed: float, max_gap_us: int | None) -> None:
    with pytest.raises(ValueError, match="cannot play at speed"):
        planned(plain(), speed=speed, max_gap_us=max_gap_us)


# endings

HELLO = ((100, b"he"), (200, b"llo"))
WRITTEN: list[tuple[int, object]] = [(100, b"he"), (200, b"llo")]


@pytest.mark.parametrize(
    ("end", "then", "keep_alive", "expected"),
    [
        (End.COMPLETE, Then.OPEN, True, (200, "keep")),
        (End.COMPLETE, Then.OPEN, False, (200, "fin")),
        (End.COMPLETE, Then.FIN, True, (700, "fin")),
        (End.COMPLETE, Then.FIN, False, (300, "fin")),
        (End.COMPLETE, Then.RST, True, (700, "rst")),
        (End.COMPLETE, Then.RST, False, (300, "fin")),
        (End.FIN, Then.OPEN, True, (300, "fin")),
        (End.FIN, Then.OPEN, False, (300, "fin")),
        (End.RST, Then.OPEN, True, (300, "rst")),
        (End.RST, Then.OPEN, False, (300, "rst")),
        (End.HANG, Then.OPEN, True, None),
        (End.HANG, Then.OPEN, False, None),
    ],
)
def test_endings(end: End, then: Then, keep_alive: bool, expected: tuple[int, object] | None) -> None:
    response = plain(*HELLO, end=end, end_at=300, then=then, then_at=700)
    log, result = played(plan(response), keep_alive=keep_alive)
    assert log == WRITTEN + ([expected] if expected else [])
    assert result == Played(5, 2, 0, 0, client_left=end is End.HANG)


@pytest.mark.parametrize("end", [End.FIN, End.RST, End.HANG])
def test_a_server_that_said_nothing(end: End) -> None:
    log, result = played(plan(plain(end=end, end_at=50)))
    assert log == {End.FIN: [(50, "fin")], End.RST: [(50, "rst")], End.HANG: []}[end]
    assert result == Played(0, 0, 0, 0, client_left=end is End.HANG)


def test_a_close_delimited_answer_is_over_with_its_fin() -> None:
    made = plan(plain(*HELLO, end_at=300, then=Then.FIN, then_at=300))
    assert played(made, keep_alive=True)[0] == played(made, keep_alive=False)[0] == [*WRITTEN, (300, "fin")]


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"


@pytest.mark.parametrize(
    ("wire", "method", "ending"),
    [
        (LENGTH + b"abc", "GET", Ending.KEEP),
        (LENGTH, "HEAD", Ending.KEEP),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "GET", Ending.KEEP),
        (CHUNKED + b"0\r\n\r\n", "GET", Ending.KEEP),
        (LENGTH + b"ab", "GET", Ending.FIN),
        (LENGTH, "GET", Ending.FIN),
        (CHUNKED + b"0\r\n", "GET", Ending.FIN),
        (CHUNKED, "GET", Ending.FIN),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", "GET", Ending.RST),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "GET", Ending.RST),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "GET", Ending.RST),
        (b"no HTTP at all", "GET", Ending.RST),
        (b"", "GET", Ending.RST),
    ],
)
def test_where_the_recorded_client_left_nothing_passes_for_a_whole_answer(
    wire: bytes, method: str, ending: Ending
) -> None:
    response = plain((100, wire), end=End.CLIENT, end_at=300, method=method)
    silent = Ending.KEEP if ending is Ending.KEEP else Ending.HANG
    for speed in (1, 0):
        assert planned(response, speed=speed).ending is ending
        assert planned(response, speed=speed, on_client=End.HANG).ending is silent
    assert plan(response).ending_at == (300 if ending is not Ending.KEEP else 100)
    assert plan(response).over_at is None


# on time, and back-pressure


@given(responses(), st.lists(st.sampled_from([0, 0, 1, 5, 100_000, HOUR]), max_size=12))
def test_a_slow_reader_delays_and_the_deadlines_stay_where_they_were(response: Response, drains: list[int]) -> None:
    made = plan(response)
    log, result = played(made, drains=tuple(drains))
    free, expected = 0, []
    for number, (due, start, stop) in enumerate(made.steps):
        expected.append((max(due, free), response.wire[start:stop]))
        free = max(due, free) + (drains[number] if number < len(drains) else 0)
    assert writes(log) == expected
    late = sorted(at - due for (at, _), (due, _, _) in zip(expected, made.steps, strict=True))
    assert result.late_max_us == max(late, default=0)
    assert result.late_median_us == (late[(len(late) - 1) // 2] if late else 0)


def test_nothing_more_is_written_while_a_reader_is_slow() -> None:
    async def main() -> None:
        clock = FakeClock()
        wire = FakeWire(clock)
        taken = asyncio.Event()

        async def drain() -> None:
            await taken.wait()

        wire.drain = drain  # type: ignore[method-assign]
        made = plan(plain(*HELLO, end_at=200))
        task = asyncio.create_task(play(made, wire, clock, STARTED, keep_alive=True))
        await turns()
        assert wire.log == WRITTEN[:1]
        taken.set()
        await task
        assert wire.log == [*WRITTEN, (200, "keep")]

    asyncio.run(main())


# the client leaves


@given(responses().filter(lambda response: response.end is not End.HANG), st.booleans(), st.data())
def test_a_client_that_leaves_cuts_it_short(response: Response, keep_alive: bool, data: st.DataObject) -> None:
    """What was due before is written, and nothing after; only who leaves an unfinished answer counts as left."""
    made = plan(response)
    ending_at = made.ending_for(keep_alive)[1]
    times = [*(due for due, _, _ in made.steps), made.over_at or 0, made.ending_at]
    leave_at = max(1, data.draw(st.sampled_from(times)) + data.draw(st.sampled_from([-1, 0, 1])))
    log, result = played(made, keep_alive=keep_alive, leave_at=leave_at)
    whole, _ = played(made, keep_alive=keep_alive)
    assert log == [entry for entry in whole if entry[0] < leave_at]
    assert result.writes == len(writes(log))
    assert result.bytes_written == len(b"".join(data for _, data in writes(log)))
    over = made.over_at is not None and made.over_at < leave_at
    assert result.client_left == (leave_at <= ending_at and not over)


@pytest.mark.parametrize(
    ("leave_at", "expected"),
    [
        (200, Played(2, 1, 0, 0, client_left=True)),
        (201, Played(5, 2, 0, 0, client_left=True)),
        (300, Played(5, 2, 0, 0, client_left=True)),
        (301, Played(5, 2, 0, 0, client_left=False)),  # the answer was whole, though the FIN is still to come
        (700, Played(5, 2, 0, 0, client_left=False)),
    ],
)
def test_who_leaves_a_whole_answer_did_not_leave_it(leave_at: int, expected: Played) -> None:
    log, result = played(plan(plain(*HELLO, end_at=300, then=Then.FIN, then_at=700)), leave_at=leave_at)
    assert log == WRITTEN[: expected.writes]
    assert result == expected


def test_a_client_that_was_gone_before_gets_nothing() -> None:
    async def main() -> None:
        for response in (plain(*HELLO, end_at=200), plain(end=End.FIN, end_at=0)):
            clock = FakeClock()
            wire = FakeWire(clock)
            wire.leave()
            result = await play(plan(response), wire, clock, STARTED, keep_alive=True)
            assert (wire.log, result) == ([], Played(0, 0, 0, 0, client_left=True))
            await turns()

    asyncio.run(main())


def test_a_client_that_leaves_while_reading_slowly() -> None:
    async def main() -> None:
        clock = FakeClock()
        wire = FakeWire(clock)
        wire.drain = asyncio.Event().wait  # type: ignore[assignment, method-assign]
        task = asyncio.create_task(play(plan(plain(*HELLO, end_at=200)), wire, clock, STARTED, keep_alive=True))
        await turns()
        wire.leave()
        assert await task == Played(2, 1, 0, 0, client_left=True)
        assert task.cancelling() == 0

    asyncio.run(main())


def test_a_client_that_leaves_with_the_last_write_disturbs_nothing_later() -> None:
    async def main() -> None:
        clock = FakeClock()
        wire = FakeWire(clock)

        async def drain() -> None:
            wire.leave()  # without giving way: the block ends before the future's callbacks run

        wire.drain = drain  # type: ignore[method-assign]
        result = await play(plan(plain((100, b"x"), end_at=100)), wire, clock, STARTED, keep_alive=True)
        assert result.client_left
        await turns()  # would raise CancelledError
        assert wire.log == [(100, b"x")]

    asyncio.run(main())


def test_no_callback_is_left_on_the_connection() -> None:
    async def main() -> None:
        clock = FakeClock()
        wire = FakeWire(clock)
        for _ in range(3):  # three answers on one connection
            await play(plan(plain(*HELLO, end_at=200)), wire, clock, STARTED, keep_alive=True)
        assert not wire.left._callbacks

    asyncio.run(main())


# cancellation and errors from elsewhere


@pytest.mark.parametrize("end", [End.COMPLETE, End.HANG])
@pytest.mark.parametrize("also_left", [False, True])
def test_a_cancellation_from_elsewhere_stays_one(end: End, also_left: bool) -> None:
    async def main() -> None:
        clock = HeapClock(asyncio.get_running_loop())
        wire = FakeWire(FakeClock())
        made = plan(plain(end=end, end_at=HOUR, then=Then.FIN, then_at=HOUR))
        task = asyncio.create_task(play(made, wire, clock, clock.now(), keep_alive=True))
        await turns()
        task.cancel()
        if also_left:
            wire.leave()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not wire.left.cancelled()
        assert task.cancelling() == 1
        assert (wire.log, clock.waiting) == ([], 0)
        clock.close()

    asyncio.run(main())


def test_a_cancellation_that_meets_a_client_leaving_in_the_same_turn() -> None:
    async def main() -> None:
        wire = FakeWire(FakeClock())
        task = asyncio.create_task(play(plan(plain(end=End.HANG)), wire, wire.clock, STARTED, keep_alive=True))
        await turns()
        wire.left.add_done_callback(lambda _: task.cancel())  # after play's own callback, before the task goes on
        wire.leave()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    asyncio.run(main())


def test_an_error_of_the_wire_is_raised_and_nothing_stays_behind() -> None:
    async def main() -> None:
        clock = FakeClock()
        wire = FakeWire(clock)

        async def drain() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("drained dry") from None

        wire.drain = drain  # type: ignore[method-assign]
        task = asyncio.create_task(play(plan(plain(*HELLO, end_at=200)), wire, clock, STARTED, keep_alive=True))
        await turns()
        wire.leave()
        with pytest.raises(RuntimeError, match="drained dry"):
            await task
        assert task.cancelling() == 0
        assert clock.now() == STARTED + 100

    asyncio.run(main())


# the real clock and a real socket


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop] | None:
    return pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None


class StreamWire:
    """A connection by asyncio's streams; its client has left when reading ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.left: asyncio.Future[bytes] = asyncio.ensure_future(reader.read())
        self.write = writer.write
        self.drain = writer.drain

    def finish(self, keep_open: bool) -> None:
        self.writer.close()

    async def reset(self) -> None:
        raise AssertionError("not in these tests")


def test_on_a_socket_nothing_comes_early(new_loop: Any) -> None:
    reads = [(step * 20_000, b"%d\n" % step) for step in range(6)]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock = HeapClock(loop)
        ours, theirs = socket.socketpair()
        wire = StreamWire(*await asyncio.open_connection(sock=ours))
        client, closing = await asyncio.open_connection(sock=theirs)
        made = plan(plain(*reads, end=End.FIN, end_at=reads[-1][0]))
        started = clock.now()
        task = asyncio.create_task(play(made, wire, clock, started, keep_alive=True))
        got: list[bytes] = []
        while data := await client.read(100):
            got += data.splitlines(keepends=True)
            assert clock.now() - started >= reads[len(got) - 1][0]
        assert got == [data for _, data in reads]
        assert (await task).writes == len(reads)
        closing.close()
        clock.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("end", [End.COMPLETE, End.HANG])
def test_on_a_socket_a_client_that_leaves_in_a_long_silence_is_noticed(new_loop: Any, end: End) -> None:
    async def main() -> None:
        clock = HeapClock(asyncio.get_running_loop())
        ours, theirs = socket.socketpair()
        wire = StreamWire(*await asyncio.open_connection(sock=ours))
        made = plan(plain((0, b"a"), (HOUR, b"b"), end=end, end_at=HOUR))
        task = asyncio.create_task(play(made, wire, clock, clock.now(), keep_alive=True))
        client, closing = await asyncio.open_connection(sock=theirs)
        assert await client.readexactly(1) == b"a"
        closing.close()
        result = await asyncio.wait_for(task, 30)
        assert (result.bytes_written, result.client_left, clock.waiting) == (1, True, 0)
        wire.writer.close()
        clock.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


# a close long after the answer


def idle(then: Then, *, leave: bool = False, again: bool = False) -> list[tuple[int, object]]:
    """What happens on the wire for an answer after which the server closes a minute later."""

    async def main() -> list[tuple[int, object]]:
        made = plan(plain((10, b"a"), end_at=20, then=then, then_at=60_000_020))
        clock = FakeClock()
        wire = FakeWire(clock)
        assert made.closes_idle(True)
        assert not made.closes_idle(False)
        await play(made, wire, clock, STARTED, keep_alive=True)
        wire.superseded = again
        if leave:
            wire.leave()
        await close_idle(made, wire, clock, STARTED)
        return wire.log

    return asyncio.run(main())


@pytest.mark.parametrize(("then", "how"), [(Then.FIN, "close"), (Then.RST, "rst")])
def test_a_close_long_after_the_answer_finds_the_connection_idle_or_does_not_come(then: Then, how: str) -> None:
    answered: list[tuple[int, object]] = [(10, b"a"), (20, "keep")]
    assert idle(then) == [*answered, (60_000_020, how)]
    assert idle(then, again=True) == answered
    assert idle(then, leave=True) == answered


def test_steps_are_a_sequence_that_takes_little_memory() -> None:
    steps = Steps([(5, 0, 2), (9, 2, 3), (9, 3, 7)])
    assert list(steps) == [(5, 0, 2), (9, 2, 3), (9, 3, 7)]
    assert (steps[0], steps[-1], len(steps)) == ((5, 0, 2), (9, 3, 7), 3)
    assert steps[1:] == [(9, 2, 3), (9, 3, 7)]
    assert steps == ((5, 0, 2), (9, 2, 3), (9, 3, 7))
    assert steps != ((5, 0, 2),)
    assert steps != 1
    assert hash(steps) == hash(Steps(steps))
    with pytest.raises(IndexError):
        steps[3]
