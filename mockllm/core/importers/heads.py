"""Heads as curl shows them, and what they have to become so that they are true for the bytes that follow.

curl shows a body without its chunks, opens compressed ones, and speaks HTTP/2 where it can; a cassette holds HTTP/1. It
must not know which kind of capture a head comes from.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from mockllm.core.http1 import Framing, Head, framing_of, parse_head

CHUNKED = (b"Transfer-Encoding", b"chunked")
LAST_CHUNK = b"0\r\n\r\n"
MAGIC = {b"gzip": b"\x1f\x8b", b"x-gzip": b"\x1f\x8b", b"zstd": b"\x28\xb5\x2f\xfd"}
"""How a body of that coding begins, where there is one way."""

STATUS_LINE = re.compile(rb"HTTP/([0-9])(?:\.([0-9]))? ([1-9][0-9]{2})(?: ([^\r\n]*))?(?=\r?\n)")
# Complete, and with a header at least: no body holds that by chance.
_WHOLE_HEAD = re.compile(rb"HTTP/(?:1\.[01]|[23]) [1-9][0-9]{2}[^\r\n]*\r\n(?:[!#-9;-~]+:[^\r\n]*\r\n)+\r\n")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]{1,20}[ \t]*(?:;[^\r\n]*)?\r?\n")
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class Shown:
    """A head as the capture has it: `head` is what it says, with HTTP/2 and 3 (`newer`) as 1.1; `raw` its bytes
    likewise.
    """

    head: Head
    raw: bytes
    notes: tuple[str, ...] = ()
    newer: bool = False

    def framing(self, method: str) -> Framing:
        """How the body ends that follows it."""
        return framing_of(self.head, method)[0]

    def length(self, method: str) -> int:
        """The length that it promises, 0 if none."""
        return framing_of(self.head, method)[1]

    def changed(self, note: str, drop: Iterable[bytes], *add: tuple[bytes, bytes]) -> "Shown":
        """Without the headers of some names (lower case), with others at its end, and a note why."""
        gone = set(drop)
        kept = tuple(pair for pair in self.head.headers if pair[0].strip().lower() not in gone)
        head = Head(self.head.version, self.head.status, self.head.reason, kept + add)
        return Shown(head, head.render(), (*self.notes, note), self.newer)


def head_end(data: bytes, start: int = 0) -> int:
    """Where the head that begins at `start` ends, after its blank line; where it has none, the end of the data."""
    found = _BLANK_LINE.search(data, start)
    return found.end() if found else len(data)


def next_head(data: bytes, start: int) -> int:
    """Where the next whole head begins, or the end of the data."""
    found = _WHOLE_HEAD.search(data, start)
    return found.start() if found else len(data)


def shown_head(raw: bytes, *, as_sent: bool = False) -> Shown | None:
    """Read a head; None where it is none or not whole. `as_sent`: no editor had its line ends in hand."""
    status = STATUS_LINE.match(raw)
    if status is None or not _BLANK_LINE.search(raw):
        return None
    notes = []
    if b"\r\n" not in raw and not as_sent:
        raw = raw.replace(b"\n", b"\r\n")
        notes.append("the head's lines end with LF, as an editor leaves them: written with CRLF")
    newer = status[1] in b"23"
    if newer:
        code = int(status[3])
        reason = status[4] or _phrase(code)
        raw = b"HTTP/1.1 %d %b%b" % (code, reason, raw[status.end() :])
        notes.append(f"HTTP/{status[1].decode()} on the wire: written as HTTP/1.1, which is what mockllm plays")
    head = parse_head(raw)
    return None if head is None else Shown(head, raw, tuple(notes), newer)


def true_for(shown: Shown, method: str, body: bytes) -> Shown:
    """The head as it has to be for a body that curl shows: without the coding that curl has opened, and framed."""
    coding = b",".join(shown.head.values(b"content-encoding"))
    if coding not in (b"", b"identity") and body and is_opened(coding, body):
        name = coding.decode("ascii", "backslashreplace")
        note = f"curl has decoded the body: written without Content-Encoding: {name}"
        framed = shown.framing(method) is Framing.LENGTH
        length = [(b"Content-Length", b"%d" % len(body))] if framed else []
        shown = shown.changed(note, [b"content-encoding"] + [b"content-length"] * framed, *length)
    return with_framing(shown, method)


def with_framing(shown: Shown, method: str) -> Shown:
    """The head with chunks, where a body came without a length in HTTP/2, which needs no framing."""
    if shown.newer and shown.framing(method) is Framing.CLOSE:
        return shown.changed("a body without a length in HTTP/2: written in chunks", [], CHUNKED)
    return shown


def is_opened(coding: bytes, body: bytes) -> bool:
    """Is this body no longer in its coding? Told by how such a body begins, else by whether it is text."""
    magic = MAGIC.get(coding)
    return is_text(body) if magic is None else not body.startswith(magic)


def is_text(data: bytes) -> bool:
    """UTF-8 without the control characters that no text has (a character cut at the very end counts as text)."""
    if _NOT_TEXT.search(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def is_framed(body: bytes) -> bool:
    """Does a body under a chunked head still have its chunks (curl --raw, --trace)? No stream begins like a size."""
    return _SIZE_LINE.match(body) is not None


def chunk(data: bytes) -> bytes:
    """Data as a chunk of its own."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _phrase(code: int) -> bytes:
    try:
        return HTTPStatus(code).phrase.encode()
    except ValueError:
        return b""
