"""What a server says differently from how it was recorded: its head, the shapes of its events, its JSON, its ending.

Only the form is compared. What was said, and when, is another each time.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from mockllm.core.dialects import Meaning, meaning
from mockllm.core.events import Event, Kind
from mockllm.core.exchange import Exchange
from mockllm.core.http1 import Framing, Head
from mockllm.core.look import Look
from mockllm.core.response import End, Response
from mockllm.core.saying import delta_names, error_of
from mockllm.core.shapes import Shape, changes, shape_of
from mockllm.core.shown import escaped, shown_bytes

_OWN = frozenset(
    b"date age expires last-modified etag content-length set-cookie server-timing report-to traceparent"
    b" request-id x-request-id x-amzn-requestid x-response-time x-process-time x-runtime openai-processing-ms"
    b" x-envoy-upstream-service-time".split()
)
_OWN_STARTS = (b"x-ratelimit-", b"anthropic-ratelimit-", b"ratelimit-", b"cf-", b"x-amz-cf-")
"""Headers whose values belong to one answer only; what length there is shows in the framing."""
_FRAMINGS = {
    None: "unknown",
    Framing.NONE: "no body",
    Framing.LENGTH: "a length",
    Framing.CHUNKED: "chunks",
    Framing.CLOSE: "until the close",
}
_SHOWN = 12
"""So many kinds of events are shown of a sequence."""


def drift(old: Exchange, new: Exchange) -> list[str]:
    """What differs between two answers to the same request, a line each; nothing where only words and times do.

    Safe to print. Where the recorded client left early, only what it got is compared; where the status is another,
    nothing else is.
    """
    before, after = Look(old), Look(new)
    one, other = before.found.head, after.found.head
    if one is None or other is None:
        ending = list(_ending(old.response, new.response))
        return [f"head: was {_headed(one)}, is {_headed(other)}", *ending] if one is not other else ending
    if one.status != other.status:
        return [f"status: was {one.status}, is {other.status}{_why(after)}"]
    lines = [*_version(one, other), *_headers(one, other), *_framing(before, after)]
    lines += _body(before, after, open_end=old.response.end is End.CLIENT)
    return [*lines, *_ending(old.response, new.response)]


def _headed(head: Head | None) -> str:
    return "none" if head is None else str(head.status)


def _why(look: Look) -> str:
    """What the server says went wrong."""
    words = next((words for words in map(error_of, look.values) if words), None)
    return "" if words is None else escaped(f" ({words})")


def _version(one: Head, other: Head) -> Iterator[str]:
    if one.version != other.version:
        yield f"version: was HTTP/{one.version}, is HTTP/{other.version}"


def _headers(one: Head, other: Head) -> Iterator[str]:
    """Names that came, went or are spelled otherwise, and values that are others."""
    before, after = _values(one), _values(other)
    for name, (spelling, values) in before.items():
        if name not in after:
            yield f"head: {escaped(spelling)} is gone, it was {_shown(values)}"
            continue
        now, is_now = after[name]
        if spelling != now:
            yield f"head: {escaped(spelling)} is spelled {escaped(now)}"
        if values != is_now:
            yield f"head: {escaped(spelling)} was {_shown(values)}, is {_shown(is_now)}"
    for name, (spelling, values) in after.items():
        if name not in before:
            yield f"head: {escaped(spelling)} is new: {_shown(values)}"


def _values(head: Head) -> dict[bytes, tuple[str, list[bytes]]]:
    """The headers that do not belong to one answer only: lower-cased name, its first spelling, all its values."""
    found: dict[bytes, tuple[str, list[bytes]]] = {}
    for name, value in head.headers:
        lowered = name.lower()
        if lowered not in _OWN and not lowered.startswith(_OWN_STARTS):
            found.setdefault(lowered, (name.decode(errors="backslashreplace"), []))[1].append(value)
    return found


def _shown(values: list[bytes]) -> str:
    return ", ".join(map(shown_bytes, values))


def _framing(before: Look, after: Look) -> Iterator[str]:
    one, other = before.found.framing, after.found.framing
    if one is not other:
        yield f"framing: was {_FRAMINGS[one]}, is {_FRAMINGS[other]}"


def _body(before: Look, after: Look, *, open_end: bool) -> Iterator[str]:
    streams = before.stream_type is not None, after.stream_type is not None
    if streams == (False, False):
        yield from _values_of_whole_bodies(before, after, open_end=open_end)
    elif streams == (True, True):
        yield from _streams(before, after, open_end=open_end)
    elif before.body or not open_end:
        kinds = ["a stream of events" if stream else "no stream of events" for stream in streams]
        yield f"body: was {kinds[0]}, is {kinds[1]}"


def _values_of_whole_bodies(before: Look, after: Look, *, open_end: bool) -> Iterator[str]:
    if open_end or before.found.framing is Framing.NONE:
        return
    if bool(before.body) != bool(after.body):
        yield f"body: was {len(before.body)} B, is {len(after.body)} B"
    yield from changes({"the body": shape_of(before.values)}, {"the body": shape_of(after.values)})


def _streams(before: Look, after: Look, *, open_end: bool) -> Iterator[str]:
    pings = _pings(before)
    for ping in _pings(after):
        if ping not in pings:
            yield f"events: {ping} comes now, which did not"
    one, other = _sequence(before), _sequence(after)
    if open_end:
        other = other[: len(one)]
    if one != other:
        yield f"events: was {_listed(one, before)}; is {_listed(other, after)}"
    yield from changes(_shapes(before), _shapes(after))


def _pings(look: Look) -> list[str]:
    """Each kind of what keeps the connection alive, once: how often one comes depends on how busy the server is."""
    found = []
    for span in look.spans:
        event = span.event
        found += [f"the comment {shown_bytes(b':' + _numberless(comment))}" for comment in event.comments]
        if event.kind is Kind.EVENT and _is_ping(event):
            found.append(f"a {_kind(event)} event")
    return list(dict.fromkeys(found))


def _numberless(text: bytes) -> bytes:
    """`keepalive 19/33` as `keepalive N/N`."""
    return b"".join(b"N" if digits else bytes(run) for digits, run in groupby(text, lambda byte: 48 <= byte < 58))


def _is_ping(event: Event) -> bool:
    return Meaning.PING in meaning(event)


def _kind(event: Event) -> str:
    """What kind of event it is: its name, else what its JSON carries."""
    if event.name:
        return escaped(event.name.decode(errors="backslashreplace"))
    if event.data == b"[DONE]":
        return "[DONE]"
    value, found = event.json(), meaning(event)
    words = [flag.name.lower() for flag in found if flag.name and flag not in (Meaning.OTHER, Meaning.DONE)]
    words += [escaped(name) for name in delta_names(value)]
    words += ["done"] if Meaning.DONE in found else []
    return "+".join(words) or "other"


def _sequence(look: Look) -> list[str]:
    """The kinds of the events in order, several of one kind as one; what only keeps the connection alive left out."""
    kinds = [_kind(span.event) for span in look.events if not _is_ping(span.event)]
    return [kind for kind, _ in groupby(kinds)]


def _listed(sequence: Iterable[str], look: Look) -> str:
    kinds = list(sequence)
    cut = ["…"] if len(kinds) > _SHOWN else []
    return ", ".join([*kinds[:_SHOWN], *cut]) or ("nothing" if look.body else "an empty body")


def _shapes(look: Look) -> dict[str, Shape]:
    """For each kind of event what its JSON looks like."""
    values: dict[str, list[object]] = {}
    for span in look.events:
        if span.event.data != b"[DONE]":
            values.setdefault(_kind(span.event), []).append(span.event.json())
    return {kind: shape_of(found) for kind, found in values.items()}


def _ending(old: Response, new: Response) -> Iterator[str]:
    if old.end is End.CLIENT:
        return
    if old.end is not new.end:
        yield f"ending: was {old.end.value}, is {new.end.value}"
    elif old.end is End.COMPLETE and old.then is not new.then:
        yield f"connection: was {_then(old)} after the answer, is {_then(new)}"


def _then(response: Response) -> str:
    return {"open": "left open", "fin": "closed", "rst": "reset"}[response.then.value]
