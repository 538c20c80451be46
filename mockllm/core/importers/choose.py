"""Which kind a capture is, told by its content, and what is said of those that cannot be read.

It must not know how each kind is read.
"""

import json
import re
from dataclasses import replace

from mockllm.core.errors import MockllmError
from mockllm.core.importers.base import Given, Imported
from mockllm.core.importers.curl_trace import read_trace
from mockllm.core.importers.heads import STATUS_LINE, is_text
from mockllm.core.importers.raw import read_raw
from mockllm.core.importers.trace_lines import is_trace
from mockllm.core.redaction import Redaction

KNOWN_SECRETS = Redaction()
_LATER = "which cannot be imported yet, only what curl -isN or curl --trace-time --trace wrote"
_BYTES = (
    (b"\xff\xfe", "is UTF-16 text, as PowerShell's > writes it: save with curl's own -o FILE or --trace FILE"),
    (b"\x0a\x0d\x0d\x0a", f"is a pcap file, {_LATER}"),
    (b"\xa1\xb2\xc3\xd4", f"is a pcap file, {_LATER}"),
    (b"\xd4\xc3\xb2\xa1", f"is a pcap file, {_LATER}"),
    (b"\xa1\xb2\x3c\x4d", f"is a pcap file, {_LATER}"),
    (b"\x4d\x3c\xb2\xa1", f"is a pcap file, {_LATER}"),
    (b"\x1f\x8b", "is compressed: gunzip it first"),
    (b"PK\x03\x04", "is a zip file: unpack it first"),
    (b'{"mockllm":', "is a cassette already: mockllm replay plays it"),
)
_VCR_YAML = re.compile(rb"(?m)\A(?:---\n)?(?:[^\n]*\n){0,3}?(?:interactions|http_interactions):")
_VERBOSE = re.compile(rb"(?m)^[<>] (?:HTTP/[0-9]|[A-Z]+ [^ \r\n]+ HTTP/[0-9])")
_HTML = re.compile(rb"(?i)\s*<(?:!doctype\s+html|html|head|body)\b")


def read_capture(data: bytes, source: str, given: Given, redaction: Redaction = KNOWN_SECRETS) -> Imported:
    """Read a capture, without the credentials in it; `source` is its name in messages.

    Raises MockllmError where it cannot be read, UsageError where an option makes no sense for it.
    """
    imported = _read(data, source, given)
    return replace(imported, exchanges=tuple(map(redaction.exchange, imported.exchanges)))


def _read(data: bytes, source: str, given: Given) -> Imported:
    if not data.strip():
        raise MockllmError(f"{source}: is empty")
    if is_trace(data):
        return read_trace(data, source, given)
    if STATUS_LINE.match(data.lstrip()):
        return read_raw(data.lstrip(), source, given)
    if given.content_type is None and (why := _why_not(data)):
        raise MockllmError(f"{source}: {why}")
    return read_raw(data, source, given)


def _why_not(data: bytes) -> str:
    """What a capture without a head is that cannot be read, "" if nothing speaks against it."""
    for start, what in _BYTES:
        if data.startswith(start):
            return what
    if _VERBOSE.search(data):
        return "was written by curl -v, which leaves bytes out: use curl -isN or curl --trace-time --trace FILE"
    if _HTML.match(data):
        return "is an HTML page, not an answer of an LLM server: with its head (curl -i) it could be imported"
    if _VCR_YAML.match(data):
        return f"is a VCR cassette, {_LATER}"
    if not is_text(data):
        return "is binary, and nothing that is known here"
    return _other_json(data)


def _other_json(data: bytes) -> str:
    """JSON that is not an answer but another tool's recording."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    log = value.get("log")
    if isinstance(log, dict) and isinstance(log.get("entries"), list):
        return f"is a HAR file, {_LATER}"
    if any(isinstance(value.get(key), list) for key in ("interactions", "http_interactions")):
        return f"is a VCR cassette, {_LATER}"
    return ""
