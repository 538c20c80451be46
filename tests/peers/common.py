"""What both peers share: one clock, so that times taken on either side can be compared, and the ways a side leaves."""

import socket
import struct
import time
from enum import Enum


class Ended(Enum):
    """How the other side of a connection ended it, or why one stopped looking."""

    FIN = "fin"
    RST = "rst"
    TIMEOUT = "timeout"
    """Nothing came for as long as one was willing to wait; the connection is open."""
    OPEN = "open"
    """What one waited for has come; the connection is open."""


def now_us() -> int:
    """µs on a monotonic scale shared by all processes of the machine."""
    return time.monotonic_ns() // 1000


def reset(sock: socket.socket) -> None:
    """Close with an RST: linger on, 0 s."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
