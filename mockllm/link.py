"""What stands behind one client connection of a recorder: one upstream connection, and the exchange that is on it.

Whichever side closes first, the other is closed too, in the same way: keep-alive is mirrored, never decided from
headers. It knows nothing of routes and tapes.
"""

import asyncio

from mockllm.core.response import End
from mockllm.relay import Relay, Verdict
from mockllm.serve import RawConnection
from mockllm.sockets import Left
from mockllm.target import Target
from mockllm.upstream import Upstream


class Link:
    """A client connection's upstream. `ended`: how the server closed it, None while it is open.

    The owner lets an exchange `take` it at once; its `upload` sends the request.
    """

    relay: Relay
    upload: asyncio.Task[None]

    def __init__(self, target: Target, upstream: Upstream) -> None:
        self.target, self.upstream = target, upstream
        self.ended: End | None = None
        self._closing: asyncio.Task[None] | None = None
        upstream.on_end = self._on_end

    def take(self, relay: Relay, upload: asyncio.Task[None]) -> None:
        """An exchange begins."""
        self.relay, self.upload = relay, upload
        self.upstream.on_read = relay.on_read

    def leave(self) -> None:
        """The client turned to another upstream, or this one is closed."""
        self.relay.settle_open()
        self.upstream.abort()

    def on_left(self, _left: "asyncio.Future[Left]") -> None:
        """The client's connection is gone. The upstream follows, unless the exchange still has something to see
        there.
        """
        self.upload.cancel()  # nothing more of it can come, and the server may never take what is left
        if self.relay.settled:
            self.upstream.abort()
        else:
            self.relay.on_left()

    async def close(self, connection: RawConnection, verdict: Verdict) -> None:
        """End the response on the client's connection as the server ended it.

        Where the recorder itself gave up, with a reset: nobody takes that for the end of a whole answer.
        """
        if verdict.end in (End.HANG, End.CLIENT) or self.ended is End.RST:
            await connection.reset()
        else:
            connection.finish(keep_open=self.ended is None)

    def _on_end(self, at: int, how: End) -> None:
        self.ended = how
        relay = self.relay
        answered = relay.verdict is not None
        relay.on_end(at, how)
        self.upload.cancel()
        if answered:  # nobody waits for an answer: it was an idle connection that the server closed
            self._closing = asyncio.ensure_future(_close_idle(relay.connection, how))


async def _close_idle(connection: RawConnection, how: End) -> None:
    if how is End.RST:
        await connection.reset()
    else:
        connection.close()
