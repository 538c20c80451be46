"""What of two requests is compared, as one value that says it all.

It must not know how anything is compared.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from mockllm.core.errors import UsageError
from mockllm.core.pointer import Pointer
from mockllm.core.redact import KNOWN, Names
from mockllm.core.shown import shown


class Matcher(Enum):
    """What of a request can be compared, beside headers."""

    METHOD = "method"
    PATH = "path"
    QUERY = "query"
    BODY = "body"


HEADER = "header:NAME"

_NAMES = [matcher.value for matcher in Matcher]
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2


@dataclass(frozen=True, slots=True)
class Rules:
    """What is compared; the defaults are those of the command line.

    `headers`: the names of headers whose values are compared too. `ignore`: places of a JSON body that count for
    nothing. `ignore_query`: names of query parameters (decoded) that do not. `secrets`: the names under which
    credentials stand, of which none ever counts, even where `headers` asks for it. The case of a header's name is free.
    """

    matchers: frozenset[Matcher] = frozenset(Matcher)
    headers: tuple[bytes, ...] = ()
    ignore: tuple[Pointer, ...] = ()
    ignore_query: frozenset[bytes] = frozenset()
    secrets: Names = KNOWN

    @property
    def counted_headers(self) -> list[bytes]:
        """The names of the headers that are compared, in lower case, no credential among them."""
        return [name for name in dict.fromkeys(map(bytes.lower, self.headers)) if name not in self.secrets.headers]


DEFAULT = Rules()


def parse_match(text: str) -> Rules:
    """The rules that compare what a list such as `method,path,header:x-tenant` names, and are else the default.

    Raises UsageError.
    """
    matchers: list[Matcher] = []
    headers: list[bytes] = []
    for name in map(str.strip, text.split(",")):
        kind, colon, value = name.partition(":")
        if kind == "header" and colon:
            headers.append(_header(value))
        elif name in _NAMES:
            matchers.append(Matcher(name))
        else:
            raise UsageError(_unknown(name))
    return Rules(frozenset(matchers), tuple(dict.fromkeys(headers)))


def _header(name: str) -> bytes:
    if not _TOKEN.fullmatch(name):
        raise UsageError(f"header: {shown(name)} names no header: write one, such as header:x-tenant")
    lowered = name.lower().encode()
    if lowered in KNOWN.headers:
        raise UsageError(f"header:{name} holds a credential, which never counts: leave it out")
    return lowered


def _unknown(name: str) -> str:
    kind = name.partition(":")[0].lower()
    close = get_close_matches(kind, [*_NAMES, "header"], 1)
    hint = f"did you mean {HEADER if close[0] == 'header' else close[0]}? " if close else ""
    return f"no matcher is called {shown(name)}: {hint}There are {', '.join(_NAMES)} and {HEADER}"
