"""What the machine itself can do, to hold mockllm's numbers against: a byte tee, and a server of ready bytes.

    python benchmarks/bare.py tee HOST:PORT             every byte both ways, not looked at
    python benchmarks/bare.py stream --chunks 200       each request gets a chunked stream in one write

Both print `ready http://127.0.0.1:PORT` and serve until Ctrl-C. They must not know HTTP beyond what they send, keep
nothing and import nothing of mockllm: whatever is slower than this is mockllm's own cost.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

try:
    import uvloop as loops
except ImportError:
    loops = asyncio  # type: ignore[misc]

END_OF_HEAD = b"\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Half(asyncio.Protocol):
    """One side of a tee: what it reads the other one writes; when it closes, so does the other."""

    def __init__(self, other: "Half | None" = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        for data in self.waiting:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.transport is None:
            self.other.waiting.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Tee(Half):
    """The client's side: opens a connection to the server for each of its own."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(Half(self))
        self.address = host, port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.connecting = asyncio.get_running_loop().create_task(self.connect())

    async def connect(self) -> None:
        other = self.other
        assert other is not None
        assert self.transport is not None
        try:
            await asyncio.get_running_loop().create_connection(lambda: other, *self.address)
        except OSError:
            self.transport.abort()


class Stream(asyncio.Protocol):
    """Answers each request, head and body in one read, with the same bytes in one write."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if END_OF_HEAD in data:
            self.transport.write(self.answer)


def stream_of(chunks: int, size: int) -> bytes:
    """A whole answer: so many events of `size` bytes, each a chunk, and the last chunk."""
    event = b"data: " + b"x" * (size - 8) + b"\n\n"
    return HEAD + (b"%x\r\n%b\r\n" % (len(event), event)) * chunks + b"0\r\n\r\n"


async def serve(protocol: Callable[[], asyncio.Protocol], port: int) -> None:
    """Serve until cancelled."""
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port, backlog=2048)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="a byte tee, or a server of ready bytes")
    parser.add_argument("--port", type=int, default=0)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tee").add_argument("upstream", help="HOST:PORT")
    stream = commands.add_parser("stream")
    stream.add_argument("--chunks", type=int, default=200)
    stream.add_argument("--size", type=int, default=200, help="bytes of an event, 9 at least")
    options = parser.parse_args()
    if options.command == "tee":
        host, _, port = options.upstream.rpartition(":")
        coroutine = serve(lambda: Tee(host, int(port)), options.port)
    else:
        answer = stream_of(options.chunks, options.size)
        coroutine = serve(lambda: Stream(answer), options.port)
    with contextlib.suppress(KeyboardInterrupt):
        loops.run(coroutine)


if __name__ == "__main__":
    main()
