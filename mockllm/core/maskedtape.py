"""The tape of one exchange without credentials: what a recorder writes, while the answer itself passes untouched.

Every line is final when it is given; a compressed answer to a request with a credential is given at its end. It knows
nothing of files.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mockllm.core.covering import CODINGS, coding_of, cover
from mockllm.core.exchange import Exchange, Request
from mockllm.core.http1 import Framing, Tracker
from mockllm.core.masking import Chunks, Mask, Part
from mockllm.core.redact import KNOWN, Names
from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.secrets import Secrets
from mockllm.core.tape import Tape, dump

MAX_KEPT = 64 * 1024 * 1024
"""No more of a compressed answer than this waits for its end (bytes)."""

_NO_SECRETS = Secrets()


class MaskedTape:
    """Gives the lines of one exchange as they are due. Times are µs and absolute, as in Response; two reads are kept at
    least 1 µs apart.

    `tracker` follows the answer as it came, `body` is what its last read held of the body, `at` the time of that read,
    and in the end that of the end. `anew`: the last lines are the whole exchange and replace those given before. `cut`:
    the answer was compressed and larger than MAX_KEPT, the rest is not on tape. `unseen` says why a compressed body was
    not searched for secrets, if so.
    """

    def __init__(self, method: str, names: Names = KNOWN) -> None:
        self.tracker = Tracker(method)
        self.body = b""
        self.at = 0
        self.anew = self.cut = False
        self.unseen: str | None = None
        self._names = names
        self._tape = Tape(method)
        self._reads = 0
        self._sealed = False
        self._header = b""

    def begin(self, request: Request, meta: Mapping[str, Any], secrets: Secrets = _NO_SECRETS) -> None:
        """What was asked, without its credentials, and the secrets to look for; before all reads.

        The header line comes with the first lines. See `Tape.begin`.
        """
        self._request = request if secrets else replace(request, body=b"")
        self._meta, self._secrets = meta, secrets
        self._header = self._tape.begin(request, meta)
        self._mask = Mask(self._names, secrets)
        self._chunks = Chunks(secrets)
        self._kept: list[Part] | None = [] if secrets else None
        self._room = MAX_KEPT

    def read(self, at: int, data: bytes) -> bytes:
        """The lines that are due after a read from the server."""
        self.at = at = max(at, self.at + 1 if self._reads else 0)
        self._reads += 1
        if self.tracker is self._tape.tracker:
            parts = self._mask.body(at, data)
            if parts == [(at, data)]:
                segments = self.tracker.feed(at, data)
                self.body = b"".join([segment.data for segment in segments])
                return self._due(self._lines(segments))
            self.tracker = self.tracker.fork()
            segments = self.tracker.feed(at, data)
        else:
            segments = self.tracker.feed(at, data)
            parts = self._mask.feed(at, data, self.tracker, segments)
        self.body = b"".join([segment.data for segment in segments])
        if self._kept is not None:
            self._keep(self._kept, at, data)
            if self._sealed:
                return b""
            if self._kept is None:
                self._request = replace(self._request, body=b"")  # nobody needs it any more
        lines = self._masked(parts)
        if not self._mask.holding and self.tracker.stands_like(self._tape.tracker):
            self.tracker = self._tape.tracker  # as long as it is not masked, it is followed only once
        return self._due(lines)

    def end(
        self, end: End, at: int, then: Then, then_at: int, meta: Mapping[str, Any], late: Request | None = None
    ) -> bytes:
        """The last lines. `late` is an early answer's request with its body; see `Tape.end`."""
        self.at = at = max(at, self.at)
        if self._sealed:
            return self._whole(late or self._request, self._response(end, at, then, then_at), meta)
        rest = [self._masked(self._mask.finish()), self._tape.lines(self._chunks.finish())]
        if late is not None:
            rest.append(self._tape.request_body(late))
        return self._due(b"".join([*rest, self._tape.end(end, at, then, then_at, meta)]))

    def _masked(self, parts: list[Part]) -> bytes:
        """The lines of reads in which secrets are masked where they stand in one piece."""
        if not self._secrets:
            return b"".join([self._tape.read(at, part) for at, part in parts])
        return b"".join([self._lines(self._tape.tracker.feed(at, part)) for at, part in parts])

    def _lines(self, segments: list[Segment]) -> bytes:
        tracker = self._tape.tracker
        if self._secrets and tracker.framing is Framing.CHUNKED:
            segments = self._chunks.feed(segments)
            if tracker.done or tracker.bad:  # no more body comes
                segments = segments + self._chunks.finish()
        return self._tape.lines(segments)

    def _due(self, lines: bytes) -> bytes:
        if not lines:
            return lines
        header, self._header = self._header, b""
        return header + lines

    def _keep(self, kept: list[Part], at: int, data: bytes) -> None:
        """Keep a read while the answer may turn out to be compressed, and to its end where it is."""
        self._room -= len(data)
        if self._room >= 0:
            kept.append((at, data))
        elif self._sealed:
            self.cut = True
            return
        head = self.tracker.head
        if self._sealed or (head is None and not self.tracker.bad and self._room >= 0):
            return
        coding = b"" if head is None else coding_of(head)
        self._sealed = coding in CODINGS and self._room >= 0
        if not self._sealed:
            self._kept = None
            if coding:
                self.unseen = f"it is compressed as {coding.decode('ascii', 'backslashreplace')}"

    def _response(self, end: End, at: int, then: Then, then_at: int) -> Response:
        tracker = Tracker(self._request.method)
        segments = [segment for at, data in self._kept or () for segment in tracker.feed(at, data)]
        if self.cut:
            end, then = End.CLIENT, Then.OPEN
        return Response(tuple(segments), end, at, then, max(at, then_at), self._request.method, self._request.target)

    def _whole(self, request: Request, response: Response, meta: Mapping[str, Any]) -> bytes:
        """All lines of a compressed answer."""
        self._kept, self._request = None, replace(request, body=b"")  # a connection may stay idle for long
        covered = cover(response, self._names, self._secrets)
        self.unseen = covered.unseen
        self.anew = not self._header
        decoded = {"decoded": True} if covered.decoded else {}
        by = {"by": "recorder"} if self.cut else {}
        return dump(Exchange(request, covered.response, {**self._meta, **decoded}, {**meta, **by}))
