"""How oddities are told: counted, and shown where strangers wrote the text.

It knows no oddity.
"""

from collections.abc import Callable, Iterator

from mockllm.core.look import Look

Check = Callable[[Look], Iterator[str]]


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 comment`, `3 comments`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
