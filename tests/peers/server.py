"""An upstream on a raw socket that sends exactly what its script says and notes all that the client does.

It must not know what stands between it and the client.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from tests.peers.connection import Connection, Rules, Worker
from tests.peers.script import GAP_MS, Answers, Script


class RawServer:
    """Listens on 127.0.0.1 (port 0: a free one) while its `with` block runs; an error of a script is raised at its end.

    `early`: the script starts when the request's head is there, and nothing more is read before `ReadRest`.
    `greeting`: performed on every new connection before anything is read.
    `gap_ms`: between sends that no wait separates, so that they arrive as two reads; 0: none.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        early: bool = False,
        greeting: Script = (),
        gap_ms: float = GAP_MS,
        port: int = 0,
    ) -> None:
        answer = answers if callable(answers) else _in_order(list(answers))
        self._rules = Rules(answer, early, greeting, gap_ms)
        self.connections: list[Connection] = []
        self._changed = threading.Condition()
        self._workers: list[Worker] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.host, self.port = self._listener.getsockname()
        self.url = f"http://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rules.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        for worker in self._workers:
            worker.stop()
        if self._rules.errors and kind is None:
            raise self._rules.errors[0]

    @property
    def requests(self) -> list[bytes]:
        """Every request of every connection, in order of connections."""
        return [request for connection in self.connections for request in connection.requests]

    def connection(self, number: int = 0, *, closed: bool = False, timeout_s: float = 10) -> Connection:
        """The connection of that number, waited for; with `closed` until the server is done with it.

        AssertionError when it takes longer than `timeout_s`.
        """
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.connections) > number, timeout_s), "no such connection"
            found = self.connections[number]
        assert not closed or found.closed.wait(timeout_s), "the connection is still open"
        return found

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            worker = Worker(self._rules, sock)
            self._workers.append(worker)
            with self._changed:
                self.connections.append(worker.connection)
                self._changed.notify_all()
            worker.thread.start()


def _in_order(scripts: list[Script]) -> Callable[[bytes], Script]:
    lock = threading.Lock()

    def answer(request: bytes) -> Script:
        with lock:
            assert scripts, f"more requests than scripts: {request[:80]!r}"
            return scripts.pop(0)

    return answer
