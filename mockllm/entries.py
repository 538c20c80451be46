"""The journal for Python programs: one frozen value a request, and a line that tells a person what came of it.

It must not know where entries come from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from mockllm.core.loglines import duration
from mockllm.core.shown import escaped

MET = frozenset(("exact", "repeat", "closest", "recorded", "forwarded", "preflight"))
"""What `match` says where a recording, or the real server, answered. `None` while that is not decided."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request and what became of it so far, as `/_mockllm/journal` has it; credentials are not in it.

    `match`: exact, repeat (all its recordings were played, the last one again), closest, recorded, forwarded,
    preflight, miss, exhausted, refused; None while that is not decided. `miss`: nothing answered it, `message` says
    why. `stream_status`: complete, client_gone, reset_by_client, server_cut; None while the answer goes on.
    `left_after_ms`: when the client left, counted from the request. `faults`: for each its spec, whether it `fired`,
    whether it had an `effect`, and if not, `why`.
    """

    number: int
    session: str
    at: str
    request: Mapping[str, Any]
    match: str | None
    miss: bool
    recording: str | None
    faults: tuple[Mapping[str, Any], ...]
    message: str | None
    status: int | None
    ended: bool
    stream_status: str | None
    bytes_sent: int
    events_sent: int
    left_after_ms: float | None
    attempt: int
    since_last_ms: float | None
    late_max_ms: float | None
    late_median_ms: float | None
    duration_ms: float | None

    @property
    def method(self) -> str:
        """Of the request."""
        return str(self.request["method"])

    @property
    def target(self) -> str:
        """Path and query, without the session and the faults that a base URL says."""
        target = self.request["target"]
        return target if isinstance(target, str) else str(target["base64"])

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def json(self) -> Any:
        """The body's JSON value, None where it is none."""
        return self.request.get("json")

    @property
    def unmet(self) -> str | None:
        """Why nothing answered it, None where something did, or will."""
        if self.match is None or self.match in MET:
            return None
        return self.message or f"{self.method} {self.target} was answered by nothing"

    def __str__(self) -> str:
        """One line for a person: what was asked, what was played, when the client left."""
        return escaped(f"{self.number}. {self.method} {self.target}: {', '.join(self._told())}")

    def _told(self) -> Iterator[str]:
        if self.unmet is not None:
            yield f"{self.status or 'no status'}, {self.unmet}"
            return
        yield f"{self.status or 'no status yet'}"
        if self.recording is None:
            yield self.match or "not decided yet"
        else:
            yield self.recording + {"repeat": " (again)", "closest": " (the closest)"}.get(self.match or "", "")
        for fault in self.faults:
            yield f"fault {fault['fault']} {_effect(fault)}"
        if self.bytes_sent:
            yield f"{self.events_sent} events, {self.bytes_sent} B sent"
        yield self._ending()

    def _ending(self) -> str:
        if self.left_after_ms is not None:
            reset = " with a reset" if self.stream_status == "reset_by_client" else ""
            return f"the client left after {duration(round(self.left_after_ms * 1000))}{reset}"
        if self.duration_ms is None:
            return "still going on"
        took = duration(round(self.duration_ms * 1000))
        return f"cut after {took}" if self.stream_status == "server_cut" else f"complete after {took}"


def entry_of(document: Mapping[str, Any]) -> Entry:
    """The entry that an object of `/_mockllm/journal` says."""
    values = {item.name: document[item.name] for item in fields(Entry)}
    return Entry(**(values | {"faults": tuple(document["faults"])}))


def _effect(fault: Mapping[str, Any]) -> str:
    if fault["effect"]:
        return "applied"
    return f"had no effect ({fault['why']})" if fault["fired"] else "was not its turn"
