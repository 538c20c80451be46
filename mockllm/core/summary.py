"""One exchange in figures: how much came, when, how fast, and what it said.

Text in here is as the server sent it: whoever prints it escapes it. It must not know how it is printed.
"""

from dataclasses import dataclass
from typing import Any

from mockllm.core.dialects import Meaning, meaning
from mockllm.core.exchange import Exchange
from mockllm.core.http1 import Framing
from mockllm.core.look import Look
from mockllm.core.response import End, Then
from mockllm.core.saying import joined, text_of, usage_of


@dataclass(frozen=True, slots=True)
class Summary:
    """Times are µs since the request. `bytes` is body as sent, without framing; `reads` those with a byte of anything.

    `ttft_us` is when the first event came that is no ping, or the first byte of a body that is no stream of events;
    None if neither. `events_per_s` is over the time between the first and the last event, None for less than two.
    `usage` has the counts under the server's own names.
    """

    method: str
    target: bytes
    status: int | None
    version: str | None
    framing: Framing | None
    content_type: bytes | None
    events: int
    bytes: int
    reads: int
    ttft_us: int | None
    events_per_s: float | None
    duration_us: int
    end: End
    then: Then
    text: str
    usage: dict[str, Any]


def summarize(exchange: Exchange) -> Summary:
    """The figures of an exchange."""
    return summary_of(Look(exchange))


def summary_of(look: Look) -> Summary:
    """The figures of an exchange that was looked into already."""
    request, response, head = look.exchange.request, look.response, look.found.head
    values = look.values
    usage: dict[str, Any] = {}
    for value in values:
        usage |= usage_of(value)
    return Summary(
        request.method,
        request.target,
        None if head is None else head.status,
        None if head is None else head.version,
        look.found.framing,
        look.content_type,
        len(look.events),
        sum(len(piece.data) for piece in look.pieces),
        sum(1 for _ in response.reads()),
        _first_us(look),
        _rate(look),
        response.end_at,
        response.end,
        response.then,
        joined(map(text_of, values)),
        usage,
    )


def _first_us(look: Look) -> int | None:
    if look.stream_type is None:
        return look.pieces[0].at if look.pieces else None
    return next((span.at for span in look.events if Meaning.PING not in meaning(span.event)), None)


def _rate(look: Look) -> float | None:
    times = [span.at for span in look.events]
    took = times[-1] - times[0] if times else 0
    return round((len(times) - 1) * 1e6 / took, 1) if took else None
