"""What browsers ask for before and beside a request to another origin (the Fetch standard, §3.2), for `--cors`.

It knows nothing of recordings.
"""

from mockllm.core.exchange import Request, header
from mockllm.core.faults.head import change_head, named, with_header
from mockllm.core.response import Response

_ALLOW = b"Access-Control-Allow-Origin"
EXPOSED = ((_ALLOW, b"*"), (b"Access-Control-Expose-Headers", b"*"))
"""The headers of an answer that any page may read."""


def is_preflight(request: Request) -> bool:
    """Does a browser ask whether it may send the real request?"""
    asks = header(request.headers, b"access-control-request-method") is not None
    return request.method == "OPTIONS" and asks and header(request.headers, b"origin") is not None


def preflight_headers(request: Request) -> tuple[tuple[bytes, bytes], ...]:
    """A yes to all that a preflight asks."""
    method = header(request.headers, b"access-control-request-method") or b"*"
    asked = header(request.headers, b"access-control-request-headers")
    headers = [(_ALLOW, header(request.headers, b"origin") or b"*"), (b"Access-Control-Allow-Methods", method)]
    if asked is not None:
        headers.append((b"Access-Control-Allow-Headers", asked))
    if header(request.headers, b"access-control-request-private-network") is not None:
        headers.append((b"Access-Control-Allow-Private-Network", b"true"))
    return (*headers, (b"Access-Control-Max-Age", b"600"), (b"Vary", b"Origin"))


def readable(response: Response) -> Response:
    """The response with headers that let any page read it, where it has none that let one. Its head must be whole."""

    def allow(lines: list[bytes]) -> list[bytes]:
        own = [lines[place].partition(b":")[2].strip() for place in named(lines, _ALLOW.lower())]
        if any(own):
            return lines
        for name, value in EXPOSED:
            lines = with_header(lines, name, value)
        return lines

    return change_head(response, allow)
