"""Answers requests for which there is no recording to play: preflights, misses, and those whose recordings were all
played.

It may ask the real server, through what it was handed. It plays nothing.
"""

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from mockllm import files
from mockllm.answers import answer_empty
from mockllm.core.errors import MockllmError, NoMatchError, UsageError
from mockllm.core.exchange import MAX_BODY
from mockllm.core.http1 import Tracker, scan
from mockllm.core.matching import reasons
from mockllm.core.response import End, Response, Segment
from mockllm.core.shown import escaped
from mockllm.cors import is_preflight, preflight_headers
from mockllm.desk import Desk
from mockllm.library import Library
from mockllm.plans import event_ends
from mockllm.serve import ASGIApp
from mockllm.turn import Turn

MAX_HEARD = 16 * 1024 * 1024
"""Of a real server's answer so much is kept until its end, to count the events (bytes)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """`app` has the real server answer; `keeps`: what it answers becomes a recording in the library's folders."""

    app: ASGIApp
    keeps: bool


class Misses:
    """`count` and `exhausted` tell how many requests nothing answered: unmatched ones, and ones that came too late."""

    def __init__(self, library: Library, desk: Desk, ask: Ask | None, *, cors: bool) -> None:
        self.count = self.exhausted = 0
        self._library, self._desk, self._ask, self._cors = library, desk, ask, cors

    async def answer(self, turn: Turn) -> None:
        """Answer, and enter into the journal what came of it. Raises UsageError."""
        asked, entry = turn.asked, turn.entry
        exhausted = entry.match == "exhausted"
        if is_preflight(asked) and (self._cors or self._ask is None):
            await self._preflight(turn)
        elif exhausted:
            self.exhausted += 1
            what = f"all recordings of {asked.method} {turn.target} were played"
            message = f"{what}; --exhausted repeat plays the last one again"
            await turn.refuse(NoMatchError.status, "mockllm_exhausted", message)
        elif self._ask is not None:
            await self._pass_on(turn, self._ask)
        else:
            self.count += 1
            entry.match = "miss"
            message = await asyncio.to_thread(self._explain, turn)
            await turn.refuse(NoMatchError.status, NoMatchError.kind, message)

    async def _preflight(self, turn: Turn) -> None:
        """A browser's question is never a miss: without an answer of ours it learns that it may not."""
        turn.entry.match = "preflight"
        if self._cors:
            turn.entry.status = 204
            await answer_empty(turn.send, 204, preflight_headers(turn.asked))
        else:
            await turn.refuse(
                NoMatchError.status, NoMatchError.kind, "no recording answers this preflight; --cors does"
            )

    async def _pass_on(self, turn: Turn, ask: Ask) -> None:
        entry, connection = turn.entry, turn.connection
        if turn.body is None:
            raise UsageError(f"a body of more than {MAX_BODY >> 20} MiB is not passed on to the real server")
        entry.match = "recorded" if ask.keeps else "forwarded"
        tracker, heard = Tracker(turn.asked.method), []

        def hear(data: bytes) -> None:
            tracker.feed(0, data)
            if entry.bytes_sent < MAX_HEARD:
                heard.append(data)
            entry.wrote(data)

        async def send(message: MutableMapping[str, Any]) -> None:
            entry.status = message.get("status", entry.status)
            await turn.send(message)

        connection.headers = tuple(pair for pair in connection.headers if not pair[0].lower().startswith(b"mockllm-"))
        connection.unread(turn.body)
        connection.on_write = hear
        try:
            await ask.app(turn.scope, turn.receive, send)
        finally:
            if entry.status is None:
                _enter(turn, tracker, heard)
        if ask.keeps:
            self._find_new(turn)

    def _find_new(self, turn: Turn) -> None:
        """Have the library see what was just taped: what answers the request now, since nothing did before."""
        self._library.look()
        made = [item.handle for item in self._library.deck.entries if item.key in turn.keys]
        if made:
            recording = next((one for one in made if not self._desk.played(one)), made[0])
            turn.entry.recording = escaped(str(recording))
            self._desk.note(recording)

    def _explain(self, turn: Turn) -> str:
        message = f"no recording answers {turn.asked.method} {turn.target}"
        near = self._library.nearest(turn.asked, same_place=False)
        if near is None:
            return f"{message}; there are no recordings"
        try:
            why = "; ".join(reasons(turn.asked, files.read_request(near), self._library.rules))
        except MockllmError as error:
            why = str(error)
        return f"{message}; the nearest is {near}, but {why}"


def _enter(turn: Turn, tracker: Tracker, heard: list[bytes]) -> None:
    """What the real server answered, into the journal."""
    segments = tuple(Segment(at, before=data) for at, data in enumerate(heard))
    turn.entry.status = None if tracker.head is None else tracker.head.status
    turn.entry.events_sent = len(event_ends(scan(Response(segments, End.FIN, len(segments), method=turn.asked.method))))
    turn.ended(whole=tracker.eof(), client_left=turn.connection.left.done() and not tracker.done)
