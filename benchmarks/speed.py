"""Three numbers beside their limits, interleaved in one run, as medians and ratios.

    python benchmarks/speed.py               all three, about two minutes
    python benchmarks/speed.py relay         how much later an event comes through the recorder than through a byte tee
    python benchmarks/speed.py late          how late a replay of 1,000 streams writes, by its own journal
    python benchmarks/speed.py atonce        streams a second at --speed 0, beside a bare protocol with the same bytes

Everything runs on this machine; the client is another process than the server. Noise is part of it: compare the ratios.
"""

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BARE = Path(__file__).parent / "bare.py"
ROUNDS = 5
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
END = b"0\r\n\r\n"
STAMPED = re.compile(rb"data: (\d+) ")
RELAY_STREAMS, RELAY_EVENTS, RELAY_GAP_S = 50, 40, 0.02
LATE_STREAMS, LATE_EVENTS, LATE_GAP_MS = 1000, 30, 100
CHUNKS, CHUNK_SIZE, CLIENTS, AT_ONCE_S = 200, 200, 32, 2.0


@contextmanager
def started(*command: str | Path) -> Iterator[int]:
    """A server process; its port, from the URL that ends its first line."""
    process = subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.wait(10)


async def stream(port: int, took: Callable[[bytes, int], None]) -> None:
    """Ask once and read the answer to its last chunk; `took` gets each read with its time (ns)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASK)
    tail = b""
    while not tail.endswith(END):
        data = await reader.read(1 << 16)
        if not data:
            break
        took(data, time.monotonic_ns())
        tail = (tail + data)[-len(END) :]
    writer.close()


async def clocked_upstream() -> asyncio.Server:
    """Streams events that carry the time at which they were sent (ns)."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(RELAY_EVENTS):
                await asyncio.sleep(RELAY_GAP_S)
                event = b"data: %d %s\n\n" % (time.monotonic_ns(), b"x" * 170)
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            writer.write(END)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)


async def latencies(port: int) -> list[float]:
    """µs from sending to receiving, of every event."""
    found: list[float] = []

    def took(data: bytes, now: int) -> None:
        found.extend((now - int(sent)) / 1000 for sent in STAMPED.findall(data))

    await asyncio.gather(*(stream(port, took) for _ in range(RELAY_STREAMS)))
    return found


async def relay() -> None:
    upstream = await clocked_upstream()
    port = upstream.sockets[0].getsockname()[1]
    ways: dict[str, list[list[float]]] = {"direct": [], "byte tee": [], "recorder": []}
    with (
        tempfile.TemporaryDirectory() as tapes,
        started(BARE, "tee", f"127.0.0.1:{port}") as tee,
        started(
            "-m", "mockllm", "record", f"http://127.0.0.1:{port}", "-o", tapes, "--port", "0", "--quiet"
        ) as recorder,
    ):
        for _ in range(ROUNDS):
            for name, way in zip(ways, (port, tee, recorder), strict=True):
                ways[name].append(await latencies(way))
    upstream.close()
    print(f"relay: {RELAY_STREAMS} streams, an event every {RELAY_GAP_S * 1000:.0f} ms, {ROUNDS} rounds, µs")
    medians = {name: statistics.median(statistics.median(one) for one in rounds) for name, rounds in ways.items()}
    for name, rounds in ways.items():
        p99 = statistics.median(statistics.quantiles(one, n=100)[98] for one in rounds)
        ratio = medians[name] / medians["byte tee"]
        print(f"  {name:9} p50 {medians[name]:7.0f}   p99 {p99:7.0f}   of the tee's p50: {ratio:.2f}")


def tape(events: int, gap_ms: float, size: int) -> str:
    """A cassette with one stream of equal events."""
    head = {"version": "1.1", "status": 200, "reason": "OK", "headers": [["Content-Type", "text/event-stream"]]}
    head["headers"].append(["Transfer-Encoding", "chunked"])  # type: ignore[attr-defined]
    asked = {"method": "POST", "target": "/v1/chat/completions", "json": {}}
    lines: list[object] = [{"mockllm": 1, "origin": "written", "request": asked}, [1, "head", head]]
    lines += [[gap_ms, "data", "data: " + "x" * (size - 8) + "\n\n"]] * events
    lines += [[0, "wire", END.decode()], [0, "end", "complete"]]
    return "".join(json.dumps(line) + "\n" for line in lines)


async def late() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stream.jsonl")
        path.write_text(tape(LATE_EVENTS, LATE_GAP_MS, CHUNK_SIZE))
        medians, worst = [], []
        with started("-m", "mockllm", "replay", path, "--port", "0", "--quiet") as port:
            for _ in range(3):
                await asyncio.gather(*(stream(port, lambda *_: None) for _ in range(LATE_STREAMS)))
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/_mockllm/journal?ended=true") as response:
                    entries = json.load(response)
                medians.append(statistics.median(entry["late_median_ms"] for entry in entries))
                worst.append(statistics.median(entry["late_max_ms"] for entry in entries))
    print(f"late: {LATE_STREAMS} streams, an event every {LATE_GAP_MS} ms, 3 rounds; the limit is 0")
    middle, last = statistics.median(medians), statistics.median(worst)
    print(f"  median of a stream's median {middle:.3f} ms, of its worst {last:.1f} ms")


async def per_second(port: int) -> float:
    """Streams a second, over CLIENTS clients that each ask again and again."""
    done = 0
    until = time.monotonic() + AT_ONCE_S

    async def client() -> None:
        nonlocal done
        while time.monotonic() < until:
            await stream(port, lambda *_: None)
            done += 1

    began = time.monotonic()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return done / (time.monotonic() - began)


async def at_once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stream.jsonl")
        path.write_text(tape(CHUNKS, 1, CHUNK_SIZE))
        rates: dict[str, list[float]] = {"bare protocol": [], "replay --speed 0": []}
        with (
            started(BARE, "stream", "--chunks", str(CHUNKS), "--size", str(CHUNK_SIZE)) as bare,
            started("-m", "mockllm", "replay", path, "--port", "0", "--speed", "0", "--quiet") as replay,
        ):
            for _ in range(ROUNDS):
                for name, port in zip(rates, (bare, replay), strict=True):
                    rates[name].append(await per_second(port))
    print(f"at once: streams of {CHUNKS} chunks, {CLIENTS} clients, a connection each, {ROUNDS} rounds")
    limit = statistics.median(rates["bare protocol"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"  {name:16} {rate:7.0f} streams/s   of the limit: {rate / limit:.2f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="three numbers beside their limits")
    kinds = {"relay": relay, "late": late, "atonce": at_once}
    parser.add_argument("kinds", nargs="*", choices=[*kinds, []], help="all of them by default")
    try:
        import uvloop as loops
    except ImportError:
        loops = asyncio  # type: ignore[misc]
    for kind in parser.parse_args().kinds or kinds:
        loops.run(kinds[kind]())


if __name__ == "__main__":
    main()
