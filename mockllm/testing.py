"""What a test-suite needs: one server for all tests of a process, and for each test an own replay behind it.

While it records, tapes lie in a folder apart until the test is known to be good. It must not know pytest.
"""

import re
import threading
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

from mockllm.answers import answer_error
from mockllm.api import ReplayServer
from mockllm.core.errors import UsageError
from mockllm.core.forward import origin_form
from mockllm.core.redact import redact_target
from mockllm.core.shown import escaped
from mockllm.files import SUFFIX, Folder
from mockllm.hosting import Host, SharedClock
from mockllm.misses import Ask
from mockllm.record import Recorder
from mockllm.renewing import renew
from mockllm.replay import Replay
from mockllm.serve import RAW, ASGIApp, RawConnection, Receive, Scope, Send
from mockllm.wishes import LOGGER, Wishes, recorder

SETTLE_S = 6.0
"""How long a test waits for its tapes: longer than the recorder reads on a finished answer whose client has left."""
STOP_S = 2.0
"""How long for those that were ended because of that."""

NO_FAULT = "none"
"""The spec that bends nothing."""

_TEST = re.compile(rb"/~session=(pytest\.[A-Za-z0-9._-]+)(?=[/?]|\Z)")


class Mode(Enum):
    """Who answers."""

    REPLAY = "replay"
    """Recordings only."""
    RECORD = "record"
    """The real server; its answers become the cassette."""
    AUTO = "auto"
    """Recordings, and for what has none the real server; its answers are added to the cassette."""
    OFF = "off"
    """The real server, without mockllm between."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one test wants. `owned`: its cassette is nobody else's, so that it is recorded anew as a whole.

    `fault` is the one of this run, among those of `wishes`.
    """

    mode: Mode
    paths: tuple[Path, ...]
    owned: bool
    wishes: Wishes
    upstream: str | None = None
    fault: str = NO_FAULT

    def __post_init__(self) -> None:
        if self.mode in (Mode.RECORD, Mode.OFF) and self.upstream is None:
            raise UsageError(f"--mockllm={self.mode.value} needs the real server: --mockllm-upstream URL")
        if self.mode is Mode.RECORD and len(self.paths) > 1:
            raise UsageError("to be recorded a test names one cassette, not several")


class Switch:
    """Passes each request to the test that its base URL names, or, where it names none, to the one that runs now."""

    def __init__(self) -> None:
        self.tests: dict[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: RawConnection = scope["extensions"][RAW]
        target = origin_form(connection.target)
        found = _TEST.match(target)
        name = found[1].decode() if found else next(reversed(self.tests), "")
        app = self.tests.get(name)
        if app is None:
            message = f"the test {name} is over" if found else "no test uses the fixture mockllm now"
            await answer_error(send, 404, "mockllm_no_test", message)
            return
        if found:
            rest = target[found.end() :]
            connection.target = rest if rest.startswith(b"/") else b"/" + rest
            # for /_mockllm/, which is an ordinary app
            scope["path"] = connection.target.partition(b"?")[0].decode("utf-8", "replace")
        await app(scope, receive, send)


class Taped:
    """A recorder for one test, which knows of every request whether it is on tape."""

    def __init__(self, upstream: str, folder: Path, wishes: Wishes) -> None:
        self.refused: list[str] = []
        self.folder = folder
        self._begun = self._ended = 0
        self._changed = threading.Condition()
        self.recorder: Recorder = recorder({"": upstream}, Folder(folder), wishes.record_options(), self._settled)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: RawConnection = scope["extensions"][RAW]
        self._begun += 1

        async def noticing(message: MutableMapping[str, Any]) -> None:
            """An answer of the recorder's own means that there is no tape."""
            if message["type"] == "http.response.body":
                target = redact_target(connection.target).decode(errors="backslashreplace")
                why = f"{connection.method} {target} was not recorded: {message['body'].decode()}"
                self.refused.append(escaped(why))
            await send(message)

        await self.recorder(scope, receive, noticing)
        with self._changed:
            self._changed.notify_all()

    def settle(self, host: Host) -> str | None:
        """Wait until every exchange is on tape, and end those that take too long; why that did not do, or None."""
        if not self._wait(SETTLE_S):
            host.call(self.recorder.stop)
        settled = self._wait(STOP_S)
        host.call(self.recorder.stop)
        if self.recorder.failed:
            return "a tape could not be written"
        return None if settled else "an exchange did not come to its end"

    def _wait(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._ended + len(self.refused) >= self._begun, timeout_s)

    def _settled(self, line: str) -> None:
        """An exchange has ended; called in the server's loop."""
        LOGGER.info(line)
        with self._changed:
            self._ended = self.recorder.ends.total()
            self._changed.notify_all()


class Trial:
    """One test's mockllm. `server` is what the test sees of it."""

    def __init__(self, name: str, plan: Plan, host: Host, app: Replay, taped: Taped | None, base_url: str) -> None:
        self.name, self.plan = name, plan
        self.server = ReplayServer(base_url, host, app)
        self._host, self._app, self._taped = host, app, taped

    def complaints(self, *, fail_unused: bool) -> list[str]:
        """What speaks against the test although it may have passed: requests without an answer, or without a tape."""
        found = list(map(str, self.server.misses))
        if not found and self._app.misses + self._app.exhausted:
            found.append("requests were answered by no recording, so many that the journal has forgotten them")
        if self._taped is not None:
            problem = self._taped.settle(self._host)
            found += [*self._taped.refused, *([problem] if problem else [])]
        if fail_unused and self.plan.mode is Mode.REPLAY:
            found += [f"{recording} was never asked for" for recording in self.server.unused]
        return found

    @property
    def idle_fault(self) -> str | None:
        """Why the fault of this run had no effect on any answer; None where it had one, and where there is none."""
        told = [fault for entry in self.server.journal for fault in entry.faults]
        if self.plan.fault == NO_FAULT or any(fault["effect"] for fault in told):
            return None
        why = next((str(fault["why"]) for fault in told if fault["why"]), "nothing was played that it could bend")
        return f"the fault {self.plan.fault} had no effect: {why}"

    def report(self) -> str:
        """What was asked and played, a line each."""
        return "\n".join(map(str, self.server.journal)) or "no request came"

    def keep(self) -> None:
        """The test is good: its tapes become the cassette. Raises MockllmError."""
        fresh = [] if self._taped is None else sorted(self._taped.folder.glob(f"*{SUFFIX}"))
        if fresh:
            keep = self.plan.mode is Mode.AUTO or not self.plan.owned
            renew(self.plan.paths[0], fresh, self.plan.wishes.rules(), keep=keep)


class Bench:
    """The server of a process, started when the first test needs it."""

    def __init__(self) -> None:
        self._switch, self._clock, self._numbers = Switch(), SharedClock(), count(1)
        self._host = Host(self._switch)
        self._running = False

    def open(self, name: str, plan: Plan, make_folder: Callable[[], Path]) -> Trial:
        """A test begins; `make_folder` gives an empty folder for its tapes. Raises UsageError, CassetteError."""
        taped = None
        if plan.upstream is not None and plan.mode in (Mode.RECORD, Mode.AUTO):
            taped = Taped(plan.upstream, make_folder(), plan.wishes)
        played: Sequence[Path] = plan.paths if plan.mode in (Mode.REPLAY, Mode.AUTO) else ()
        library = plan.wishes.library(played, empty_ok=plan.owned or plan.mode is not Mode.REPLAY)
        app = plan.wishes.replay(library, None if taped is None else Ask(taped, keeps=True), self._clock)
        if plan.mode is Mode.OFF and plan.upstream is not None:
            return Trial(name, plan, self._host, app, None, plan.upstream.rstrip("/"))
        if not self._running:
            self._host.start()
            self._running = True
        session = f"pytest.{name}-{next(self._numbers)}"
        self._switch.tests[session] = app
        return Trial(session, plan, self._host, app, taped, f"{self._host.base_url}/~session={session}")

    def end(self, trial: Trial) -> None:
        """A test is over: what still comes of it is refused."""
        self._switch.tests.pop(trial.name, None)

    def close(self) -> None:
        """All tests are over."""
        self._host.close()
