"""Faults by their spec, applied to responses, and what a client then gets by the standard.

It knows no single fault.
"""

from mockllm.core.events import Kind, events
from mockllm.core.faults.base import Fault, Meaningless
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.spec import parse
from mockllm.core.response import Response
from tests.core.faults.making import SSE, body
from tests.reference import Dispatched, reference


def fault(spec: str) -> Fault:
    """The one fault of a spec."""
    [step] = parse(spec, CATALOGUE)
    return step.fault


def bent(spec: str, recorded: Response) -> Response:
    """All the faults of a spec, one after another, each with an effect. Raises Meaningless."""
    for step in parse(spec, CATALOGUE):
        changed = step.fault(recorded)
        assert changed != recorded, f"{step.fault} changed nothing"
        recorded = changed
    return recorded


def unchanged(spec: str, recorded: Response) -> bool:
    """Does the fault leave the response as it is?"""
    return fault(spec)(recorded) is recorded


def refusal(spec: str, recorded: Response) -> str:
    """Why the fault has no meaning for a response."""
    try:
        fault(spec)(recorded)
    except Meaningless as reason:
        return str(reason)
    raise AssertionError(f"{spec} has a meaning here")


def dispatched(response: Response) -> list[Dispatched]:
    """The events that a client gets, by the standard."""
    return reference(body(response))


def tail(response: Response) -> tuple[bytes, bytes, tuple[bytes, ...]] | None:
    """What an unfinished end of the stream says so far; None where it ends between events.

    A byte order mark alone is none.
    """
    text = body(response).removeprefix(b"\xef\xbb\xbf")
    found = [span for span in events(text, SSE.encode()) if span.kind is Kind.TAIL]
    return (found[0].name, found[0].data, found[0].comments) if found else None
