"""What every fault is made of: a frozen dataclass of keys, called with a response, giving a response.

A fault is pure and knows no request: when it fires is decided outside. How its keys are written is read off its
fields by `spec`; docs/faults.md is the contract for whoever adds one.
"""

from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Literal, NewType, Protocol

from mockllm.core.response import Response

Micros = NewType("Micros", int)
"""A duration in µs, written with its unit: 250ms."""
Forever = Literal["forever"]


class Unit(Enum):
    """What a position counts."""

    EVENTS = "ev"
    BYTES = "b"
    PERCENT = "pct"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a response: after so many events or body bytes, at a share of the body's bytes, or at a time (µs)."""

    unit: Unit
    value: float


class Meaningless(Exception):
    """The fault has no meaning for this response; its text says why ("the body holds no events")."""


class Fault(Protocol):
    """One way to bend a response. `name` is how it is written, `family` the catalogue's heading it stands under.

    `example` is a spec of it that has an effect on the stream that the catalogue shows. The first line of the class's
    docstring says what it does. Raises Meaningless, or returns the response as it was where it changes nothing.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    example: ClassVar[str]

    def __call__(self, response: Response) -> Response: ...


REQUIRED: Any = MISSING


def key(doc: str, default: Any = REQUIRED, *, unit: str | None = None) -> Any:
    """A field of a fault.

    `doc` says what it is for; `unit` (`ms`, `s`) lets a duration be written as a bare number of it.
    """
    return field(default=default, metadata={"doc": doc, "unit": unit})


def key_name(item: "Field[Any]") -> str:
    """How a field's key is written: `for_` is `for`, `retry_after` is `retry-after`."""
    return item.name.rstrip("_").replace("_", "-")


def keys_of(fault: type[Fault]) -> dict[str, "Field[Any]"]:
    """A fault's own keys by how they are written, in order."""
    return {key_name(item): item for item in fields(fault)}  # type: ignore[arg-type]
