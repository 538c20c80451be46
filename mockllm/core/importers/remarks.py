"""How a connection ended, told by what curl remarks in a trace (`== Info:` lines; curl 7.58 to 8.23).

It must not know the rest of a trace.
"""

import re
from collections.abc import Sequence

from mockllm.core.http1 import Framing, Head, Tracker
from mockllm.core.importers.base import Ending
from mockllm.core.look import says_close
from mockllm.core.response import End, Then

SILENCE_US = 1_000_000
"""A time-out after so long a silence was the server's fault; before that, curl's own patience ended in mid-stream."""

_CLOSED = b""
"""curl read an end of file (newer versions log it as a read of 0 bytes)."""
_RESET = re.compile(rb"(?i)connection (?:was )?(?:reset|aborted)|reset by peer|not closed cleanly")
_TIMED_OUT = re.compile(rb"(?i)operation (?:timed out|too slow)")
_CUT = re.compile(rb"(?i)transfer closed with|end of response with|empty reply|unexpected eof|recv failure")
_LET_GO = re.compile(rb"(?i)clos(?:e|ing) connection|shutting down connection|left intact")

Remarks = Sequence[tuple[int, bytes]]


def ending_of(remarks: Remarks, tracker: Tracker, last_at: int, *, unframed: bool) -> tuple[Ending, str]:
    """How the answer ended that the tracker followed, and a note where that is a guess.

    `last_at` (µs) is when its last byte came; `unframed`: its chunks are not in the trace, so the tracker cannot tell.
    """
    failed = _first(remarks, _RESET, _TIMED_OUT, _CUT)
    if tracker.done and not unframed:
        return _complete(tracker.head, last_at, _first(remarks, _LET_GO))
    if failed is not None:
        at, text = failed
        return _failed(at, text, last_at)
    over = next((at for at, text in remarks if text == _CLOSED), None)
    let_go = _first(remarks, _LET_GO)
    if over is None and let_go is not None:
        over = let_go[0]
    if over is not None and tracker.framing is Framing.CLOSE:
        return Ending(End.COMPLETE, over, Then.FIN, over), ""
    if over is not None and unframed:
        return _complete(tracker.head, max(over, last_at), let_go)
    return Ending(End.CLIENT, last_at), "the trace ends in mid-answer: written as if the client had left there"


def _complete(head: Head | None, at: int, let_go: tuple[int, bytes] | None) -> tuple[Ending, str]:
    if head is None or not says_close(head):
        return Ending(End.COMPLETE, at), ""
    return Ending(End.COMPLETE, at, Then.FIN, at if let_go is None else let_go[0]), ""


def _failed(at: int, text: bytes, last_at: int) -> tuple[Ending, str]:
    if _RESET.search(text):
        return Ending(End.RST, at), ""
    if not _TIMED_OUT.search(text):
        return Ending(End.FIN, at), ""
    if at - last_at < SILENCE_US:
        return Ending(End.CLIENT, at), "curl's own time-out ended it in mid-answer: written as if the client had left"
    return Ending(End.HANG, at), "curl's time-out ended a silence: written as silence until the client leaves"


def _first(remarks: Remarks, *patterns: re.Pattern[bytes]) -> tuple[int, bytes] | None:
    return next(((at, text) for at, text in remarks if any(pattern.search(text) for pattern in patterns)), None)
