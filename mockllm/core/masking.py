"""Masks credentials in an answer on its way to disk, read by read: what may become one is held until that is decided.

Nothing else is held, and no read loses its time or its border. It must not know how an answer is written.
"""

from collections import deque
from dataclasses import replace

from mockllm.core.http1 import Tracker
from mockllm.core.redact import MASKED, SET_COOKIE, URL_HEADERS, Names, redact_value
from mockllm.core.response import Segment
from mockllm.core.secrets import Secrets, Span, covered

Part = tuple[int, bytes]
"""Bytes of a read, and when that came (µs)."""

MAX_FRAMING = 1024 * 1024
"""No more framing than this waits for the body between it to be decided (bytes)."""


class Search:
    """Masks secrets in one stream of bytes, each by as many bytes as it has."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = b""
        self._spans: list[Span] = []  # what of the held bytes is masked already: a secret that ended there

    @property
    def holding(self) -> bool:
        """Is there something that is not decided?"""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """What is decided now, after all that was given out before."""
        if not self._held and self._secrets.clear(data):
            return data
        text = self._held + data
        spans, keep = self._secrets.scan(text)
        out = covered(text, spans + self._spans)[:keep]
        ended = self._spans + [span for span in spans if span[0] < keep]
        self._spans = [(0, stop - keep, fill) for _, stop, fill in ended if stop > keep]
        self._held = text[keep:]
        return out

    def finish(self) -> bytes:
        """What was held: nothing follows, or what follows is another stream."""
        out = covered(self._held, self._secrets.spans(self._held) + self._spans)
        self._held, self._spans = b"", []
        return out


class Due:
    """The reads whose bytes have not all been given out, in order."""

    def __init__(self) -> None:
        self._lengths: deque[tuple[int, int]] = deque()

    def add(self, at: int, length: int) -> None:
        """A read came."""
        self._lengths.append((at, length))

    def grow(self, by: int) -> None:
        """What is to be given out became longer, or (negative) shorter, at its end."""
        while by and self._lengths:
            at, length = self._lengths.pop()
            if length + by >= 0:
                self._lengths.append((at, length + by))
                return
            by += length

    def take(self, data: bytes) -> list[Part]:
        """The next bytes, each under the read that it is of."""
        parts: list[Part] = []
        start = 0
        while start < len(data):
            at, length = self._lengths.popleft()
            part = data[start : start + length]
            start += length
            if part:
                parts.append((at, part))
            if len(part) < length:
                self._lengths.appendleft((at, length - len(part)))
        return parts


class Reads:
    """Masks secrets in the reads of an answer, framing and all."""

    def __init__(self, secrets: Secrets) -> None:
        self._search = Search(secrets)
        self._due = Due()

    @property
    def holding(self) -> bool:
        """Is there something that is not decided?"""
        return self._search.holding

    def feed(self, at: int, data: bytes) -> list[Part]:
        """What is decided now, after the rest of earlier reads. A read may be given in parts."""
        if not data:
            return []
        held, out = self._search.holding, self._search.feed(data)
        if not held and len(out) == len(data):
            return [(at, out)]
        self._due.add(at, len(data))
        return self._due.take(out)

    def finish(self) -> list[Part]:
        """What was held: nothing follows."""
        return self._due.take(self._search.finish())


class Chunks:
    """Masks secrets that stand in several chunks of a body; those within one are masked before, in the reads."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._search = Search(secrets)
        self._due: deque[Segment] = deque()
        self._framing = 0

    def feed(self, segments: list[Segment]) -> list[Segment]:
        """The segments that are decided now; of one whose data is not, the part that is."""
        pieces = [segment.data for segment in segments if segment.data]
        if not self._due and (not pieces or (len(pieces) == 1 and not self._secrets.open_ended(pieces[0]))):
            return segments
        self._due.extend(segments)
        data = b"".join(pieces)
        parts = self._given(self._search.feed(data) if data else b"")
        self._framing = self._framing + sum(len(segment.wire) for segment in segments) if self._due else 0
        return parts + self.finish() if self._framing > MAX_FRAMING else parts

    def finish(self) -> list[Segment]:
        """The segments that were held: none follows."""
        return self._given(self._search.finish())

    def _given(self, data: bytes) -> list[Segment]:
        parts: list[Segment] = []
        start = 0
        while self._due:
            segment = self._due[0]
            part = data[start : start + len(segment.data)]
            start += len(part)
            if len(part) < len(segment.data):
                if part:
                    parts.append(replace(segment, data=part, after=b""))
                    self._due[0] = replace(segment, data=segment.data[len(part) :], before=b"")
                break
            parts.append(segment if part == segment.data else replace(segment, data=part))
            self._due.popleft()
        return parts


class Heads:
    """Masks the credentials that an answer's head holds by name, interim heads included."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._secret = names.headers | SET_COOKIE | URL_HEADERS
        self._due = Due()
        self._held = bytearray()  # an unfinished line that is, or may become, one of a secret name
        self._passing = False  # in the midst of a line that is none
        self._folding = False  # the last line was one: what is folded onto it is, too

    def feed(self, at: int, data: bytes) -> list[Part]:
        """What is decided of the bytes so far."""
        self._due.add(at, len(data))
        decided = b":" in self._held or bytes(self._held[:1]) in (b" ", b"\t")
        if decided and b"\n" not in data:
            self._held += data
            return []
        *lines, rest = (bytes(self._held) + data).split(b"\n")
        self._held.clear()
        out = [self._whole(line) + b"\n" for line in lines]
        if self._passing or (rest and not self._may_hide(rest)):
            self._passing = True
            out.append(rest)
        else:
            self._held += rest
        given = b"".join(out)
        self._due.grow(len(given) + len(self._held) - sum(map(len, lines)) - len(lines) - len(rest))
        return self._due.take(given)

    def finish(self) -> list[Part]:
        """What was held: the head is over, or broken off."""
        line, self._held = bytes(self._held), bytearray()
        given = self._whole(line)
        self._due.grow(len(given) - len(line))
        return self._due.take(given)

    def _whole(self, line: bytes) -> bytes:
        if self._passing:
            self._passing = self._folding = False
            return line
        folded = line[:1] in (b" ", b"\t")
        name, colon, value = (b"", b"", line) if folded else line.partition(b":")
        lowered = name.strip().lower()
        self._folding = self._folding if folded else bool(colon) and lowered in self._secret
        bare = value.strip()
        if not (self._folding and bare):
            return line
        start = len(name + colon) + len(value) - len(value.lstrip())
        masked = MASKED if folded else redact_value(lowered, bare, self._names)
        return line[:start] + masked + line[start + len(bare) :]

    def _may_hide(self, line: bytes) -> bool:
        """May an unfinished line hold a credential by name?"""
        if line[:1] in (b" ", b"\t"):
            return self._folding
        name, colon, _ = line.partition(b":")
        lowered = name.strip().lower()
        if colon or not lowered:
            return lowered in self._secret
        return any(secret.startswith(lowered) for secret in self._secret)


class Mask:
    """Masks an answer's reads: its head by name, and secrets that stand in one piece wherever they do."""

    def __init__(self, names: Names, secrets: Secrets) -> None:
        self._heads: Heads | None = Heads(names)
        self._reads = Reads(secrets) if secrets else None

    @property
    def holding(self) -> bool:
        """Is the head not over, or something else not decided?"""
        return self._heads is not None or (self._reads is not None and self._reads.holding)

    def feed(self, at: int, data: bytes, tracker: Tracker, segments: list[Segment]) -> list[Part]:
        """What is decided now of a read and earlier ones; `segments` is what the answer's tracker made of the read."""
        if self._heads is None:
            return self.body(at, data)
        last, length = tracker.head_segment, len(data)
        if last is not None:
            length = sum(len(segment.wire) for segment in segments[: segments.index(last) + 1])
        parts = self._heads.feed(at, data[:length])
        if last is not None or tracker.bad:
            parts += [*self._heads.finish(), (at, data[length:])]
            self._heads = None
        return self._searched(parts)

    def body(self, at: int, data: bytes) -> list[Part]:
        """What is decided now of a read after the head."""
        return [(at, data)] if self._reads is None else self._reads.feed(at, data)

    def finish(self) -> list[Part]:
        """What was held: nothing follows."""
        parts = self._searched(self._heads.finish() if self._heads else [])
        return parts + (self._reads.finish() if self._reads else [])

    def _searched(self, parts: list[Part]) -> list[Part]:
        return [found for at, data in parts if data for found in self.body(at, data)]
