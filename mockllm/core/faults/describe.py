"""The catalogue of faults as text, read off their classes: a table, and a page for each with an example before and
after.

docs/faults.md holds the same text, and a test compares them. It knows how a fault is written, not what it does.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field
from itertools import groupby
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mockllm.core.exchange import Exchange, Request
from mockllm.core.faults.base import Fault, Micros, Position, keys_of
from mockllm.core.faults.bend import bend
from mockllm.core.faults.spec import Catalogue, parse, shown_value
from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.tape import dump

_CHUNK = b'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n'
_USAGE = b'data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"total_tokens":9}}\n\n'
_SAMPLE = (
    (2000, b""),
    (400_000, _CHUNK % (b'{"role":"assistant","content":"Hel"}', b"null")),
    (450_000, _CHUNK % (b'{"content":"lo"}', b"null")),
    (500_000, _CHUNK % (b"{}", b'"stop"')),
    (500_000, _USAGE),
    (500_000, b"data: [DONE]\n\n"),
)


def sample() -> Response:
    """The stream on which the catalogue shows every fault: three chunks, usage and [DONE], in chunked framing."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    segments = [Segment(2000, before=head)]
    segments += [Segment(at, data, b"%x\r\n" % len(data), b"\r\n") for at, data in _SAMPLE if data]
    segments.append(Segment(500_100, before=b"0\r\n\r\n"))
    return Response(tuple(segments), End.COMPLETE, 500_100, Then.OPEN, 500_100, "POST", b"/v1/chat/completions")


def summary(fault: type[Fault]) -> str:
    """What a fault does, in its docstring's first sentence."""
    return inspect.cleandoc(fault.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def written(fault: type[Fault]) -> str:
    """How a fault is written, its required keys first: `cut:at=,end=`."""
    keys = ",".join(f"{key}=" if not _is_flag(hint) else key for key, _, hint in _keys(fault))
    return f"{fault.name}:{keys}" if keys else fault.name


def table(catalogue: Catalogue) -> list[tuple[str, str, str]]:
    """(family, how it is written, what it does) of each fault."""
    return [(fault.family, written(fault), summary(fault)) for fault in catalogue.values()]


def page(fault: type[Fault], catalogue: Catalogue) -> str:
    """All that there is to say of a fault, as plain text: what it does, its keys, an example before and after."""
    lines = [written(fault), "", *inspect.cleandoc(fault.__doc__ or "").splitlines(), ""]
    lines += [f"  {key:12} {told}" for key, told in _key_lines(fault)]
    before, after = example(fault, catalogue)
    return "\n".join([*lines, "", "before:", before, f"after {fault.example}:", after])


def example(fault: type[Fault], catalogue: Catalogue) -> tuple[str, str]:
    """The sample stream without and with the fault's example, as lines of a cassette."""
    response = sample()
    bent = bend(response, [step.fault for step in parse(fault.example, catalogue)]).response
    return _lines(response), _lines(bent)


def markdown(catalogue: Catalogue) -> str:
    """The catalogue of docs/faults.md."""
    parts = []
    for family, faults in groupby(catalogue.values(), key=lambda fault: fault.family):
        parts.append(f"### {family}\n")
        for fault in faults:
            keys = "\n".join(f"- `{key}` {told}" for key, told in _key_lines(fault))
            about = inspect.cleandoc(fault.__doc__ or "")
            parts.append(
                "\n\n".join(filter(None, [f"#### `{written(fault)}`", about, keys, f"Example: `{fault.example}`"]))
                + "\n"
            )
    return "\n".join(parts)


def _keys(fault: type[Fault]) -> Iterator[tuple[str, "Field[Any]", Any]]:
    hints = get_type_hints(fault)
    for key, item in keys_of(fault).items():
        yield key, item, hints[item.name]


def _key_lines(fault: type[Fault]) -> Iterator[tuple[str, str]]:
    for key, item, hint in _keys(fault):
        doc = str(item.metadata["doc"])
        if _is_flag(hint):
            yield key, f"(flag) {doc}"
        elif item.default is MISSING:
            yield f"{key}=", f"{_kind(hint, item)}, required: {doc}"
        elif item.default is None:
            yield f"{key}=", f"{_kind(hint, item)}: {doc}"
        else:
            yield f"{key}=", f"{_kind(hint, item)}, default {shown_value(item.default, hint)}: {doc}"


def _is_flag(hint: Any) -> bool:
    return hint is bool


_KINDS: Mapping[Any, str] = {Position: "position", str: "text", int: "whole number", float: "number"}


def _kind(hint: Any, item: "Field[Any]") -> str:
    choices = (
        [hint]
        if get_origin(hint) is Literal or not get_args(hint)
        else [c for c in get_args(hint) if c is not type(None)]
    )
    unit = item.metadata.get("unit")
    named = {**_KINDS, Micros: f"duration, or a number of {unit}" if unit else "duration"}
    return " or ".join("|".join(get_args(c)) if get_origin(c) is Literal else named[c] for c in choices)


def _lines(response: Response) -> str:
    text = dump(Exchange(Request("POST", b"/v1/chat/completions"), response)).decode()
    return re.sub(r"^.*\n", "", text, count=1)
