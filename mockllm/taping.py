"""One exchange's way to disk: the lines of its tape, without secrets, into a file of its own, as it happens.

A disk that fails never raises here: the tape says so once and stays silent. It knows nothing of sockets.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from mockllm.core.exchange import MAX_BODY, Request
from mockllm.core.matching import path_of
from mockllm.core.redact import redact_headers, redact_target
from mockllm.core.response import End, Then
from mockllm.core.tape import Tape
from mockllm.files import Folder, TapeFile, tape_name


class Taping:
    """Writes one exchange, online. The file is made at the first thing that comes from the server, or at the end.

    `began` and `sent` (None while the body is not fully sent) are µs of one clock, as all times here. `path` is empty
    while there is no file. `failed` is told, once, what went wrong with it.
    """

    def __init__(
        self, folder: Folder, request: Request, upstream: str, began: int, failed: Callable[[str], None]
    ) -> None:
        self.tape = Tape(request.method)
        self.method = request.method
        self.sent: int | None = None
        self.bytes = 0
        self.first: int | None = None
        self.path = ""
        self._folder, self._failed = folder, failed
        self._number = folder.reserve()
        self._request = replace(request, headers=redact_headers(request.headers), target=redact_target(request.target))
        self._meta = {"recorded": _utc_now(), "upstream": upstream}
        self._body = bytearray()
        self._base = began
        self._file: TapeFile | None = None
        self._opened = False

    @property
    def target(self) -> bytes:
        """The request's target without secrets."""
        return self._request.target

    def request_part(self, data: bytes) -> None:
        """A part of the request's body on its way to the server."""
        if len(self._body) <= MAX_BODY:
            self._body += data

    def read(self, at: int, data: bytes) -> None:
        """A read from the server."""
        lines = self._begin()
        self.bytes += len(data)
        lines += self.tape.read(at - self._base, data)
        if self.first is None:
            self.first = self.tape.at
        self._write(lines)

    def end(self, end: End, at: int, then: Then, then_at: int, *, by_recorder: bool = False) -> None:
        """The answer is over, and what the server then did with the connection is known."""
        lines = self._begin()
        if self._request.early:
            body = self._kept_body()
            lines += self.tape.request_body(replace(self._request, body=body, cut=self.sent is None))
        meta = {"by": "recorder"} if by_recorder else {}
        lines += self.tape.end(end, at - self._base, then, then_at - self._base, meta)
        self._write(lines)
        if self._file is not None:
            self._file.close()

    def _begin(self) -> bytes:
        if self._opened:
            return b""
        self._opened = True
        if self.sent is None:
            self._request = replace(self._request, early=True)
        else:
            self._base = self.sent
            self._request = replace(self._request, body=self._kept_body())
        name = tape_name(self._request.method, path_of(self.target))
        self._file = self._folder.create(self._number, name, self._failed)
        self.path = "" if self._file is None else str(self._file.path)
        return self.tape.begin(self._request, self._meta)

    def _kept_body(self) -> bytes | None:
        return None if len(self._body) > MAX_BODY else bytes(self._body)

    def _write(self, lines: bytes) -> None:
        if self._file is not None:
            self._file.write(lines)


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
