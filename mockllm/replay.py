"""Plays cassettes: finds the recording that answers a request and writes its bytes on the raw connection, on time.

A plain ASGI callable. It never reaches for another server, and must not know how tapes are made.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mockllm import files
from mockllm.answers import answer_error, answer_failure
from mockllm.clock import Clock
from mockllm.control import control_plane, is_control
from mockllm.core.errors import MockllmError, NoMatchError
from mockllm.core.exchange import MAX_BODY, Request
from mockllm.core.loglines import duration
from mockllm.core.matching import reasons
from mockllm.core.redact import redact_target
from mockllm.core.response import End, Response
from mockllm.core.shown import escaped
from mockllm.core.timing import retimed
from mockllm.files import Recording
from mockllm.library import Library, Plans
from mockllm.play import Plan, plan, play
from mockllm.serve import RAW, RawConnection, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Options:
    """How recordings are played.

    `speed` divides all times (0: at once); `max_gap_us` caps each silence; `on_client` HANG is silent where the
    recorded client left; `closest` plays the nearest recording of the same method and path on a miss.
    """

    speed: float = 1.0
    max_gap_us: int | None = None
    on_client: End = End.CLIENT
    closest: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """The recording that answers, and why it and no other, where that is worth saying."""

    recording: Recording
    why: str


class Replay:
    """The ASGI callable. `make_clock` is called in the server's loop; `log` is told one line a request.

    `misses` counts the requests that nothing answered.
    """

    def __init__(
        self, library: Library, options: Options, make_clock: Callable[[], Clock], log: Callable[[str], None]
    ) -> None:
        self.misses = 0
        self._library, self._options, self._make_clock, self._log = library, options, make_clock, log
        self._clock: Clock | None = None
        self._plans = Plans(self._plan)
        self._control = control_plane(lambda: {"exchanges": len(library), "misses": self.misses})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: RawConnection = scope["extensions"][RAW]
        if is_control(connection.target):
            await self._control(scope, receive, send)
            return
        clock = self._clock = self._clock or self._make_clock()
        began = clock.now()
        body = await _read(connection)
        if not connection.complete:
            return
        asked = Request(connection.method, connection.target, connection.headers, body)
        try:
            chosen = await self._choose(asked)
            if chosen is None:
                await self._miss(asked, send)
            else:
                await self._play(connection, asked, chosen, clock, began)
        except MockllmError as error:
            self._log(_said(asked, f"{error.status}: {error}"))
            await answer_failure(send, error)

    async def _choose(self, asked: Request) -> Chosen | None:
        drawn = self._library.draw(asked)
        if drawn is not None:
            return Chosen(drawn.handle, " (again, the last of its kind)" if drawn.repeat else "")
        if not self._options.closest:
            return None
        closest = await asyncio.to_thread(self._library.nearest, asked, same_place=True)
        return None if closest is None else Chosen(closest, " (the closest)")

    async def _play(self, connection: RawConnection, asked: Request, chosen: Chosen, clock: Clock, began: int) -> None:
        early, planned = self._plans.get(chosen.recording)
        connection.begin()
        started = began if early else clock.now()
        played = await play(planned, connection, clock, started, keep_alive=connection.keep_alive)
        late = f"late by {duration(played.late_median_us)} at the median, {duration(played.late_max_us)} at most"
        gone = ", the client left" if played.client_left else ""
        sent = f"{played.bytes_written} of {len(planned.buffer)} B, {late}{gone}"
        self._log(_said(asked, f"{chosen.recording}{chosen.why}: {sent}"))

    async def _miss(self, asked: Request, send: Send) -> None:
        self.misses += 1
        message = await asyncio.to_thread(self._explain, asked)
        self._log(_said(asked, f"404: {message}"))
        await answer_error(send, NoMatchError.status, NoMatchError.kind, message)

    def _explain(self, asked: Request) -> str:
        message = f"no recording answers {asked.method} {_shown_target(asked)}"
        near = self._library.nearest(asked, same_place=False)
        if near is None:
            return f"{message}; there are no recordings"
        return f"{message}; the nearest is {near}, but {'; '.join(reasons(asked, files.read_request(near)))}"

    def _plan(self, response: Response) -> Plan:
        options = self._options
        response = retimed(response, speed=options.speed, max_gap_us=options.max_gap_us)
        return plan(response, on_client=options.on_client)


async def _read(connection: RawConnection) -> bytes | None:
    """The request's body; None where it is larger than MAX_BODY, which only recordings of any body answer."""
    body = bytearray()
    async for part in connection.chunks():
        if len(body) <= MAX_BODY:
            body += part
    return bytes(body) if len(body) <= MAX_BODY else None


def _shown_target(asked: Request) -> str:
    return escaped(redact_target(asked.target).decode(errors="backslashreplace"))


def _said(asked: Request, what: str) -> str:
    return f"{asked.method} {_shown_target(asked)} {escaped(what)}"
