"""Runs an ASGI app for a Python program: in a thread with a loop of its own, ready when it says so, closed for sure.

It must not know what the app does.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from mockllm.clock import Clock, HeapClock
from mockllm.core.errors import UsageError
from mockllm.serve import ASGIApp, Server

T = TypeVar("T")


@dataclass(slots=True)
class _Place:
    """Where a server runs. The server refers to this and never to its host, which may so be collected."""

    loop: asyncio.AbstractEventLoop | None = None
    thread: int | None = None

    def take(self, _base_url: str) -> None:
        """Called in the server's loop."""
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()


class Host:
    """One server in a thread: started once, stopped by `close`, when the host is collected, and when Python ends.

    `on_stop` is called in the server's loop before anything is closed.
    """

    def __init__(
        self, app: ASGIApp, on_stop: Callable[[], None] | None = None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._app, self._on_stop, self._host, self._port = app, on_stop, host, port
        self._lock = threading.Lock()
        self._place = _Place()
        self._server: Server | None = None
        self._stop: Callable[[], object] | None = None

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT`. Raises UsageError before the start."""
        if self._server is None:
            raise UsageError("the server is not started: use it in a with statement, or call start()")
        return self._server.base_url

    def start(self) -> None:
        """Returns once connections are accepted. Raises MockllmError where the port is taken, UsageError the second
        time.
        """
        with self._lock:
            if self._server is not None:
                raise UsageError("a server is started once: make another one")
            self._server = Server(self._app, self._host, self._port, on_ready=self._place.take, on_stop=self._on_stop)
            self._stop = weakref.finalize(self, _stop, self._server, self._place)
            self._server.start()

    def close(self) -> None:
        """Stop, and wait for the thread. Later calls do nothing."""
        with self._lock:
            if self._stop is not None:
                self._stop()
                self._place.loop = None

    def call(self, work: Callable[[], T]) -> T:
        """The result of some short work, done in the server's loop, where nothing of the server's is half done."""
        if threading.get_ident() == self._place.thread:
            return work()
        with self._lock:
            loop = self._place.loop
            if loop is None:
                return work()
            done: Future[T] = Future()
            loop.call_soon_threadsafe(_do, work, done)
            return done.result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T] | None":
        """Begin work that waits, in the server's loop, which cancels it when it stops. None where none is running."""
        with self._lock:
            loop = self._place.loop
            return None if loop is None else asyncio.run_coroutine_threadsafe(work(), loop)


class Serving(Generic[T]):
    """A server that is about to run: `with … as server`, `async with … as server`, or `start()` and `close()`.

    `started` gives what is handed out. A server whose handles are all gone is closed.
    """

    def __init__(self, host: Host, started: Callable[[Host], T]) -> None:
        self._host, self._started = host, started

    def start(self) -> T:
        """Start it; takes some milliseconds. Raises MockllmError where the port is taken."""
        self._host.start()
        return self._started(self._host)

    def close(self) -> None:
        """Stop it. Open requests get a second; later calls do nothing."""
        self._host.close()

    def __enter__(self) -> T:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> T:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


class SharedClock:
    """The clock of the loop in which it is first called, for all that ask; closed when that loop ends."""

    def __init__(self) -> None:
        self._clock: HeapClock | None = None
        self._closing: asyncio.Task[None] | None = None

    def __call__(self) -> Clock:
        if self._clock is None:
            self._clock = HeapClock(asyncio.get_running_loop())
            self._closing = asyncio.create_task(_close(self._clock))
        return self._clock


async def _close(clock: HeapClock) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        clock.close()


def result(begun: "Future[T] | None") -> T | None:
    """What begun work gave, waited for; None where the server stopped."""
    try:
        return None if begun is None else begun.result()
    except CancelledError:
        return None


def _do(work: Callable[[], T], done: "Future[T]") -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)


def _stop(server: Server, place: _Place) -> None:
    """Stop a server whose host goes. The collector runs in any thread, which may be the server's own."""
    if threading.get_ident() == place.thread:
        threading.Thread(target=server.stop, daemon=True).start()
    else:
        server.stop()
