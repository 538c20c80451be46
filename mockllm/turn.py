"""One request that a replay is to answer: where it came from, what it asks for, and what the journal says of it.

It must not know what answers it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mockllm.answers import Pairs, answer_error
from mockllm.clock import Clock
from mockllm.core.errors import UsageError
from mockllm.core.exchange import Request
from mockllm.core.faults.spec import Spec
from mockllm.core.redact import redact_target
from mockllm.core.secrets import Secrets
from mockllm.core.shown import escaped
from mockllm.journal import Entry
from mockllm.serve import RawConnection, Receive, Scope, Send
from mockllm.sessions import Session
from mockllm.sockets import Left

MAX_TARGET = 500
"""Characters of a target that are shown."""


@dataclass(frozen=True, slots=True)
class Turn:
    """`began`: when its head was there, `ready`: when all of it was (µs of `clock`). `asked` is without its
    credentials, `body` as it came. `keys`: under which its recordings stand (`matching.keys`).

    `spec`: faults that it asks for itself; `refusal`: why it cannot be answered at all. `log` is told one line.
    `headers` stand in every error of mockllm's own.
    """

    connection: RawConnection
    scope: Scope
    receive: Receive
    send: Send
    clock: Clock
    began: int
    ready: int
    asked: Request
    body: bytes | None
    keys: tuple[bytes, ...]
    session: Session
    spec: Spec | None
    refusal: UsageError | None
    entry: Entry
    log: Callable[[str], None]
    headers: Pairs
    secrets: Secrets

    def hide(self, text: str) -> str:
        """A text without the credentials that the request holds."""
        return self.secrets.replace(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    @property
    def target(self) -> str:
        """Its target without secrets, safe to print, and not endless."""
        target = escaped(redact_target(self.asked.target).decode(errors="backslashreplace"))
        return target if len(target) <= MAX_TARGET else f"{target[:MAX_TARGET]}…"

    def tell(self, what: str) -> None:
        """Log what became of it."""
        self.log(f"{self.asked.method} {self.target} {escaped(self.hide(what))}")

    async def refuse(self, status: int, kind: str, message: str) -> None:
        """Answer with an error of mockllm's own."""
        message = self.hide(message)
        self.entry.status, self.entry.message = status, escaped(message)
        self.tell(f"{status}: {message}")
        await answer_error(self.send, status, kind, message, self.headers)

    def ended(self, *, whole: bool, client_left: bool) -> None:
        """Enter how a server's answer ended: whether it is `whole`, and whether the client left before it was over."""
        entry, left = self.entry, self.connection.left
        how = left.result() if client_left and left.done() else Left.OURS
        if how is Left.OURS:
            entry.stream_status = "complete" if whole and not client_left else "server_cut"
        else:
            entry.stream_status = "client_gone" if how is Left.FIN else "reset_by_client"
            entry.left_after = self.clock.now() - self.began
