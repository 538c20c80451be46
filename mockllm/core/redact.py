"""What must never reach a disk: credentials, found by the name under which a head carries them.

It works on the copy that is written; live traffic never passes here. Values under other names are never touched,
however much they look like a secret.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
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

SET_COOKIE = frozenset({b"set-cookie", b"set-cookie2"})
"""Response headers that give a client a credential, in lower case."""

URL_HEADERS = frozenset({b"referer", b"location", b"content-location"})
"""Headers whose value is a URL, which may carry a credential, in lower case."""

MASKED = MASK.encode()

_USERINFO = re.compile(rb"\A([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_RELATIVE_USERINFO = re.compile(rb"\A(//)[^/?#]*@")
_NAME = re.compile(rb"(?:^|[?;])([^=?;]*)=")
_COOKIE = re.compile(
    rb"""(?ix) ([^=;,\s]+=) [^;]* ( (?: ;\s* (?:
        expires=[ ]*(?:[a-z]{3,9},)?[^;,=]* | (?:path|domain|max-age|samesite|priority)=[^;,]* |
        (?:secure|httponly|partitioned)? ) \s* )*+ )"""
)


@dataclass(frozen=True, slots=True)
class Names:
    """The names under which credentials stand, in lower case: of headers, query parameters (decoded), and fields of
    JSON objects and forms.
    """

    headers: frozenset[bytes] = SECRET_HEADERS
    query: frozenset[bytes] = SECRET_QUERY
    fields: frozenset[str] = SECRET_JSON

    def and_also(self, names: Iterable[str]) -> "Names":
        """With more names, each of a header, of a query parameter and of a field; their case counts for nothing."""
        more = frozenset(name.lower() for name in names)
        coded = frozenset(name.encode() for name in more)
        return Names(self.headers | coded, self.query | coded, self.fields | more)


KNOWN = Names()


def redact_headers(headers: Headers, names: Names = KNOWN) -> Headers:
    """The same headers without credentials (see `redact_value`); names, order and the rest as they were."""
    return tuple((name, redact_value(name.lower(), value, names)) for name, value in headers)


def redact_value(name: bytes, value: bytes, names: Names = KNOWN) -> bytes:
    """The value of a header, its name given in lower case: MASK for a credential, but of a cookie that a server sets
    only its value, and of a URL only what `redact_url` masks.
    """
    if name in names.headers:
        return MASKED
    if name in SET_COOKIE:
        return _redact_cookie(value)
    return redact_url(value, names) if name in URL_HEADERS else value


def redact_target(target: bytes, names: Names = KNOWN) -> bytes:
    """The target with MASK for the value of each secret query parameter, and without the userinfo of an absolute URL.

    Every other byte stays (order, encoding, empty pieces). A value runs to the next `&`. A name may also follow a `;`
    or a second `?`, which some servers and sloppy clients use, so that a key does not slip through. A parameter without
    a value stays as it is. Doing it twice changes nothing.
    """
    target = _USERINFO.sub(rb"\1", target)
    path, mark, query = target.partition(b"?")
    return path + mark + redact_pairs(query, names.query) if mark else target


def redact_url(url: bytes, names: Names = KNOWN) -> bytes:
    """What `redact_target` does, for any reference: also in its fragment, and where it begins with `//`."""
    whole, mark, fragment = _RELATIVE_USERINFO.sub(rb"\1", url).partition(b"#")
    return redact_target(whole, names) + mark + redact_pairs(fragment, names.query)


def redact_pairs(pairs: bytes, secret: frozenset[bytes]) -> bytes:
    """`a=1&b=2` with MASK for the values of secret names."""
    return b"&".join(_redact_piece(piece, secret) for piece in pairs.split(b"&"))


def secret_pairs(pairs: bytes, secret: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """The names (decoded, in lower case) and values (as they stand there) that `redact_pairs` masks."""
    found = ((piece, _secret_value(piece, secret)) for piece in pairs.split(b"&"))
    return [(value[0], piece[value[1] :]) for piece, value in found if value is not None]


def decoded(text: bytes) -> bytes:
    """The bytes that a query name or value stands for (WHATWG URL §5.1: `+` is a space, then percent-decoding)."""
    return unquote_to_bytes(text.replace(b"+", b" "))


def _redact_piece(piece: bytes, secret: frozenset[bytes]) -> bytes:
    found = _secret_value(piece, secret)
    return piece if found is None else piece[: found[1]] + MASKED


def _secret_value(piece: bytes, secret: frozenset[bytes]) -> tuple[bytes, int] | None:
    """A secret name, and where its value begins; None where there is none, or it is empty."""
    for match in _NAME.finditer(piece):
        name = decoded(match.group(1)).lower()
        if name in secret:
            return (name, match.end()) if match.end() < len(piece) else None
    return None


def _redact_cookie(value: bytes) -> bytes:
    """`name=[redacted]; Path=/`; MASK alone where that is not all there is. A cookie that is taken away is empty."""
    match = _COOKIE.fullmatch(value)
    if match is None:
        return MASKED if value else value
    name, attributes = match.groups()
    return value if len(name) + len(attributes) == len(value) else name + MASKED + attributes
