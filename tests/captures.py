"""What real servers sent, captured on raw sockets (`tests/data/captures/<server>/<name>.*`).

It reads files and knows nothing of mockllm, so that every test may start from it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "captures"


@dataclass(frozen=True, slots=True)
class Capture:
    """One exchange. Times are µs since the request was sent, those of two reads at least 1 µs apart.

    `ending` is `eof` (the server closed at `end_at`) or `client_close` (the capturing client left then).
    """

    name: str
    server: str
    request: bytes
    response: bytes
    reads: tuple[tuple[int, bytes], ...]
    ending: str
    end_at: int

    @property
    def method(self) -> str:
        """The request's method."""
        return self.request.partition(b" ")[0].decode()

    def __str__(self) -> str:
        return f"{self.server}/{self.name}"


def load(server: str, name: str) -> Capture:
    """One capture, for example `load("llama-server", "chat-hello")`."""
    folder = FOLDER / server
    response = (folder / f"{name}.bin").read_bytes()
    meta = json.loads((folder / f"{name}.meta.json").read_text())
    reads: list[tuple[int, bytes]] = []
    start = 0
    for seconds, length in json.loads((folder / f"{name}.timing.json").read_text()):
        at = round(seconds * 1_000_000)
        reads.append((max(at, reads[-1][0] + 1) if reads else at, response[start : start + length]))
        start += length
    assert start == len(response), f"{server}/{name}: the timing tells of {start} bytes, there are {len(response)}"
    end_at = round(meta.get("eof_t", meta["end_t"]) * 1_000_000)
    request = (folder / f"{name}.req").read_bytes()
    return Capture(name, server, request, response, tuple(reads), meta["end"], end_at)


def captures() -> list[Capture]:
    """All of them, by server and name."""
    return [load(path.parent.name, path.stem) for path in sorted(FOLDER.glob("*/*.bin"))]
