"""What a base URL can say beside the server's own path: `/~session=t1/~crlf+cut:at=3ev/v1/…`.

For clients that let one set nothing but the base URL. It knows the form of these segments, not what a fault spec means.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from mockllm.core.errors import UsageError
from mockllm.core.forward import origin_form

_BEGIN = re.compile(rb"/(?:~|%7[Ee])")  # the same in a URL (RFC 3986 §2.3), and some clients encode it
_ALLOWED = re.compile(r"[A-Za-z0-9._:,=+-]+")
SESSION_NAME = re.compile(r"[A-Za-z0-9._:-]{1,100}")
"""What a session may be called."""


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A target without its prefixes. `session` and `spec` are None where no prefix says them."""

    target: bytes
    session: str | None = None
    spec: str | None = None


class PrefixError(UsageError):
    """A `/~` segment that cannot be read."""

    kind = "mockllm_bad_prefix"


def strip(target: bytes) -> Prefixed:
    """Take the leading `/~` segments off a target; several specs compose in their order. Raises PrefixError."""
    rest = origin_form(target)
    if not _BEGIN.match(rest):
        return Prefixed(target)
    session: str | None = None
    specs: list[str] = []
    while begin := _BEGIN.match(rest):
        path, question, query = rest[begin.end() :].partition(b"?")
        segment, _, after = path.partition(b"/")
        said = _read(segment)
        if said.startswith("session="):
            session = session_name(said.removeprefix("session="))
        else:
            specs.append(said)
        rest = b"/" + after + question + query
    return Prefixed(rest, session, "+".join(specs) if specs else None)


def session_name(name: str) -> str:
    """The name, where it is one. Raises PrefixError."""
    if not SESSION_NAME.fullmatch(name):
        raise PrefixError(f"session {name[:40]!r}: a name is 1 to 100 of the characters A-Z a-z 0-9 . _ : -")
    return name


def _read(segment: bytes) -> str:
    said = unquote_to_bytes(segment).decode(errors="replace")
    if not _ALLOWED.fullmatch(said):
        raise PrefixError(
            f"/~{said[:40]}: a URL prefix holds only A-Z a-z 0-9 . _ : , = + -; "
            "for other characters use the header mockllm-fault or PUT /_mockllm/faults"
        )
    if re.search(r"[:,]path=", said):
        raise PrefixError(
            f"/~{said[:40]}: path= cannot stand in a URL prefix; use the header mockllm-fault or PUT /_mockllm/faults"
        )
    return said
