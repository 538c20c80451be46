"""What must not reach a disk, in one value for every writer: the names and places of credentials, and what follows.

It must not know who writes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mockllm.core.bodies import Hider
from mockllm.core.covering import CODINGS, CONTENT_ENCODING, cover
from mockllm.core.credentials import credentials
from mockllm.core.decoding import decode
from mockllm.core.errors import UsageError
from mockllm.core.exchange import Exchange, Note, Request, header
from mockllm.core.pointer import Pointer, parse_pointer
from mockllm.core.redact import KNOWN, Names, redact_headers, redact_target
from mockllm.core.secrets import Secrets, secrets_of
from mockllm.core.shown import shown

_NEEDED = ("content-length", "transfer-encoding", "content-encoding")
_USERINFO = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/?#\s\"'<>]*@")


@dataclass(frozen=True, slots=True)
class Redaction:
    """By which `names` and at which `places` of a request's JSON credentials stand. Doing it twice changes nothing."""

    names: Names = KNOWN
    places: tuple[Pointer, ...] = ()

    def split(self, request: Request) -> tuple[Request, Secrets]:
        """The request without its credentials, and those to look for in what comes back.

        They are masked by name, and by value wherever else they stand in it: with MASK, whatever their length, so that
        requests with different keys become equal. A compressed body stays decoded if one stands in it.
        """
        found = list(credentials(request.headers, request.target, self.names))
        hider = Hider(self.names.fields, self.places)
        text = _text_of(request)
        hidden = hider.hide(header(request.headers, b"content-type") or b"", text)
        secrets = secrets_of([*found, *(value for _, value in hider.found)])
        hidden = secrets.replace(hidden)
        headers = tuple(
            (name, secrets.replace(value))
            for name, value in redact_headers(request.headers, self.names)
            if hidden == text or name.lower() != CONTENT_ENCODING
        )
        target = secrets.replace(redact_target(request.target, self.names))
        body = request.body if hidden == text else hidden
        return replace(request, headers=headers, target=target, body=body), secrets

    def request(self, request: Request) -> Request:
        """The request without its credentials."""
        return self.split(request)[0]

    def exchange(self, exchange: Exchange) -> Exchange:
        """A whole exchange without credentials: in its answer those of the request by value, in the head also by name.

        Where one stands in a compressed body, that is decoded and the exchange marked so.
        """
        request, secrets = self.split(exchange.request)
        covered = cover(exchange.response, self.names, secrets)
        response = replace(covered.response, target=request.target)
        before, after = len(exchange.response.segments), len(response.segments)
        meta = _without(exchange.meta, secrets) | ({"decoded": True} if covered.decoded else {})
        kept = exchange.extras.items() if before == after else ((-1, exchange.extras.get(-1, {})),)
        return Exchange(
            request,
            response,
            meta,
            _without(exchange.end_meta, secrets),
            {index: _without(extra, secrets) for index, extra in kept if extra},
            tuple(_moved(note, before, after, secrets) for note in exchange.notes),
        )


def redaction(names: Iterable[str], pointers: Iterable[str]) -> Redaction:
    """With more names of headers, query parameters and JSON fields, and JSON pointers with `*`. Raises UsageError."""
    more = list(names)
    for name in more:
        if not name.strip() or name.lower() in _NEEDED:
            why = "is needed to read the answer" if name.strip() else "is no name"
            raise UsageError(f"--redact {shown(name)} {why}: name a header, a query parameter or a JSON field")
    try:
        known = KNOWN.and_also(more)
    except UnicodeEncodeError:
        raise UsageError("a name to redact is not UTF-8") from None
    return Redaction(known, tuple(map(parse_pointer, pointers)))


def _text_of(request: Request) -> bytes:
    """The request's body, decoded as far as that can be done."""
    body = request.body or b""
    coding = (header(request.headers, CONTENT_ENCODING) or b"").strip().lower()
    return decode(coding, [body]).pieces[0] or body if coding in CODINGS else body


def _without(value: Any, secrets: Secrets) -> Any:
    """A JSON value without secrets, and without the userinfo of URLs."""
    if isinstance(value, Mapping):
        return {name: _without(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, secrets) for item in value]
    return _text(value, secrets) if isinstance(value, str) else value


def _text(text: str, secrets: Secrets) -> str:
    return secrets.replace(_USERINFO.sub(r"\1", text).encode()).decode()


def _moved(note: Note, before: int, after: int, secrets: Secrets) -> Note:
    """A note at its place among the segments, which may have become others."""
    index = note.index - before + after if note.index >= before else min(note.index, after)
    return replace(note, index=index, text=_text(note.text, secrets))
