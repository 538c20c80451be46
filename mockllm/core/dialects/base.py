"""The words in which every dialect says what an event means.

It knows no dialect.
"""

from dataclasses import dataclass
from enum import Flag, auto
from typing import Any


class Meaning(Flag):
    """What an event carries, often several things: `meaning == Meaning.ROLE` asks for a role and nothing else."""

    ROLE = auto()
    """It names the speaker (some servers do so in every event)."""
    TEXT = auto()
    """A piece of the answer's text that is not empty."""
    FINISH = auto()
    """The reason why the answer stops."""
    USAGE = auto()
    """Token counts (Anthropic's first event has them too, and some servers send them with every event)."""
    DONE = auto()
    """The protocol's own end: nothing follows it."""
    ERROR = auto()
    """The server says that it failed."""
    PING = auto()
    """Only there to keep the connection alive, comments included."""
    OTHER = auto()
    """Something else, alone or beside the rest: a tool call, reasoning, a refusal, progress, anything unknown."""


NOTHING = Meaning(0)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one dialect found in an event of its own. TEXT is not in `meaning`: `text` says it."""

    meaning: Meaning
    text: str = ""


def dig(value: Any, *path: str) -> Any:
    """The value at that path of keys, or None where there is no such path."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def string(value: Any) -> str:
    """The value where it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def when(condition: Any, meaning: Meaning) -> Meaning:
    """That meaning where the condition holds, else none."""
    return meaning if condition else NOTHING
