"""The client's side of TLS above a raw connection, without a socket: bytes in, bytes out.

It must not know HTTP, nor where the bytes come from.
"""

import functools
import os
import ssl
from collections.abc import Sequence

from mockllm.core.response import End

READ_BYTES = 256 * 1024


class Tls:
    """The client's side of one TLS session, without a socket.

    The loop's own TLS throws away what a paused reader has not taken when the peer resets (with uvloop also when it
    closes), and cannot start from bytes that came with a proxy's answer. `end` is set once the peer ended the session:
    FIN by close_notify, RST by an alert or a broken record.
    """

    def __init__(self, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _tls_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.end: End | None = None

    def handshake(self, received: bytes) -> bool:
        """Whether it is done; what `seal(b"")` returns must be sent either way. Raises ssl.SSLError."""
        self._incoming.write(received)
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def open(self, received: bytes) -> bytes:
        """The plain text that these bytes complete, in one piece."""
        self._incoming.write(received)
        pieces = []
        try:
            while piece := self._session.read(READ_BYTES):
                pieces.append(piece)
            self.end = End.FIN
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.end = End.RST
        return b"".join(pieces)

    def seal(self, data: bytes) -> bytes:
        """What to send for this plain text, after anything the session itself still has to say."""
        view = memoryview(data)
        while view:
            view = view[self._session.write(view) :]
        return self._outgoing.read()


@functools.lru_cache(maxsize=4)
def _tls_context(_cert_file: str | None, _cert_dir: str | None) -> ssl.SSLContext:
    """Made once for a setting of SSL_CERT_FILE and SSL_CERT_DIR, which OpenSSL reads itself: it takes 20 ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION  # so that a write never has to wait for a read
    return context


def open_layers(layers: Sequence[Tls], data: bytes) -> bytes:
    for layer in layers:
        data = layer.open(data)
    return data


def seal_layers(layers: Sequence[Tls], data: bytes) -> bytes:
    for layer in reversed(layers):
        data = layer.seal(data)
    return data
