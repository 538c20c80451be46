"""What each server sends to keep a silent stream open, byte for byte.

Pure text: when a heartbeat is sent is decided elsewhere.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

_FIXED = {
    "llama": b":\n\n",
    "openrouter": b": OPENROUTER PROCESSING\n\n",
    "deepseek": b": keep-alive\n\n",
    "ping": b": ping\n\n",
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
    "blank": b"\n",
}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""When a recording without a usable Date header is taken to have been made."""


def usual(family: str) -> str:
    """The style of a family's own heartbeats; that of FastAPI, which many servers stand on, where it has none."""
    return family if family in ("mlx", "llama", "anthropic", "responses") else "ping"


def heartbeat(style: str, number: int, total: int, sequence: int, start: datetime, at: int) -> bytes:
    """One heartbeat, the blank line at its end included.

    `number` of `total` (mlx counts), `sequence` is the number of the event before it (Responses; those after it are
    recorded and cannot be counted anew), `at` the µs since `start` when it is sent (sse-starlette).
    """
    if style == "mlx":
        return b": keepalive %d/%d\n\n" % (number, total)
    if style == "responses":
        return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % sequence
    if style == "sse-starlette":
        return b": ping - %s\r\n\r\n" % str(start + timedelta(microseconds=at)).encode()
    return _FIXED[style]


def moment(date: bytes | None) -> datetime:
    """The time in a Date header (RFC 9110 §5.6.7), in UTC; EPOCH where there is no such, or none to count on from."""
    try:
        found = parsedate_to_datetime((date or b"").decode("latin-1"))
        found = found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return EPOCH
    return found if EPOCH.year - 100 < found.year < EPOCH.year + 1000 else EPOCH
