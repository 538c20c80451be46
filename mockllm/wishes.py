"""What a Python program says about a replay or a recorder, in plain texts and numbers, and the apps made from it.

It serves nothing.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mockllm import files
from mockllm.bending import Bending
from mockllm.clock import Clock, now
from mockllm.core.errors import UsageError
from mockllm.core.faults.spec import duration
from mockllm.core.forward import Mount
from mockllm.core.pointer import parse_pointer
from mockllm.core.redaction import redaction
from mockllm.core.response import End
from mockllm.core.rules import Rules, parse_match
from mockllm.files import Folder, Nowhere
from mockllm.guard import Guard
from mockllm.journal import Journal
from mockllm.library import Library
from mockllm.misses import Ask
from mockllm.record import Options as RecordOptions
from mockllm.record import Recorder
from mockllm.replay import Options, Replay
from mockllm.target import parse_target

AnyPath = str | os.PathLike[str]

LOGGER = logging.getLogger("mockllm")
"""What happens is told here: a line for each request at INFO, what a person must know at WARNING."""

_CHOICES = {
    "on_miss": ("error", "closest", "record", "forward"),
    "exhausted": ("repeat", "error"),
    "on_client": ("cut", "hang"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How recordings are played, as the options of `mockllm replay` have it.

    `faults` is a spec (`crlf+cut:at=3ev`); `max_gap` a duration with its unit (`2s`); `match` a list
    (`method,path,query,body`); `upstream` is asked where `on_miss` is `record` or `forward`; `journal` is a file that
    gets a line for each request; `redact` and `redact_json` are names and places that are masked on tape, and so do not
    count. Raises UsageError.
    """

    faults: str = ""
    speed: float = 1.0
    max_gap: str | None = None
    match: str = "method,path,query,body"
    ignore: Sequence[str] = ()
    ignore_query: Sequence[str] = ()
    on_miss: str = "error"
    upstream: str | None = None
    exhausted: str = "repeat"
    on_client: str = "cut"
    cors: bool = False
    journal: AnyPath | None = None
    redact: Sequence[str] = ()
    redact_json: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"{name}={getattr(self, name)!r}; expected {' or '.join(map(repr, choices))}")
        if not (isinstance(self.speed, int | float) and 0 <= self.speed < math.inf):
            raise UsageError(f"speed={self.speed!r}; expected a number, such as 10, or 0 for at once")
        asks = self.on_miss in ("record", "forward")
        if asks and self.upstream is None:
            raise UsageError(f"on_miss={self.on_miss!r} needs an upstream to ask, such as http://127.0.0.1:8080")
        if self.upstream is not None and not asks:
            raise UsageError("an upstream is asked only with on_miss 'record' or 'forward'")

    def options(self) -> Options:
        """Raises SpecError, UsageError."""
        return Options(
            speed=self.speed,
            max_gap_us=None if self.max_gap is None else micros("max_gap", self.max_gap),
            on_client=End.HANG if self.on_client == "hang" else End.CLIENT,
            closest=self.on_miss == "closest",
            repeat=self.exhausted == "repeat",
            faults=Bending.parse([self.faults]),
            cors=self.cors,
            redaction=redaction(self.redact, self.redact_json),
        )

    def rules(self) -> Rules:
        """Raises UsageError."""
        hidden = redaction(self.redact, self.redact_json)
        return replace(
            parse_match(self.match),
            ignore=(*map(parse_pointer, self.ignore), *hidden.places),
            ignore_query=frozenset(map(os.fsencode, self.ignore_query)),
            secrets=hidden.names,
        )

    def library(self, paths: Sequence[Path], *, empty_ok: bool = False) -> Library:
        """The recordings in these files and folders. Raises UsageError, CassetteError."""
        return Library(paths, LOGGER.warning, self.rules(), empty_ok=empty_ok or self.on_miss in ("record", "forward"))

    def replay(
        self, library: Library, ask: Ask | None, make_clock: Callable[[], Clock], host: str = "127.0.0.1"
    ) -> Replay:
        """A replay of a library. `host` is where it will be served. Raises SpecError, UsageError, MockllmError."""
        keep = None if self.journal is None else files.LineFile(Path(self.journal), LOGGER.warning)
        return Replay(
            library,
            self.options(),
            make_clock,
            LOGGER.info,
            say=LOGGER.warning,
            journal=Journal(keep.write if keep is not None else None),
            guard=Guard(host),
            ask=ask,
        )

    def recorder(self, paths: Sequence[Path]) -> Recorder | None:
        """Who is asked on a miss, if anybody: a recorder into the first folder, or one that keeps nothing.

        Raises UsageError.
        """
        if self.upstream is None or self.on_miss not in ("record", "forward"):
            return None
        folder = next((path for path in paths if path.is_dir() or not path.exists()), None)
        if self.on_miss == "forward":
            into: Folder | Nowhere = Nowhere()
        elif folder is None:
            raise UsageError("on_miss='record' needs a folder among the paths, for the new tapes")
        else:
            into = Folder(folder)
        return recorder({"": self.upstream}, into, self.record_options())

    def record_options(self) -> RecordOptions:
        """How a recorder beside this replay records. Raises UsageError."""
        return RecordOptions(redaction=redaction(self.redact, self.redact_json))

    def ask(self, recorder: Recorder | None) -> Ask | None:
        """Who is asked on a miss, as a replay wants it."""
        return None if recorder is None else Ask(recorder, keeps=self.on_miss == "record")


def micros(name: str, text: str) -> int:
    """A duration as µs. Raises UsageError."""
    found = duration(text)
    if found is None:
        raise UsageError(f"{name}={text!r}; expected a duration such as '250ms' or '2s'")
    return found


def recorder(
    upstreams: Mapping[str, str],
    folder: Folder | Nowhere,
    options: RecordOptions,
    log: Callable[[str], None] = LOGGER.info,
) -> Recorder:
    """A recorder of servers by the path that they are behind, `""` for all others. Raises UsageError."""
    wrong = [prefix for prefix in upstreams if prefix and not re.fullmatch(r"(/[^/?]+)+/?", prefix)]
    if wrong:
        raise UsageError(f"mount {wrong[0]!r} is no path such as /openai")
    targets = [parse_target(url) for url in upstreams.values()]
    mounts = [Mount(prefix.rstrip("/").encode(), index) for index, prefix in enumerate(upstreams)]
    return Recorder(targets, mounts, folder, options, now=now, say=LOGGER.warning, log=log)
