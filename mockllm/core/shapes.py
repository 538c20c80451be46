"""What JSON values look like: which keys they have, and of which types, whatever they say.

It must not know where the values come from.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mockllm.core.shown import escaped

Path = tuple[str | None, ...]
"""Keys from the outermost in; None stands for the items of a list."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What several values of one kind look like: the types at each path, and the paths that every value has."""

    types: Mapping[Path, frozenset[str]]
    always: frozenset[Path]


def shape_of(values: Iterable[Any]) -> Shape:
    """The shape of values of one kind; None is taken for what is no JSON."""
    types: dict[Path, set[str]] = {}
    always: set[Path] | None = None
    for value in values:
        found: set[Path] = set()
        for path, name in _types(value):
            types.setdefault(path, set()).add(name)
            found.add(path)
        always = found if always is None else always & found
    return Shape({path: frozenset(names) for path, names in types.items()}, frozenset(always or ()))


def changes(before: Mapping[str, Shape], after: Mapping[str, Shape]) -> Iterator[str]:
    """How kinds of values that are on both sides changed, a line each; equal changes of several kinds in one line.

    Keys that are new, keys that every value had and none has, types that no value had. Of an object that came or went
    its keys are not told, and that a list has items or none is no change. Safe to print.
    """
    kinds_of: dict[str, list[str]] = {}
    for kind, shape in after.items():
        if kind in before:
            for change in _changes(before[kind], shape):
                kinds_of.setdefault(change, []).append(kind)
    for change, kinds in kinds_of.items():
        yield f"JSON: {change} in {', '.join(kinds)}"


def _changes(before: Shape, after: Shape) -> Iterator[str]:
    for path, types in after.types.items():
        old = before.types.get(path)
        if old is None:
            if _is_key(path, before):
                yield f"{_shown(path)} ({_named(types)}) is new"
        elif not types <= old:
            yield f"{_shown(path)} was {_named(old)}, is {_named(types)}"
    for path, types in before.types.items():
        if path in before.always and path not in after.types and _is_key(path, after):
            yield f"{_shown(path)} ({_named(types)}) is gone"


def _is_key(path: Path, shape: Shape) -> bool:
    """Is it the key of an object that is there in a shape too?"""
    return bool(path) and path[-1] is not None and "object" in shape.types.get(path[:-1], ())


def _shown(path: Path) -> str:
    """`choices[].delta.content`."""
    parts = ("[]" if part is None else f".{part}" for part in path)
    return escaped("".join(parts).removeprefix(".")) or "the value"


def _named(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))


def _types(value: Any) -> Iterator[tuple[Path, str]]:
    """Every path in a value with a type that stands there."""
    todo: list[tuple[Path, Any]] = [((), value)]
    while todo:  # as deep as JSON that could be read
        path, item = todo.pop()
        yield path, _type(item) if path or item is not None else "no JSON"
        if isinstance(item, dict):
            todo += [((*path, key), inner) for key, inner in reversed(item.items())]
        elif isinstance(item, list):
            todo += [((*path, None), inner) for inner in reversed(item)]


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}
    return names.get(type(value), "null")
