"""Passes bytes on to another port, both ways: what stands in front of a scripted server, a TLS end or a proxy.

It must not know what the bytes are, but for the CONNECT that a proxy is asked first.
"""

import contextlib
import socket
import ssl
import threading
from typing import Self

from tests.peers.framing import head_end


class Forwarder:
    """Listens on a free port of 127.0.0.1 while its `with` block runs, and forwards to `port` there.

    `tls`: clients speak TLS to it. `proxy`: clients send a CONNECT first, found in `connects`; it is answered with 200,
    or with `refusal`. A side that ends ends the other.
    """

    def __init__(
        self, port: int, *, tls: ssl.SSLContext | None = None, proxy: bool = False, refusal: bytes | None = None
    ) -> None:
        self.connects: list[bytes] = []
        self._to, self._tls, self._proxy, self._refusal = port, tls, proxy, refusal
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._proxy and not self._connect(sock):
                return
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            there = socket.create_connection((self.host, self._to))
            self._sockets.append(there)
            back = threading.Thread(target=_pump, args=(there, sock), daemon=True)
            back.start()
            _pump(sock, there)

    def _connect(self, sock: socket.socket) -> bool:
        asked = b""
        while head_end(asked) is None:
            asked += sock.recv(4096)
        self.connects.append(asked)
        sock.sendall(self._refusal or b"HTTP/1.1 200 Connection established\r\n\r\n")
        if self._refusal is not None:
            sock.close()
        return self._refusal is None


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for sock in (sink, source):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
