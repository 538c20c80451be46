"""Bends cassettes for good: reads them, applies faults to each answer, and writes new ones.

It knows files and faults, no sockets and no terminal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mockllm import files
from mockllm.bending import Bending
from mockllm.core.errors import UsageError
from mockllm.core.exchange import Exchange
from mockllm.core.faults.base import Fault
from mockllm.core.faults.bend import bend
from mockllm.core.faults.spec import Spec, When, render
from mockllm.core.redaction import Redaction
from mockllm.core.tape import dump

REDACTION = Redaction()
"""Somebody may have written a cassette by hand, with a key in it."""


def apply(paths: Sequence[Path], specs: Sequence[str], output: Path) -> Iterator[str]:
    """Write the bent cassettes; gives a line for each fault that had no effect on an exchange, and for each file.

    One file becomes the file `output` (into it, where that is a folder), several become files of the same names in the
    folder `output`. Raises UsageError, also where a fault changed no exchange at all: then nothing is written.
    """
    spec = Bending.parse(specs)
    faults = _unconditional(spec)
    written = render(spec)
    found = files.find(paths)
    places = _places(paths, found, output)
    idle = [True] * len(faults)
    bent: list[tuple[Path, bytes]] = []
    for path, place in zip(found, places, strict=True):
        exchanges = []
        for number, exchange in enumerate(files.read_all(path), 1):
            changed, why = _bent(REDACTION.exchange(exchange), faults, written)
            exchanges.append(changed)
            for index, reason in enumerate(why):
                idle[index] &= reason is not None
                if reason is not None:
                    yield f"{path}, exchange {number}: {render((spec[index],))} had no effect: {reason}"
        bent.append((place, b"".join(map(dump, exchanges))))
    for index, without in enumerate(idle):
        if without:
            raise UsageError(f"{render((spec[index],))} changed nothing in any exchange; nothing was written")
    for place, data in bent:
        files.write_new(place, data)
        yield f"{place} written"


def _unconditional(spec: Spec) -> list[Fault]:
    if not spec:
        raise UsageError("the faults are none: nothing to apply")
    for step in spec:
        if replace(step.when, seed=0) != When():
            raise UsageError(f"{render((step,))}: times, skip, p and path have no meaning in a file: leave them out")
    return [step.fault for step in spec]


def _bent(exchange: Exchange, faults: Sequence[Fault], spec: str) -> tuple[Exchange, tuple[str | None, ...]]:
    result = bend(exchange.response, faults)
    if result.response == exchange.response:
        return exchange, result.idle
    # what stood beside lines that are no longer the same lines would stand in a wrong place
    notes = tuple(note for note in exchange.notes if note.index == -1)
    meta = {**exchange.meta, "faults": spec}
    return replace(exchange, response=result.response, meta=meta, extras={}, end_meta={}, notes=notes), result.idle


def _places(paths: Sequence[Path], found: Sequence[Path], output: Path) -> list[Path]:
    """Where each bent file goes. Raises UsageError where one is there already."""
    if len(found) == 1 and not output.is_dir() and not paths[0].is_dir():
        places = [output]
    else:
        roots = [path for path in paths if path.is_dir()]
        places = [output / _below(path, roots) for path in found]
    for place in places:
        if place.exists():
            raise UsageError(f"{place} exists; apply overwrites nothing, give another -o")
    if len(set(places)) < len(places):
        raise UsageError("two of the files have the same name; give them to apply one by one")
    return places


def _below(path: Path, roots: Sequence[Path]) -> Path:
    return next((path.relative_to(root) for root in roots if path.is_relative_to(root)), Path(path.name))
