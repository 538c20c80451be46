"""llama-server's own routes (/completion, /infill): `content` and `stop` in every event, true in the last, no `[DONE]`.

On its /v1 routes it speaks the other dialects, with a fingerprint, timings and a ping of its own.
"""

import re
from collections.abc import Collection
from typing import Any

from mockllm.core.dialects.base import Meaning, Reading, dig, string, when

_FINGERPRINT = re.compile(r"b\d+-[0-9a-f]{6,40}")
# What its ping says after the colon.
_PING = b""


def read(value: dict[str, Any]) -> Reading | None:
    """The reading of an event of its own routes, or None where it is none."""
    stop, content = value.get("stop"), value.get("content")
    if not isinstance(stop, bool) or not isinstance(content, str):
        return None
    usage = stop and "tokens_evaluated" in value
    return Reading(when(stop, Meaning.FINISH | Meaning.DONE) | when(usage, Meaning.USAGE), content)


def signs(comments: Collection[bytes], value: Any) -> bool:
    """Whether an event with these comments and this JSON value shows that llama-server sent it."""
    fingerprint = string(dig(value, "system_fingerprint"))
    return (
        _PING in comments or isinstance(dig(value, "timings"), dict) or _FINGERPRINT.fullmatch(fingerprint) is not None
    )
