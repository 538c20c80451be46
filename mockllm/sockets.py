"""What the kernel says of a connection, and taking a port: the few socket calls that no library makes for us.

It must not know HTTP.
"""

import asyncio
import errno
import fcntl
import select
import socket
import struct
import sys
import termios
from enum import Enum

from mockllm.core.errors import MockllmError, UsageError

RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: on, 0 s, so that close() sends RST."""
_SO_NWRITE = 0x1024  # macOS sys/socket.h: bytes in the send queue


class Left(Enum):
    """How a client's connection ended."""

    FIN = "fin"
    """The client closed it, or its half."""
    RST = "rst"
    """The client reset it."""
    OURS = "ours"
    """The client did not leave: this side closed, and nothing more can come."""


def undelivered(transport: asyncio.Transport) -> int:
    """Bytes written that the peer's kernel has not acknowledged."""
    sock = transport.get_extra_info("socket")
    if sys.platform == "darwin":
        queued = sock.getsockopt(socket.SOL_SOCKET, _SO_NWRITE)
    else:
        queued = int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return int(transport.get_write_buffer_size() + queued)


def peer_left(transport: asyncio.Transport) -> Left | None:
    """Whether FIN or RST came, without reading what stands before it."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), getattr(select, "POLLRDHUP", 0))
    events = sum(event for _, event in poll.poll(0))
    if events & (select.POLLERR | select.POLLHUP):
        return Left.RST
    return Left.FIN if events else None


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Raises MockllmError with one line that says what to do."""
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port} does not exist; choose one from 0 to 65535 with --port")
    try:
        # proto must be said: asyncio sets TCP_NODELAY only where it is not 0
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError):
        raise MockllmError(f"host name {host!r} is not known here; choose another with --host") from None
    family, kind, proto, _, address = found[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind(address)
        sock.listen(2048)  # now: with SO_REUSEADDR, Linux reports a taken port only here
    except OSError as error:
        sock.close()
        raise MockllmError(_bind_message(host, port, error)) from None
    return sock


def _bind_message(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use; choose another with --port, or --port 0 for a free one"
        case errno.EACCES:
            return f"port {port} on {host} is not permitted; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine; choose another with --host"
        case _:
            return f"port {port} on {host} cannot be used: {error.strerror}"
