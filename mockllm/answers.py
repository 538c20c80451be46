"""Answers of mockllm's own, where no server's are relayed or played: JSON errors, as clients of LLM servers read them.

Ordinary ASGI messages; it knows nothing of raw connections.
"""

import json
from collections.abc import Sequence

from mockllm.serve import Send

Pairs = Sequence[tuple[bytes, bytes]]


async def answer_json(send: Send, status: int, document: object, headers: Pairs = ()) -> None:
    """A JSON document with a status and further headers."""
    body = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    own = ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def answer_error(send: Send, status: int, kind: str, message: str, headers: Pairs = (), **more: object) -> None:
    """`{"error": {"message", "type", …}}`. SDKs show the message; `mockllm-error` tells it from a server's own
    error.
    """
    marked = (b"mockllm-error", kind.removeprefix("mockllm_").replace("_", "-").encode())
    document = {"error": {"message": message, "type": kind, **more}}
    await answer_json(send, status, document, ((b"x-should-retry", b"false"), marked, *headers))


async def answer_empty(send: Send, status: int, headers: Pairs) -> None:
    """A status without a body."""
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})
