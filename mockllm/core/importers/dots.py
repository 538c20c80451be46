"""Line ends that `--trace-ascii` shows as dots, put back where the shape of a stream or of JSON tells them.

Each byte stays one byte, so that nothing moves. A dot that was another byte (a tab, a letter outside ASCII) stays
one: nothing tells. It knows no traces.
"""

import re

from mockllm.core.events import NdjsonReader, SseReader, reader_for
from mockllm.core.importers.bodies import is_json

# Possessive, and the closing quote optional: linear whatever the bytes.
_STRING = rb'"(?:[^"\\]++|\\.)*+"?'
_NUMBER = rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
# Dots before a field's name, or at the very end, end a line of server-sent events; those inside JSON strings do not.
_SSE = re.compile(_STRING + rb"|(?P<ends>\.++(?=(?:data|event|id|retry)?:|\Z))|\.++", re.DOTALL)
_JSON = re.compile(_STRING + rb"|" + _NUMBER + rb"|(?P<ends>\.)", re.DOTALL)


def restored(body: bytes, content_type: bytes | None) -> bytes:
    """The body with LF for the dots that were line ends."""
    reader = reader_for(content_type)
    if isinstance(reader, SseReader):
        return _SSE.sub(_line_ends, body)
    if isinstance(reader, NdjsonReader) or b"json" in (content_type or b"").lower():
        return _JSON.sub(_line_ends, body)
    return body


def restored_json(body: bytes) -> bytes | None:
    """The JSON of a request; None where it is none, or where letters outside ASCII may have been lost: each of them is
    two dots or more.
    """
    found = _JSON.sub(_line_ends, body)
    return found if is_json(found) and b".." not in found else None


def _line_ends(found: re.Match[bytes]) -> bytes:
    return found[0] if found["ends"] is None else b"\n" * len(found["ends"])
