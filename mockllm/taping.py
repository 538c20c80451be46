"""One exchange's way to disk: the lines of its tape, without credentials, into a file of its own, as it happens.

A disk that fails never raises here: the tape says so once and stays silent. It knows nothing of sockets.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from mockllm.core.exchange import MAX_BODY, Request
from mockllm.core.maskedtape import MAX_KEPT, MaskedTape
from mockllm.core.matching import path_of
from mockllm.core.redaction import Redaction
from mockllm.core.response import End, Then
from mockllm.files import Folder, Nowhere, TapeFile, tape_name


class Taping:
    """Writes one exchange, online. The file is made when there is something of the answer to write, or at the end.

    `began` and `sent` (None while the body is not fully sent) are µs of one clock, as all times here. `path` is empty
    while there is no file. `failed` is told what went wrong with it. `redaction` says what must not be in it.
    """

    def __init__(
        self,
        folder: Folder | Nowhere,
        request: Request,
        upstream: str,
        began: int,
        failed: Callable[[str], None],
        redaction: Redaction,
    ) -> None:
        self.tape = MaskedTape(request.method, redaction.names)
        self.method = request.method
        self.sent: int | None = None
        self.bytes = 0
        self.first: int | None = None
        self.path = ""
        self._folder, self._failed = folder, failed
        self._number = folder.reserve()
        self._redaction = redaction
        self._asked = request
        self._request, self._secrets = redaction.split(request)
        self._meta = {"recorded": _utc_now(), "upstream": upstream}
        self._body = bytearray()
        self._base = began
        self._file: TapeFile | None = None
        self._opened = self._made = False

    @property
    def target(self) -> bytes:
        """The request's target without credentials."""
        return self._request.target

    def request_part(self, data: bytes) -> None:
        """A part of the request's body on its way to the server."""
        if len(self._body) <= MAX_BODY:
            self._body += data

    def all_sent(self, at: int) -> None:
        """The request is fully sent: while the server is busy with it there is time to look through it."""
        self.sent = at
        if not self._opened:
            self._look_through()

    def read(self, at: int, data: bytes) -> None:
        """A read from the server."""
        self._begin()
        self.bytes += len(data)
        lines = self.tape.read(at - self._base, data)
        if self.first is None:
            self.first = self.tape.at
        self._write(lines)

    def end(self, end: End, at: int, then: Then, then_at: int, *, by_recorder: bool = False) -> None:
        """The answer is over, and what the server then did with the connection is known."""
        self._begin()
        late = None
        if self._request.early:
            self._look_through()
            late = replace(self._request, cut=self.sent is None)
            self._request = replace(late, body=b"")
        meta = {"by": "recorder"} if by_recorder else {}
        lines = self.tape.end(end, at - self._base, then, then_at - self._base, meta, late)
        if self.tape.anew and self._file is not None:
            self._file.clear()
        self._write(lines)
        if self.tape.cut:
            limit = f"{MAX_KEPT >> 20} MiB"
            self._failed(
                f"{self.path} is cut off at {limit}: a larger compressed answer is not searched for credentials"
            )
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        if self._opened:
            return
        self._opened = True
        if self.sent is None:  # the server knows no more of the body than what was sent until now
            _, secrets = self._redaction.split(replace(self._asked, body=bytes(self._body)))
            self._request = replace(self._request, early=True)
        else:
            secrets = self._secrets
            self._base = self.sent
        self.tape.begin(self._request, self._meta, secrets)
        self._request = replace(self._request, body=b"")

    def _look_through(self) -> None:
        """Take the credentials out of the request with its body."""
        body, self._body = self._body, bytearray()
        asked = replace(self._asked, body=None if len(body) > MAX_BODY else bytes(body), early=self._request.early)
        self._request, self._secrets = self._redaction.split(asked)

    def _write(self, lines: bytes) -> None:
        if not lines:
            return
        if not self._made:
            self._made = True
            name = tape_name(self._request.method, path_of(self.target))
            self._file = self._folder.create(self._number, name, self._failed)
            self.path = "" if self._file is None else str(self._file.path)
        if self._file is not None:
            self._file.write(lines)


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
