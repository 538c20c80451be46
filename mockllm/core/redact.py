"""What must never reach a disk: credentials, found by the name under which a request carries them.

It works on the copy that is written; live traffic never passes here. Values under other names are never touched,
however much they look like a secret.
"""

import re
from urllib.parse import unquote_to_bytes

from mockllm.core.exchange import Headers

MASK = "[redacted]"

SECRET_HEADERS = frozenset(
    {
        b"authorization",
        b"proxy-authorization",
        b"cookie",
        b"x-api-key",  # Anthropic, and many gateways
        b"api-key",  # Azure OpenAI
        b"x-goog-api-key",  # Gemini
        b"ocp-apim-subscription-key",  # Azure API Management and AI services
        b"x-amz-security-token",  # Bedrock
        b"xi-api-key",  # ElevenLabs
        b"cf-aig-authorization",  # Cloudflare AI Gateway
        b"helicone-auth",
        b"x-litellm-api-key",
        b"x-portkey-api-key",
    }
)
"""Request headers whose value is a credential, in lower case."""

SECRET_QUERY = frozenset({b"key", b"api_key", b"api-key", b"apikey", b"access_token"})
"""Query parameters whose value is a credential: decoded, in lower case."""

SECRET_JSON = frozenset(name.decode() for name in SECRET_HEADERS) | {
    "api_key",
    "apikey",
    "access_token",
    "accesstoken",
    "auth_token",
    "authtoken",
    "authorization_token",  # Anthropic's mcp_servers
    "bearer_token",
    "id_token",
    "refresh_token",
    "refreshtoken",
    "session_token",
    "client_secret",
    "clientsecret",
    "secret_key",
    "secretkey",
    "secret_access_key",
    "aws_secret_access_key",
    "private_key",
    "privatekey",
    "password",
}
"""Fields of JSON objects, and of forms, whose value is a credential: whole names in lower case, so never max_tokens.

Those of the headers are among them: a body may hold an object of headers (OpenAI's tools of type mcp). An object under
such a name is none: it is the schema of a parameter of that name.
"""

_MASKED = MASK.encode()
_USERINFO = re.compile(rb"\A([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_NAME = re.compile(rb"(?:^|[?;])([^=?;]*)=")


def redact_headers(headers: Headers) -> Headers:
    """The same headers with MASK for the whole value of each credential; names, order and the rest as they were."""
    return tuple((name, _MASKED if name.lower() in SECRET_HEADERS else value) for name, value in headers)


def redact_target(target: bytes) -> bytes:
    """The target with MASK for the value of each secret query parameter, and without the userinfo of an absolute URL.

    Every other byte stays (order, encoding, empty pieces). A value runs to the next `&`. A name may also follow a `;`
    or a second `?`, which some servers and sloppy clients use, so that a key does not slip through. A parameter without
    a value stays as it is. Doing it twice changes nothing.
    """
    target = _USERINFO.sub(rb"\1", target)
    path, mark, query = target.partition(b"?")
    if not mark:
        return target
    return path + mark + b"&".join(_redact_piece(piece) for piece in query.split(b"&"))


def decoded(text: bytes) -> bytes:
    """The bytes that a query name or value stands for (WHATWG URL §5.1: `+` is a space, then percent-decoding)."""
    return unquote_to_bytes(text.replace(b"+", b" "))


def _redact_piece(piece: bytes) -> bytes:
    for match in _NAME.finditer(piece):
        if decoded(match.group(1)).lower() in SECRET_QUERY:
            return piece[: match.end()] + (_MASKED if match.end() < len(piece) else b"")
    return piece
