"""What a recorder asks the real server: the client's own request head, but for the few headers that concern only one
hop.

Target byte for byte, names in their case and order. It knows nothing of connections.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mockllm.core.exchange import Headers, header

# Expect is answered before the recorder sees the body; an upgrade would leave HTTP/1.1, which is all that a tape holds.
_DROPPED = frozenset((b"expect", b"upgrade", b"http2-settings"))
_DROPPED_PREFIXES = (b"proxy-", b"mockllm-")


@dataclass(frozen=True, slots=True)
class Mount:
    """`/prefix` of a recorder's own paths, and the index of the upstream behind it.

    The empty prefix takes everything.
    """

    prefix: bytes
    upstream: int


def origin_form(target: bytes) -> bytes:
    """The path and query of a target: the absolute form (RFC 9112 §3.2.2) without its scheme and host."""
    scheme, colon, rest = target.partition(b"://")
    if not colon or not scheme.isalnum():
        return target
    slash, query = rest.find(b"/"), rest.find(b"?")
    if slash >= 0 and (query < 0 or slash < query):
        return rest[slash:]
    return b"/" + rest[query:] if query >= 0 else b"/"


def route(target: bytes, mounts: Iterable[Mount]) -> tuple[Mount, bytes] | None:
    """The mount that takes a target (longest prefix first) and the target without the prefix; None if none does."""
    asked = origin_form(target)
    for mount in sorted(mounts, key=lambda mount: -len(mount.prefix)):
        rest = asked[len(mount.prefix) :]
        if asked.startswith(mount.prefix) and (not mount.prefix or rest[:1] in (b"", b"/", b"?")):
            return mount, rest if rest.startswith(b"/") or not mount.prefix else b"/" + rest
    return None


def request_head(
    method: str,
    target: bytes,
    version: str,
    headers: Headers,
    *,
    host: bytes,
    accept_encoding: bytes | None = None,
    proxy_headers: bytes = b"",
) -> bytes:
    """The head to send: Host replaced where the client sent one, one-hop headers removed, the rest as it came.

    `accept_encoding` stands where the client's own stood, or last; `proxy_headers` are whole lines for a proxy.
    """
    lines = [b"%s %s HTTP/%s\r\n" % (method.encode(), target, version.encode())]
    coding = accept_encoding
    for name, value in headers:
        lowered = name.lower()
        if lowered in _DROPPED or lowered.startswith(_DROPPED_PREFIXES):
            continue
        if lowered == b"host":
            value = host
        elif lowered == b"accept-encoding" and accept_encoding is not None:
            if coding is None:
                continue
            value, coding = coding, None
        lines.append(b"%s: %s\r\n" % (name, value))
    if coding is not None:
        lines.append(b"Accept-Encoding: %s\r\n" % coding)
    return b"".join(lines) + proxy_headers + b"\r\n"


def is_chunked(headers: Headers) -> bool:
    """Does the request body come in chunks (RFC 9112 §6.1)?"""
    codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
    return bool(codings) and codings[-1].lower().rstrip().endswith(b"chunked")


def wants_websocket(headers: Headers) -> bool:
    """Does the client ask for a WebSocket (RFC 6455 §4.1)?"""
    return (header(headers, b"upgrade") or b"").strip().lower() == b"websocket"
