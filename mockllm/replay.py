"""Plays cassettes: finds the recording that answers a request, bends it where asked, and writes its bytes on time.

A plain ASGI callable on raw connections. It never reaches for another server (on a miss it may call what it was
handed), and must not know how tapes are made.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mockllm.answers import Pairs
from mockllm.bending import Bending
from mockllm.clock import Clock
from mockllm.control import control_plane, is_control
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.exchange import MAX_BODY, Request, header
from mockllm.core.faults.head import change_head, with_header
from mockllm.core.faults.spec import Spec
from mockllm.core.http1 import scan
from mockllm.core.loglines import duration
from mockllm.core.matching import keys, path_of
from mockllm.core.prefix import session_name, strip
from mockllm.core.redaction import Redaction
from mockllm.core.response import End, Response
from mockllm.core.shown import escaped
from mockllm.core.timing import retimed
from mockllm.cors import EXPOSED, readable
from mockllm.desk import Desk
from mockllm.files import Recording
from mockllm.guard import Guard
from mockllm.journal import Journal
from mockllm.library import Library
from mockllm.misses import Ask, Misses
from mockllm.plans import Made, Plans, Wanted
from mockllm.play import Ending, Played, close_idle, plan, play
from mockllm.serve import RAW, RawConnection, Receive, Scope, Send
from mockllm.sessions import Session
from mockllm.turn import Turn


@dataclass(frozen=True, slots=True)
class Options:
    """How recordings are played.

    `speed` divides all times (0: at once); `max_gap_us` caps each silence; `on_client` HANG is silent where the
    recorded client left; `closest` plays the nearest recording of the same method and path on a miss; `repeat` plays
    the last one of its kind again when all were played, else that is an error; `faults` bend every answer; `cors`
    lets pages of any origin in; `redaction` says what is masked in all that is said and kept of a request.
    """

    speed: float = 1.0
    max_gap_us: int | None = None
    on_client: End = End.CLIENT
    closest: bool = False
    repeat: bool = True
    faults: Spec = ()
    cors: bool = False
    redaction: Redaction = field(default_factory=Redaction)


class Replay:
    """The ASGI callable. `make_clock` is called in the server's loop; `log` is told one line a request, `say` what a
    person must know. `ask` answers a request that no recording answers, instead of an error.

    `misses` and `exhausted` count the requests that nothing answered, `failures` those whose recording could not be
    read.
    """

    def __init__(
        self,
        library: Library,
        options: Options,
        make_clock: Callable[[], Clock],
        log: Callable[[str], None],
        *,
        say: Callable[[str], None] = lambda _: None,
        journal: Journal | None = None,
        guard: Guard | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.failures = 0
        self.journal = journal or Journal()
        self._library, self._options, self._make_clock, self._log = library, options, make_clock, log
        self._clock: Clock | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._bending = Bending(options.faults, say)
        self.desk = Desk(library, self.journal, self._bending)
        self._misses = Misses(library, self.desk, ask, cors=options.cors)
        self._plans = Plans(self._prepared, self._finished, partial(plan, on_client=options.on_client))
        self._control = control_plane(self._status, guard or Guard(), self.desk)

    @property
    def misses(self) -> int:
        return self._misses.count

    @property
    def exhausted(self) -> int:
        return self._misses.exhausted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: RawConnection = scope["extensions"][RAW]
        if is_control(connection.target):
            await self._control(scope, receive, send)
            return
        clock = self._clock = self._clock or self._make_clock()
        began = clock.now()
        session, spec, refusal = self._steered(connection)
        early = self._library.answers_early(connection.method, connection.target)
        body = None if early else await _read(connection)
        if not (early or connection.complete):
            return
        ready = clock.now()
        heard = Request(connection.method, connection.target, connection.headers, body)
        asked, secrets = self._options.redaction.split(heard)
        names = keys(asked, self._library.rules)
        entry = self.journal.begin(secrets.replace(session.name.encode()).decode(), asked)
        attempt, before = session.attempt(names[0])
        entry.attempt = attempt.number
        entry.since_last = None if before is None or before.ended_at is None else max(0, began - before.ended_at)
        steered = (session, spec, refusal)
        asking = (connection, scope, receive, send, clock, began, ready, asked, body, names)
        turn = Turn(*asking, *steered, entry, self._log, self._own, secrets)
        try:
            await self._answer(turn)
        finally:
            attempt.ended_at = clock.now()
            self.journal.end(entry, attempt.ended_at - began)

    def _status(self) -> dict[str, int]:
        return {"exchanges": len(self._library), "misses": self.misses}

    def _steered(self, connection: RawConnection) -> tuple[Session, Spec | None, UsageError | None]:
        """The session and the faults that a request asks for, or why it cannot have them; its own target is what is
        left of it.
        """
        headers, session = connection.headers, self.desk.session(None)
        try:
            prefixed = strip(connection.target)
            connection.target = prefixed.target
            name, named = prefixed.session, header(headers, b"mockllm-session")
            if name is None and named is not None:
                name = session_name(named.decode(errors="replace"))
            session = self.desk.session(name)
            texts = [value.decode(errors="replace") for key, value in headers if key.lower() == b"mockllm-fault"]
            texts = [text for text in (prefixed.spec, *texts) if text]
            return session, self._bending.parse(texts) if texts else None, None
        except UsageError as error:
            return session, None, error

    async def _answer(self, turn: Turn) -> None:
        try:
            if turn.refusal is not None:
                raise turn.refusal
            wanted = await self._choose(turn)
            if wanted is None:
                await self._misses.answer(turn)
            else:
                await self._play(turn, wanted)
        except MockllmError as error:
            self.failures += error.status >= 500
            turn.entry.match = "refused"
            await turn.refuse(error.status, error.kind, str(error))

    async def _choose(self, turn: Turn) -> Recording | None:
        drawn = self._library.draw(turn.keys, turn.session.positions, turn.began)
        if drawn is not None:
            turn.entry.match = "exact" if not drawn.repeat else "repeat" if self._options.repeat else "exhausted"
            return None if turn.entry.match == "exhausted" else drawn.handle
        if not self._options.closest:
            return None
        closest = await asyncio.to_thread(self._library.nearest, turn.asked, same_place=True)
        if closest is None:
            return None
        turn.entry.match = "closest"
        return closest

    async def _play(self, turn: Turn, recording: Recording) -> None:
        entry, connection, clock = turn.entry, turn.connection, turn.clock
        fired = self._bending.fire(turn.session, turn.spec, path_of(turn.asked.target).decode(errors="replace"))
        faults = tuple(one.step.fault for one in fired if one.fires)
        made = await self._plans.get(Wanted(recording, faults, entry.match == "closest"))
        self.desk.note(recording)
        entry.recording, entry.status = escaped(str(recording)), made.status
        entry.faults = self._bending.told(fired, made.idle, str(recording), turn.hide)
        connection.on_write, entry.event_ends = entry.wrote, made.event_ends
        connection.begin()
        started = turn.began if made.early else turn.ready
        played: Played | None = None
        try:
            played = await play(made.plan, connection, clock, started, keep_alive=connection.keep_alive)
        finally:  # also where the server stops in the middle
            _enter(turn, made, played)
        if made.plan.closes_idle(connection.keep_alive):
            closing = asyncio.create_task(close_idle(made.plan, connection, clock, started))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        why = {"repeat": " (again, the last of its kind)", "closest": " (the closest)"}.get(entry.match or "", "")
        late = f"late by {duration(played.late_median_us)} at the median, {duration(played.late_max_us)} at most"
        gone = ", the client left" if played.client_left else ""
        turn.tell(f"{recording}{why}: {played.bytes_written} of {len(made.plan.buffer)} B, {late}{gone}")

    @property
    def _own(self) -> Pairs:
        """What every error of mockllm's own has in its head."""
        return EXPOSED if self._options.cors else ()

    def _prepared(self, response: Response) -> Response:
        return retimed(response, speed=self._options.speed, max_gap_us=self._options.max_gap_us)

    def _finished(self, response: Response, closest: bool) -> Response:
        if scan(response).head is None:
            return response
        if closest:
            response = change_head(response, lambda lines: with_header(lines, b"mockllm-match", b"closest"))
        return readable(response) if self._options.cors else response


def _enter(turn: Turn, made: Made, played: Played | None) -> None:
    """What became of a plan, into the journal."""
    entry = turn.entry
    entry.events_sent = bisect_right(made.event_ends, entry.bytes_sent)
    if played is None:
        turn.ended(whole=False, client_left=False)
        return
    entry.late_max, entry.late_median = played.late_max_us, played.late_median_us
    whole = made.plan.ending is Ending.KEEP or made.plan.over_at is not None
    turn.ended(whole=whole, client_left=played.client_left)


async def _read(connection: RawConnection) -> bytes | None:
    """The request's body; None where it is larger than MAX_BODY, which only recordings of any body answer."""
    body = bytearray()
    async for part in connection.chunks():
        if len(body) <= MAX_BODY:
            body += part
    return bytes(body) if len(body) <= MAX_BODY else None
