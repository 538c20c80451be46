"""The whole of mockllm in a few seconds, told to a newcomer: a server is recorded, replayed, and a client is broken.

All of it on 127.0.0.1, in this process, with recordings that come with mockllm; nothing stays behind.
"""

import asyncio
import json
import socket
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from mockllm import files
from mockllm.again import resent
from mockllm.clock import HeapClock, now
from mockllm.core.errors import MockllmError
from mockllm.core.exchange import Request
from mockllm.core.forward import Mount, request_head
from mockllm.core.http1 import Tracker
from mockllm.core.loglines import duration
from mockllm.core.shown import escaped
from mockllm.library import Library
from mockllm.record import Options as RecordOptions
from mockllm.record import Recorder
from mockllm.replay import Options, Replay
from mockllm.serve import ASGIApp, Server
from mockllm.target import parse_target

SERVER = Path("llama-server", "chat-haiku.jsonl")
"""What is played for a server: a real one's answer."""
KEEPALIVES = Path("quirks", "keepalive-19-33.jsonl")
"""What breaks the client."""
WIDTH = 92
TIMEOUT_S = 20
_LINE_BY_LINE = 'for line in lines: json.loads(line.removeprefix("data: "))'


@dataclass(frozen=True, slots=True)
class Got:
    """What a client got: its reads with their times (µs since it asked), and the body without framing."""

    reads: tuple[tuple[int, bytes], ...]
    body: bytes

    @property
    def wire(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    def __str__(self) -> str:
        first, last = duration(self.reads[0][0]), duration(self.reads[-1][0])
        return f"{len(self.wire)} bytes in {len(self.reads)} reads, the first after {first}, the last after {last}"


def demo() -> Generator[str, None, None]:
    """What happens, line by line, as it does. Raises MockllmError where it does not come out as it should."""
    shipped = files.shipped()
    yield "mockllm stands between a client and an LLM server, keeps every byte of every answer with its time,"
    yield "and plays it back so exactly that the client cannot tell. Here is all of it, on this machine only."
    yield ""
    with tempfile.TemporaryDirectory(prefix="mockllm-demo-") as folder:
        tapes = Path(folder)
        recorded = yield from _record(shipped / SERVER, tapes)
        yield from _replay(shipped / SERVER, tapes, recorded)
    yield from _break(recorded, shipped / KEEPALIVES)
    yield ""
    yield "Your turn:"
    yield "  mockllm record http://127.0.0.1:8080 -o tapes    and once point your client at http://127.0.0.1:8801"
    yield "  mockllm replay tapes                             and point it at http://127.0.0.1:8800, with no server"
    yield "  mockllm replay tapes --fault keepalive:before=2,style=mlx     and see whether it minds"


def _record(played: Path, tapes: Path) -> Generator[str, None, Got]:
    taped = threading.Event()
    with _serving(_player(played)) as server, _serving(_recorder(server, tapes, taped)) as proxy:
        yield f"1. A server: a real llama-server, recorded some time ago, plays at {server}"
        yield f"2. Record: a client asks it for a haiku through `mockllm record`, at {proxy}"
        got = ask(proxy, _request(played))
        if not taped.wait(TIMEOUT_S):
            raise MockllmError("the recorder did not finish its tape")
    yield f"     It gets {got}."
    (tape,) = tapes.iterdir()
    lines = tape.read_text(encoding="utf-8").splitlines()
    yield "     The tape has a line for each read: how many ms after the one before it came, and its bytes."
    yield from (f"       {_cut(line)}" for line in lines[1:4])
    yield f"       … {len(lines) - 5} more"
    yield f"       {_cut(lines[-1])}"
    return got


def _replay(played: Path, tapes: Path, recorded: Got) -> Iterator[str]:
    with _serving(_player(tapes)) as replay:
        yield f"3. Replay: the server is gone, `mockllm replay` plays the tape, at {replay}"
        got = ask(replay, _request(played))
    (tape,) = tapes.iterdir()
    (exchange,) = files.read_all(tape)
    if not got.wire == recorded.wire == exchange.response.wire:
        raise MockllmError("the replay differs from the recording: please report this")
    usual, most = apart(tuple(exchange.response.reads()), got.reads)
    yield f"     It gets {got}."
    yield f"     Every byte is the server's, and every gap: {usual} off at the median, {most} at most."


def _break(recorded: Got, keepalives: Path) -> Iterator[str]:
    yield "4. Break a client: this one was written for llama-server, and takes every line for data."
    yield ""
    yield f"       {_LINE_BY_LINE}"
    yield ""
    yield f"     llama-server:   {_cut(naive(recorded.body))}"
    with _serving(_player(keepalives)) as server:
        got = ask(server, _request(keepalives))
    try:
        raise MockllmError(f"the client should have broken, but read {naive(got.body)!r}")
    except json.JSONDecodeError as error:
        yield f"     mlx_lm.server:  JSONDecodeError at the line {escaped(error.doc)!r}"
    yield ""
    yield "   mlx_lm.server sends such comments while it reads a long prompt, and a client has to skip every line"
    yield "   that begins with a colon. A test bench that did not once counted 151 failures of 151, and the"
    yield "   server was blamed. Now it takes no Mac, no model and no long prompt to see it: a file, and a test."


def naive(body: bytes) -> str:
    """The text of a stream as a weak client reads it: every line is data. Raises JSONDecodeError where one is not."""
    text = ""
    for line in body.decode().splitlines():
        data = line.removeprefix("data: ")
        if data not in ("", "[DONE]"):
            text += "".join(choice["delta"].get("content") or "" for choice in json.loads(data)["choices"])
    return text


def ask(base_url: str, request: Request) -> Got:
    """Ask on a connection of its own, with a raw socket, and note every read until the answer is whole."""
    place = urlsplit(base_url)
    head = request_head(request.method, request.target, "1.1", request.headers, host=place.netloc.encode())
    tracker, reads = Tracker(request.method), list[tuple[int, bytes]]()
    body = b""
    with socket.create_connection((place.hostname, place.port), timeout=TIMEOUT_S) as sock:
        began = now()
        sock.sendall(head + (request.body or b""))
        while not tracker.done and (data := sock.recv(1 << 16)):
            reads.append((now() - began, data))
            body += b"".join(segment.data for segment in tracker.feed(0, data))
    return Got(tuple(reads), body)


def apart(one: tuple[tuple[int, bytes], ...], other: tuple[tuple[int, bytes], ...]) -> tuple[str, str]:
    """How far apart the same bytes came, counted from the first: at the median of all reads, and at most."""
    shift = other[0][0] - one[0][0]
    sizes = [list(accumulate(len(data) for _, data in reads)) for reads in (one, other)]
    differences = [
        abs(one[bisect_left(sizes[0], size)][0] + shift - other[bisect_left(sizes[1], size)][0])
        for size in sorted({*sizes[0], *sizes[1]})
    ]
    return duration(round(median(differences))), duration(max(differences))


@contextmanager
def _serving(app: ASGIApp) -> Iterator[str]:
    """Where an app is served."""
    with Server(app, "127.0.0.1", 0) as server:
        yield server.base_url


def _player(path: Path) -> Replay:
    library = Library([path], lambda _: None)
    return Replay(library, Options(), lambda: HeapClock(asyncio.get_running_loop()), lambda _: None)


def _recorder(server: str, tapes: Path, taped: threading.Event) -> Recorder:
    return Recorder(
        [parse_target(server)],
        [Mount(b"", 0)],
        files.Folder(tapes),
        RecordOptions(),
        now=now,
        say=lambda _: None,
        log=lambda _: taped.set(),
    )


def _request(path: Path) -> Request:
    """What the recording's client asked."""
    return resent(files.read_all(path)[0].request, ())


def _cut(text: str) -> str:
    shown = escaped(" ".join(text.split()))
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 1] + "…"
