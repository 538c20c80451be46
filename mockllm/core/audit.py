"""Finds what looks like a credential in an exchange that somebody is about to share.

By names, and by the shapes of well-known keys; a number is never one. What it says does not repeat what it found.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mockllm.core.bodies import Hider
from mockllm.core.covering import coding_of
from mockllm.core.decoding import decode
from mockllm.core.exchange import Exchange, Headers, Request, header
from mockllm.core.http1 import scan
from mockllm.core.redact import KNOWN, Names, redact_target, redact_value
from mockllm.core.response import Response
from mockllm.core.spelling import plain

UNMASKED = "an unmasked credential"

_SHAPES = {
    "an Anthropic key (sk-ant-…)": rb"sk-ant-[A-Za-z0-9_-]{20,}",
    "a key (sk-…)": rb"sk-(?!ant-)[A-Za-z0-9_-]{0,24}?"
    rb"(?:[A-Za-z0-9]{20}|(?=[A-Za-z]{0,15}[0-9])(?=[0-9]{0,15}[A-Za-z])[A-Za-z0-9]{16})",
    "a Google key (AIza…)": rb"AIza[A-Za-z0-9_-]{35}",
    "a Google token (ya29.…)": rb"ya29\.[A-Za-z0-9_-]{20}",
    "a GitHub token (gh._…)": rb"gh[opsur]_[A-Za-z0-9]{36}",
    "a GitHub token (github_pat_…)": rb"github_pat_[A-Za-z0-9_]{40}",
    "a GitLab token (glpat-…)": rb"glpat-[A-Za-z0-9_-]{20}",
    "a Hugging Face token (hf_…)": rb"hf_[A-Za-z0-9]{30}",
    "a Groq key (gsk_…)": rb"gsk_[A-Za-z0-9]{40}",
    "an xAI key (xai-…)": rb"xai-[A-Za-z0-9]{40}",
    "a Perplexity key (pplx-…)": rb"pplx-[A-Za-z0-9]{40}",
    "an NVIDIA key (nvapi-…)": rb"nvapi-[A-Za-z0-9_-]{40}",
    "a Replicate token (r8_…)": rb"r8_[A-Za-z0-9]{37}",
    "a Slack token (xox.-…)": rb"xox[abeoprs]-(?=[A-Za-z-]{0,19}[0-9])[A-Za-z0-9-]{20}",
    "a Stripe key (sk_live_…)": rb"[rs]k_(?:live|test)_[A-Za-z0-9]{16}",
    "an AWS key (AKIA…)": rb"A(?:KIA|SIA)[A-Z2-7]{16}(?![A-Za-z0-9])",
    "a JSON Web Token (eyJ…)": rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16}",
    "a bearer token": rb"(?i:bearer)[ +]+"
    rb"(?=[A-Za-z._~+/-]{0,19}[0-9])(?=[0-9._~+/-]{0,19}[A-Za-z])[A-Za-z0-9._~+/-]{20}",
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
}
_ANY = re.compile(rb"(?<![A-Za-z0-9_])(?:%b)" % b"|".join(b"(%b)" % shape for shape in _SHAPES.values()))
_TOLD = (*_SHAPES,)
_MASK = re.compile(rb"(?i)(?:[a-z-]+ +)?[\[<({]*(?:(?:redacted|filtered|removed|masked|hidden)|[*x]{3,})[\])}>]*")
_USERINFO = re.compile(rb"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://[^/?#\s\"'<>@]+@")


@dataclass(frozen=True, slots=True)
class Finding:
    """`where` it stands ("request header Authorization"), and `what` it is ("an unmasked credential")."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def findings(exchange: Exchange, names: Names = KNOWN) -> list[Finding]:
    """What looks like a credential, each kind of it once a place: under a secret name and not masked, or of the shape
    of a well-known key.
    """
    found = [
        *_in_request(exchange.request, names),
        *_in_response(exchange.response, names),
        *_in_text("header line", _coded(exchange.meta)),
        *_in_text("end line", _coded(exchange.end_meta)),
        *_in_text("unknown keys", _coded(list(exchange.extras.values()))),
    ]
    for note in exchange.notes:
        found += _in_text("comment", note.text.encode())
    return list(dict.fromkeys(found))


def _in_request(request: Request, names: Names) -> Iterator[Finding]:
    if redact_target(request.target, names) != request.target:
        yield Finding("request target", UNMASKED)
    yield from _in_text("request target", request.target)
    yield from _in_headers("request", request.headers, names)
    body = request.body or b""
    hider = Hider(names.fields, ())
    hider.hide(header(request.headers, b"content-type") or b"", body)
    for name, value in hider.found:
        if not _MASK.fullmatch(value):
            yield Finding(f"request body, {json.dumps(name)}", UNMASKED)
    yield from _in_shape("request body", body)


def _in_response(response: Response, names: Names) -> Iterator[Finding]:
    found = scan(response)
    head = b"".join(segment.wire for segment in found.segments[: found.head_segments])
    rest = found.segments[found.head_segments :]
    if found.head is not None:
        yield from _in_headers("response", found.head.headers, names)
        pieces = [segment.data for segment in rest]
        yield from _in_shape("response body", b"".join(decode(coding_of(found.head), pieces).pieces))
    yield from _in_shape("response head", head)
    yield from _in_shape("response body", found.body)
    yield from _in_shape("response framing", b"\n".join(part for s in rest for part in (s.before, s.after)))


def _in_headers(side: str, headers: Headers, names: Names) -> Iterator[Finding]:
    for name, value in headers:
        where = f"{side} header {name.decode('ascii', 'backslashreplace')}"
        lowered = name.strip().lower()
        if value.strip() and redact_value(lowered, value, names) != value and not _MASK.fullmatch(value.strip()):
            yield Finding(where, UNMASKED)
        yield from _in_text(where, value)


def _in_text(where: str, text: bytes) -> Iterator[Finding]:
    """Shapes, and the userinfo of URLs, which in a body would be but text."""
    if _USERINFO.search(text):
        yield Finding(where, "a URL with a user in it")
    yield from _in_shape(where, text)


def _in_shape(where: str, text: bytes) -> Iterator[Finding]:
    for match in _ANY.finditer(plain(text)):
        yield Finding(where, _TOLD[(match.lastindex or 1) - 1])


def _coded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
