"""Does what the lines of a cassette say agree with what a client makes of their bytes?

The bytes of each line are followed by the tracker that the recorder uses; a line that claims more or less than it takes
is refused. It must not know how lines are spelled.
"""

from typing import NoReturn

from mockllm.core.errors import CassetteError
from mockllm.core.fields import shown
from mockllm.core.http1 import Framing, Head, Tracker
from mockllm.core.response import Segment

_FIX = " (`mockllm check --fix` rewrites the length)"
_AS_WIRE = 'a "wire" line for bytes that are no body'


class Agreement:
    """Takes the segments of one answer in order, each with the number of its line. Every method raises CassetteError.

    What is wrong only in a complete answer is kept until `complete` is called: a broken one may look like that.
    `strict` False lets lengths disagree, for repair.
    """

    def __init__(self, source: str, method: str, *, strict: bool) -> None:
        self.tracker = Tracker(method)
        self._source, self._strict = source, strict
        self._number = 0
        self._doubt: CassetteError | None = None

    def head(self, number: int, head: Head, segment: Segment) -> None:
        """A line that says: this is the head (1xx: an interim one)."""
        self._number = number
        if self.tracker.head is not None:
            self._refuse("a second head", _AS_WIRE)
        self.tracker.feed(segment.at, segment.wire)
        if self.tracker.head != head and (head.status >= 200 or head.status == 101):
            self._refuse("a head after other bytes", 'the head first, or all of it in "wire" lines')

    def wire(self, number: int, segment: Segment) -> None:
        """A line that says nothing about its bytes."""
        self._number = number
        self._taken(segment.wire)

    def data(self, number: int, segment: Segment) -> None:
        """A line that says: this is body, with this framing around it."""
        self._number = number
        to_come, done = self.tracker.left, self.tracker.done
        if self._taken(segment.before):
            self._refuse_unless_chunked()
            self._deny(f"a new chunk where {to_come} bytes of the last one are to come", '"before":"" for its rest')
        length, promised = len(segment.data), self.tracker.left
        fix = _FIX if segment.before and segment.after else ""
        mismatch = f"{length} bytes of data", f"{promised} as the chunk's size line says{fix}"
        if self._taken(segment.data, blame=False) < length:
            self._refuse_long(length, promised, done=done)
            self._deny(*mismatch)
        if self._taken(segment.after):
            self._refuse_unless_chunked()
            self._doubt = self._doubt or CassetteError(self._source, number, *mismatch)

    def complete(self, number: int) -> None:
        """A line that says: the answer is complete."""
        self._number = number
        if self._doubt is not None and self._strict:
            raise self._doubt
        if self.tracker.eof():
            return
        complete = "of an answer that is complete"
        if self.tracker.framing is Framing.LENGTH:
            length = self.tracker.body_length
            expected = f"{length + self.tracker.left} as Content-Length says{_FIX}"
            self._disagree(f"{length} bytes of body at the end {complete}", expected)
        if self.tracker.framing is Framing.CHUNKED:
            self._disagree(f"no last chunk at the end {complete}", '[0,"wire","0\\r\\n\\r\\n"], or another end')
        if self.tracker.framing is None:
            self._disagree(f"no whole head at the end {complete}", "a head, or another end")

    def _refuse_long(self, length: int, promised: int, *, done: bool) -> None:
        framing = self.tracker.framing
        if framing is None:
            self._disagree("data before a head", f'a "head" line first; {_AS_WIRE}')
        if framing is Framing.NONE:
            self._disagree("data in an answer without a body (HEAD, 204, 304)", _AS_WIRE)
        if framing is Framing.LENGTH:
            limit = self.tracker.body_length
            found = f"{limit - promised + length} bytes of body up to here"
            self._disagree(found, f"{limit} as Content-Length says{_FIX}")
        if done:
            self._disagree("data after the last chunk", _AS_WIRE)

    def _refuse_unless_chunked(self) -> None:
        if self.tracker.framing is not Framing.CHUNKED:
            self._disagree("framing around data in a body without chunks", 'no "before" and no "after"')

    def _taken(self, data: bytes, *, blame: bool = True) -> int:
        """How many of these bytes are body. `blame`: it is they that are wrong if they break the chunks."""
        start, was_bad = self.tracker.body_length, self.tracker.bad
        self.tracker.feed(0, data)
        if blame and self.tracker.bad and not was_bad and self.tracker.framing is Framing.CHUNKED:
            found = f"{shown(data.decode(errors='replace'))} between chunks"
            expected = 'CRLF after a chunk, then the next size in hex and CRLF; [0,"wire","0\\r\\n\\r\\n"] at the end'
            self._doubt = self._doubt or CassetteError(self._source, self._number, found, expected)
        return self.tracker.body_length - start

    def _deny(self, found: str, expected: str) -> None:
        """Disagree, unless an earlier line is to blame."""
        if self._doubt is not None and self._strict:
            raise self._doubt
        self._disagree(found, expected)

    def _disagree(self, found: str, expected: str) -> None:
        if self._strict:
            self._refuse(found, expected)

    def _refuse(self, found: str, expected: str) -> NoReturn:
        raise CassetteError(self._source, self._number, found, expected)
