"""One exchange of a recorder: every read of the real server to the tape and to the client, and how it all ended.

Driven by callbacks, so that a read is one write with nothing between. It knows nothing of routes and of making
connections.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mockllm.core.dialects import ProtocolEnd
from mockllm.core.exchange import header
from mockllm.core.loglines import Came
from mockllm.core.response import End, Then
from mockllm.serve import RawConnection
from mockllm.taping import Taping
from mockllm.upstream import Upstream

THEN_WINDOW_US = 50_000
"""For so long after a complete answer the recorder watches what the server does with the connection."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a recorder gives up.

    `idle_us`: after so long a silence of the server, or never. `drain_us`: an answer whose protocol end was seen is
    read on for so long after its client left.
    """

    idle_us: int | None = None
    drain_us: int = 5_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an answer ended, when (µs), and whether that was because the recorder itself was stopped."""

    end: End
    at: int
    by_recorder: bool = False


class Relay:
    """Between one request's upstream and its client.

    `over` resolves with the verdict when the answer has ended; `done` is called later, when it is known what the
    server did with the connection and the tape is closed. `now` gives µs.
    """

    def __init__(
        self,
        connection: RawConnection,
        upstream: Upstream,
        taping: Taping,
        limits: Limits,
        now: Callable[[], int],
        done: Callable[["Relay"], None],
    ) -> None:
        self.connection, self.upstream, self.taping = connection, upstream, taping
        self.verdict: Verdict | None = None
        self.settled = False
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[Verdict] = self._loop.create_future()
        self._limits, self._now, self._done = limits, now, done
        self._protocol_end: ProtocolEnd | None = None
        self._first_event: int | None = None
        self._began = now()
        self._last = self._began
        self._timers: list[asyncio.TimerHandle] = []
        self._then: tuple[Then, int] | None = None
        self._uploading = True
        self._resuming: asyncio.Task[None] | None = None

    @property
    def came(self) -> Came:
        """What came of the answer until now. Events are counted up to the protocol's own end; no ping is the first."""
        taping, head = self.taping, self.taping.tape.tracker.head
        events = 0 if self._protocol_end is None else self._protocol_end.events
        status = None if head is None else head.status
        return Came(status, taping.bytes, taping.first, events, self._first_event)

    @property
    def elapsed(self) -> int:
        """µs since the request was fully sent; while it is being sent, since it began."""
        return self._now() - (self._began if self.taping.sent is None else self.taping.sent)

    def uploaded(self, *, complete: bool) -> None:
        """The request's body is on its way in full, or (complete False) never will be. Only the first call counts."""
        if not self._uploading:
            return
        self._uploading = False
        if complete:
            self._last = self._now()
            self.taping.all_sent(self._last)
            if self._limits.idle_us is not None and self.verdict is None:
                self._watch_silence(self._limits.idle_us)
        if self._then is not None:
            self._settle(*self._then)

    def on_read(self, at: int, data: bytes) -> None:
        """A read of the real server; also what it sends unasked after a complete answer."""
        self._last = at
        if self.taping.first is None:
            self.connection.begin()
        if not self.settled:
            self._tape(at, data)
        self.connection.write(data)
        if self.connection.congested and self._resuming is None:
            self.upstream.pause()
            self._resuming = self._loop.create_task(self._resume())
        if self.verdict is None and self.taping.tape.tracker.done:
            self._conclude(Verdict(End.COMPLETE, at))
            self._later(THEN_WINDOW_US, self.settle_open)

    def on_end(self, at: int, how: End) -> None:
        """The real server closed (FIN) or reset (RST) the connection."""
        then = Then.RST if how is End.RST else Then.FIN
        if self.verdict is None:
            whole = how is End.FIN and self.taping.tape.tracker.eof()
            self._conclude(Verdict(End.COMPLETE if whole else how, at))
        if not self.settled:
            self._settle(then, at)

    def on_left(self) -> None:
        """The client left. An answer whose protocol is over is read on for a while, any other one is stopped."""
        if self.verdict is not None:
            return
        if self._protocol_end is not None and self._protocol_end.seen:
            self._later(self._limits.drain_us, self.stop)
        else:
            self.stop()

    def stop(self, *, by_recorder: bool = False) -> None:
        """End now what has not ended: the rest of the answer is unknown."""
        if self.verdict is None:
            self._conclude(Verdict(End.CLIENT, self._now(), by_recorder))
            self._settle(Then.OPEN, 0)
        else:
            self.uploaded(complete=False)
            self.settle_open()

    def settle_open(self) -> None:
        """The server left the connection open: the time to watch is over, or the next request shows it."""
        if not self.settled:
            self._settle(Then.OPEN, 0)

    def _tape(self, at: int, data: bytes) -> None:
        self.taping.read(at, data)
        tape = self.taping.tape
        if self._protocol_end is None and tape.tracker.head is not None:
            headers = tape.tracker.head.headers
            self._protocol_end = ProtocolEnd(header(headers, b"content-type"), header(headers, b"content-encoding"))
        if self._protocol_end is not None:
            self._protocol_end.feed(tape.body)
            if self._first_event is None and self._protocol_end.begun:
                self._first_event = tape.at

    def _conclude(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self._cancel_timers()
        self.over.set_result(verdict)

    def _settle(self, then: Then, then_at: int) -> None:
        assert self.verdict is not None
        if self._uploading and self.verdict.end is End.COMPLETE and not self.connection.left.done():
            self._then = then, then_at  # an early answer: its tape ends with the request's body
            return
        self.settled = True
        self._cancel_timers()
        end, at = self.verdict.end, self.verdict.at
        self.taping.end(end, at, then, max(at, then_at), by_recorder=self.verdict.by_recorder)
        if end is not End.COMPLETE or self.connection.left.done():
            self.upstream.abort()
        self._done(self)

    def _watch_silence(self, limit_us: int) -> None:
        paused = self._resuming is not None  # then the silence is the client's
        silent = 0 if paused else self._now() - self._last
        if silent >= limit_us:
            self._conclude(Verdict(End.HANG, self._now()))
            self._settle(Then.OPEN, 0)
        else:
            self._later(limit_us - silent, lambda: self._watch_silence(limit_us))

    async def _resume(self) -> None:
        """Read on when the client has taken what waits: memory stays bounded, and its slowness is the server's."""
        await self.connection.drain()
        self._resuming = None
        self._last = self._now()
        self.upstream.resume()

    def _later(self, delay_us: int, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay_us / 1e6, callback))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
