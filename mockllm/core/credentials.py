"""The credentials in a request's head as values, so that they can be looked for where they come back.

It must not know what they are looked for in.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from mockllm.core.exchange import Headers
from mockllm.core.redact import Names, decoded, secret_pairs

_USERINFO = re.compile(rb"\A[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)@")
_SCHEME = re.compile(rb"(?i)(?:bearer|basic|token|key|api-?key)[ \t]+")
_COOKIE = b"cookie"


def credentials(headers: Headers, target: bytes, names: Names) -> Iterator[bytes]:
    """The values of all headers and query parameters of secret names, without their scheme, and the userinfo's.

    Of a Basic credential (RFC 7617) also what it stands for; of cookies each one's value.
    """
    for name, value in headers:
        lowered = name.lower()
        if lowered == _COOKIE:
            yield from (part.partition(b"=")[2].strip(b' \t"') for part in value.split(b";"))
        elif lowered in names.headers:
            yield from _of_header(lowered, value.strip())
    for _, value in secret_pairs(target.partition(b"?")[2], names.query):
        yield from (value, decoded(value))
    userinfo = _USERINFO.match(target)
    if userinfo:
        yield from _of_pair(decoded(userinfo[1]))


def _of_header(name: bytes, value: bytes) -> Iterator[bytes]:
    scheme, space, rest = value.partition(b" ")
    if not _SCHEME.match(value) and not (space and name.endswith((b"authorization", b"-auth"))):
        yield value
        return
    credential = rest.strip()
    yield credential
    if scheme.lower() == b"basic":
        try:
            yield from _of_pair(base64.b64decode(credential))
        except binascii.Error:
            return


def _of_pair(pair: bytes) -> Iterator[bytes]:
    """`user:password`, and the password alone; where there is none, the user is the credential (a key)."""
    user, _, password = pair.partition(b":")
    yield from (pair, password or user)
