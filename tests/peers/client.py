"""A client on a raw socket that keeps every read with its time and how the connection ended.

It must not know HTTP: where an answer ends on a connection that stays open is the caller's to say.
"""

import contextlib
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from tests.peers.common import Ended, now_us, reset

Reads = tuple[tuple[int, bytes], ...]
"""(µs, bytes) of each read."""
Enough = int | Callable[[bytes], object] | None
"""When to stop reading: at so many bytes, when a function of the bytes so far says so, or (None) at the end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: reads in µs since the request was fully sent, and how it ended, at `end_at` on the same scale."""

    reads: Reads
    end: Ended
    end_at: int
    sent_at: int
    """Absolute µs (`common.now_us`)."""

    @property
    def wire(self) -> bytes:
        """Every byte, in order."""
        return b"".join(data for _, data in self.reads)


class RawClient:
    """One connection. `rcvbuf` shrinks the kernel's receive buffer (bytes), for clients that read slowly.

    `on_read(total)` is called after each read with the bytes of this answer so far (`Lockstep.on_read`).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 20,
        rcvbuf: int | None = None,
        on_read: Callable[[int], object] | None = None,
    ) -> None:
        self._sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if rcvbuf is not None:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self._sock.settimeout(timeout_s)
        self._sock.connect((host, port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timeout_s = timeout_s
        self._on_read = on_read
        self.sent_at = now_us()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def send(self, *pieces: bytes) -> None:
        """Send each piece in a write of its own. Times of reads count from the end of the last one."""
        for piece in pieces:
            self._sock.sendall(piece)
        self.sent_at = now_us()

    def read(self, enough: Enough = None, *, for_ms: float | None = None) -> Answer:
        """Read until `enough`, the end, or the time is over (`timeout_s` of the connection without `for_ms`).

        Takes no byte more than `enough` where that is a number; an answer's times count from the last `send`.
        """
        deadline = now_us() + round(self._timeout_s * 1e6 if for_ms is None else for_ms * 1000)
        reads: list[tuple[int, bytes]] = []
        wire = bytearray()
        while True:
            if _satisfied(enough, wire):
                end = Ended.OPEN
                break
            try:
                self._sock.settimeout(max(deadline - now_us(), 1) / 1e6)
                data = self._sock.recv(min(1 << 16, enough - len(wire)) if isinstance(enough, int) else 1 << 16)
            except TimeoutError:
                end = Ended.TIMEOUT
                break
            except OSError:
                end = Ended.RST
                break
            at = now_us()
            if not data:
                end = Ended.FIN
                break
            reads.append((at - self.sent_at, data))
            wire += data
            if self._on_read is not None:
                self._on_read(len(wire))
        return Answer(tuple(reads), end, now_us() - self.sent_at, self.sent_at)

    def half_close(self) -> None:
        """Send a FIN and go on reading."""
        self._sock.shutdown(socket.SHUT_WR)

    def leave(self, *, rst: bool = False) -> None:
        """Close: with a FIN (first, even with unread bytes there), or with an RST."""
        if rst:
            reset(self._sock)
            return
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        self._sock.close()


def ask(
    host: str,
    port: int,
    request: bytes,
    enough: Enough = None,
    *,
    timeout_s: float = 20,
    on_read: Callable[[int], object] | None = None,
) -> Answer:
    """Send one request on a connection of its own and read the answer, then close."""
    with RawClient(host, port, timeout_s=timeout_s, on_read=on_read) as client:
        client.send(request)
        return client.read(enough)


def post(path: str, body: bytes, *headers: str, host: str = "peer", version: str = "1.1") -> bytes:
    """A POST of a JSON body, as bytes."""
    head = [f"POST {path} HTTP/{version}", f"Host: {host}", "Content-Type: application/json", *headers]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def get(path: str, *headers: str, method: str = "GET", host: str = "peer", version: str = "1.1") -> bytes:
    """A request without a body, as bytes."""
    return "\r\n".join([f"{method} {path} HTTP/{version}", f"Host: {host}", *headers, "", ""]).encode()


def borders(reads: Iterable[tuple[int, bytes]], *, gap_us: int = 0) -> set[int]:
    """The offsets at which a new read begins, at least `gap_us` after the one before.

    Two writes with a gap of some 5 ms arrive as two reads: `borders(expected, gap_us=5000) <= borders(seen)`. On a
    busy machine a reader may be late and take two in one, so compare again before calling it a fault.
    """
    reads = list(reads)
    offset, found = 0, set()
    for (at, data), (next_at, _) in pairwise(reads):
        offset += len(data)
        if next_at - at >= gap_us:
            found.add(offset)
    return found


def _satisfied(enough: Enough, wire: bytearray) -> bool:
    if enough is None:
        return False
    if isinstance(enough, int):
        return len(wire) >= enough
    return bool(enough(bytes(wire)))
