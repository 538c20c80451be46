"""One connection of the scripted server: performs scripts step by step, and notes all that the client does.

Blocking sockets, no HTTP library; one thread, which is also the only reader. It must not know who asks.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.peers.common import Ended, now_us, reset
from tests.peers.framing import head_end, request_end
from tests.peers.script import Fin, HalfClose, Hang, ReadRest, Rst, Script, Send, Step, Until, Wait

POLL_RDHUP: int = getattr(select, "POLLRDHUP", 0)
"""Tells of a FIN without reading; where the system lacks it, a FIN is seen when read."""
LOOK_S = 0.02
"""How often a waiting script looks whether the server is being stopped (s)."""


@dataclass(slots=True, eq=False)
class Connection:
    """What happened on one connection. Times are absolute µs (`common.now_us`)."""

    opened_at: int
    requests: list[bytes] = field(default_factory=list)
    """Each as far as it was read: whole, but for a server that answers early and never reads the rest."""
    requested_at: list[int] = field(default_factory=list)
    """When each request was whole; on a server that answers early, when its head was. Absolute µs."""
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    """Each send's time and bytes, noted as it begins."""
    accepted: int = 0
    """How many bytes the kernel has taken: stands still while the client does not read."""
    left: Ended | None = None
    """FIN or RST where the client ended its side first, None where the server did."""
    left_at: int = 0
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when the server is done with the connection."""

    @property
    def received(self) -> bytes:
        """Every byte that the client sent."""
        return b"".join(data for _, data in self.reads)


@dataclass(frozen=True, slots=True)
class Rules:
    """What all connections of a server share; `RawServer` says what they mean."""

    answer: Callable[[bytes], Script]
    early: bool
    greeting: Script
    gap_ms: float
    stopping: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)


class _Left(Exception):
    """The client is gone, or the server is being stopped."""


class Worker:
    """Performs scripts on one connection."""

    def __init__(self, rules: Rules, sock: socket.socket) -> None:
        self.connection = Connection(now_us())
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._rules = rules
        self._sock = sock
        self._pending = bytearray()
        self._reading = True

    def stop(self) -> None:
        """End the script and the connection, wherever they are."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)

    def _run(self) -> None:
        try:
            if self._perform(self._rules.greeting):
                while (request := self._request()) is not None and self._perform(self._rules.answer(request)):
                    pass
        except _Left:
            pass
        except BaseException as error:
            self._rules.errors.append(error)
        finally:
            self._sock.close()
            self.connection.closed.set()

    def _request(self) -> bytes | None:
        """The next request, whole (its head and what came with it, on an early server); None when the client left."""
        end = head_end if self._rules.early else request_end
        at = self._read_to(end)
        if at is None:
            return None
        if self._rules.early:
            self._reading = False
            at = len(self._pending)
        self.connection.requests.append(bytes(self._pending[:at]))
        self.connection.requested_at.append(now_us())
        if self._reading:
            del self._pending[:at]
        return self.connection.requests[-1]

    def _read_rest(self) -> None:
        """Read the request that an early server has answered to its end, or as far as the client sends it."""
        if self._reading:
            return
        self._reading = True
        at = self._read_to(request_end) or len(self._pending)
        self.connection.requests[-1] = bytes(self._pending[:at])
        del self._pending[:at]

    def _read_to(self, end: Callable[[bytearray], int | None]) -> int | None:
        while (at := end(self._pending)) is None and self.connection.left is None:
            self._look(LOOK_S)
        return at

    def _perform(self, script: Script) -> bool:
        """Whether the connection is still open after it."""
        previous: Step | None = None
        for step in script:
            if isinstance(step, Send) and isinstance(previous, Send):
                self._pause(self._rules.gap_ms)
            if not self._step(step):
                return False
            previous = step
        self._read_rest()
        return True

    def _step(self, step: Step) -> bool:
        match step:
            case Send(data):
                self._send(data)
            case Wait(ms):
                self._pause(ms)
            case Until(event):
                while not event.wait(LOOK_S / 4) and self.connection.left is not Ended.RST:
                    self._look(0)
            case ReadRest():
                self._read_rest()
            case HalfClose():
                self._sock.shutdown(socket.SHUT_WR)
            case Fin():
                self._drain()
                self._sock.close()
            case Rst():
                reset(self._sock)
            case Hang():
                while self.connection.left is None:
                    self._look(LOOK_S)
        return not isinstance(step, Fin | Rst | Hang)

    def _send(self, data: bytes) -> None:
        self._look(0)
        self.connection.sent.append((now_us(), data))
        rest = memoryview(data)
        try:
            while rest:
                taken = self._sock.send(rest)
                self.connection.accepted += taken
                rest = rest[taken:]
        except OSError:
            self._leave(Ended.RST)
            raise _Left from None

    def _pause(self, ms: float) -> None:
        due = now_us() + round(ms * 1000)
        while (remaining := (due - now_us()) / 1e6) > 0 and self.connection.left is not Ended.RST:
            self._look(min(remaining, LOOK_S))

    def _drain(self) -> None:
        """Read what is there: closing with unread bytes would send an RST. An early server has not read, and does."""
        seen = -1
        while self._reading and self.connection.left is None and seen < len(self.connection.reads):
            seen = len(self.connection.reads)
            self._look(0)

    def _look(self, timeout_s: float) -> None:
        """Take what the client does within that time: one read, or how it left. Raises _Left while being stopped."""
        if self._rules.stopping.is_set():
            raise _Left
        if self.connection.left is not None:
            time.sleep(timeout_s)
            return
        poll = select.poll()
        poll.register(self._sock, select.POLLIN if self._reading else POLL_RDHUP)
        # poll counts whole ms and rounds up
        if not poll.poll(int(timeout_s * 1000)):
            if 0 < timeout_s < 0.001:
                time.sleep(timeout_s)
            return
        if not self._reading:
            broken = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._leave(Ended.RST if broken else Ended.FIN)
            return
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            self._leave(Ended.RST)
            return
        if data:
            self.connection.reads.append((now_us(), data))
            self._pending += data
        else:
            self._leave(Ended.FIN)

    def _leave(self, how: Ended) -> None:
        if self.connection.left is None and not self._rules.stopping.is_set():
            self.connection.left, self.connection.left_at = how, now_us()
