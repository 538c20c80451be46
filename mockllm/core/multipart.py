"""A multipart body as its parts, byte for byte and without the boundary, which clients draw anew for each request.

RFC 2046 §5.1.1 to the letter: what does not keep to it is no multipart. It must not know what the parts are for.
"""

import re
from dataclasses import dataclass

MAX_PARTS = 1000
"""A body of more parts is not taken for multipart: a few bytes of a request would be an object each."""

_CRLF = b"\r\n"
_TYPE = re.compile(rb"multipart/", re.IGNORECASE)
_LINE_END = re.compile(rb"(--)?[ \t]*+(?:\r\n|\Z)")  # after the boundary: the close delimiter, transport padding
_FOLD = re.compile(rb"\r\n[ \t]+")
_PARAMETER = re.compile(rb';[ \t]*+([^=;" \t]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|([^;" \t]*+))', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """One part: the parameters of its Content-Disposition (unquoted), its Content-Type, its content. None is absent."""

    name: bytes | None
    filename: bytes | None
    type: bytes | None
    content: bytes


def parse_multipart(content_type: bytes, body: bytes) -> tuple[Part, ...]:
    """The parts of a body, in order. `content_type` is the value of the request's header, with the boundary.

    Preamble, epilogue and other headers of a part count for nothing. The close delimiter alone is a form without
    fields, as browsers send it. Raises ValueError where the type is no multipart or the body is not what it says.
    """
    boundary = _parameters(content_type).get(b"boundary") if _TYPE.match(content_type) else None
    if not boundary:
        raise ValueError("not multipart")
    return tuple(map(_part, _pieces(body, b"--" + boundary)))


def _pieces(body: bytes, dashed: bytes) -> list[bytes]:
    """What stands between the delimiters."""
    delimiter = _CRLF + dashed
    at = 0 if body.startswith(dashed) else body.index(delimiter) + len(_CRLF)
    pieces: list[bytes] = []
    while True:
        line = _LINE_END.match(body, at + len(dashed))
        if line is None:
            raise ValueError("a line that only begins as a delimiter")
        if line[1]:
            return pieces
        if len(pieces) == MAX_PARTS:
            raise ValueError("too many parts")
        end = body.index(delimiter, line.end())
        pieces.append(body[line.end() : end])
        at = end + len(_CRLF)


def _part(piece: bytes) -> Part:
    """A part from its headers, an empty line and its content. Without headers it begins with the empty line."""
    if piece.startswith(_CRLF):
        head, content = b"", piece[len(_CRLF) :]
    else:
        head, blank, content = piece.partition(_CRLF * 2)
        if head and not blank and not head.endswith(_CRLF):
            raise ValueError("a part without an empty line")
    fields: dict[bytes, bytes] = {}
    for line in filter(None, _FOLD.sub(b" ", head).split(_CRLF)):
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError("a header without a colon")
        fields.setdefault(name.strip().lower(), value.strip())
    told = _parameters(fields.get(b"content-disposition", b""))
    filename = told.get(b"filename", told.get(b"filename*"))
    return Part(told.get(b"name"), filename, fields.get(b"content-type"), content)


def _parameters(value: bytes) -> dict[bytes, bytes]:
    """The parameters of a header's value by their names in lower case (RFC 9110 §5.6.6), the first of equals."""
    found: dict[bytes, bytes] = {}
    for match in _PARAMETER.finditer(value):
        name, quoted, token = match.groups()
        found.setdefault(name.lower(), token if quoted is None else _ESCAPE.sub(rb"\1", quoted))
    return found
