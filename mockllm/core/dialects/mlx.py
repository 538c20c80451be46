"""mlx_lm.server: OpenAI's chat dialect, with keepalive comments and a fingerprint of its own.

It puts a role into every delta, and its errors are a string.
"""

import re
from collections.abc import Iterable
from typing import Any

from mockllm.core.dialects.base import dig, string

# DONE/TOTAL tokens of the prompt.
_KEEPALIVE = re.compile(rb" ?keepalive \d+/\d+")
# Its own version, that of mlx, the platform.
_FINGERPRINT = re.compile(r"\d+(\.\w+)+-\d+(\.\w+)+-(Linux|macOS)\b")


def signs(comments: Iterable[bytes], value: Any) -> bool:
    """Whether an event with these comments and this JSON value shows that mlx_lm.server sent it."""
    fingerprint = string(dig(value, "system_fingerprint"))
    return any(map(_KEEPALIVE.fullmatch, comments)) or _FINGERPRINT.match(fingerprint) is not None
