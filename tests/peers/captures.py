"""Byte captures of real servers (`tests/data/captures`): the request, the reads with their times, the ending.

Taken with a raw client; NAME.timing.json is [[seconds, bytes]…] since the request was sent.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.peers.client import Reads
from tests.peers.script import Fin, Hang, Script, Send, Step, Wait

FOLDER = Path(__file__).parent.parent / "data" / "captures"


@dataclass(frozen=True, slots=True)
class Capture:
    """One captured exchange. `end_at` is when the server closed (µs), None where the client left first."""

    server: str
    name: str
    request: bytes
    reads: Reads
    end_at: int | None

    @property
    def wire(self) -> bytes:
        """The answer's bytes."""
        return b"".join(data for _, data in self.reads)

    def __str__(self) -> str:
        return f"{self.server}/{self.name}"


def load(server: str, name: str) -> Capture:
    """The capture of that name, for example `load("llama-server", "chat-hello")`."""
    stem = FOLDER / server / name
    wire = stem.with_name(f"{name}.bin").read_bytes()
    meta = json.loads(stem.with_name(f"{name}.meta.json").read_text())
    reads, offset = [], 0
    for seconds, size in json.loads(stem.with_name(f"{name}.timing.json").read_text()):
        reads.append((round(seconds * 1e6), wire[offset : offset + size]))
        offset += size
    assert offset == len(wire), f"{server}/{name}: the timing tells of {offset} bytes, there are {len(wire)}"
    end_at = round(meta["eof_t"] * 1e6) if meta["end"] == "eof" else None
    return Capture(server, name, stem.with_name(f"{name}.req").read_bytes(), tuple(reads), end_at)


def captures() -> Iterator[Capture]:
    """All of them, in order of server and name."""
    for path in sorted(FOLDER.glob("*/*.req")):
        yield load(path.parent.name, path.stem)


def from_capture(capture: Capture, *, scale: float = 1.0, cap_ms: float | None = None) -> Script:
    """A script that sends the capture's reads with its gaps (times `scale`, at most `cap_ms` each) and its ending.

    A gap of 0 joins nothing: each read is a write. Where the captured client left first, the server goes silent.
    """
    steps: list[Step] = []
    last = 0
    for at, data in capture.reads:
        steps += [_gap(at - last, scale, cap_ms), Send(data)]
        last = at
    if capture.end_at is None:
        return [*steps, Hang()]
    return [*steps, _gap(capture.end_at - last, scale, cap_ms), Fin()]


def _gap(us: int, scale: float, cap_ms: float | None) -> Wait:
    ms = us * scale / 1000
    return Wait(ms if cap_ms is None else min(ms, cap_ms))
