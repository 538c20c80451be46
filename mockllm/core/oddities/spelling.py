"""What is odd about how a stream is spelled: comments, line ends, fields, an unfinished end."""

import re
from collections.abc import Iterator

from mockllm.core.events import Event, Kind, NdjsonReader, reader_for
from mockllm.core.look import Look
from mockllm.core.oddities.base import Check, counted
from mockllm.core.shown import shown_bytes

_BOM = b"\xef\xbb\xbf"
_NO_SPACE = re.compile(rb"(?:\A|[\r\n])data:(?=[^ \r\n])")
_SEVERAL_DATA = re.compile(rb"(?:\A|[\r\n])data(?::[^\r\n]*)?(?:\r\n|[\r\n])(?=data[:\r\n])")
# U+2028, U+2029, U+0085, and the ASCII controls that str.splitlines takes for line ends.
_OTHER_LINE_ENDS = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85|[\x0b\x0c\x1c-\x1e]")


def mark(look: Look) -> Iterator[str]:
    """A byte order mark."""
    if look.body.startswith(_BOM):
        yield "a byte order mark before the body"


def comments(look: Look) -> Iterator[str]:
    """Comments, which are no data."""
    found = [comment for span in look.spans for comment in span.event.comments]
    if found:
        yield f"{counted(len(found), 'comment')}, such as {shown_bytes(b':' + found[0])}"


def fields(look: Look) -> Iterator[str]:
    """`retry:` and `id:`, data that are empty, and blank lines beyond the one that ends an event."""
    if _is_ndjson(look):
        return
    found = [span.event for span in look.spans]
    retries, ids = sum(event.retry is not None for event in found), sum(event.id is not None for event in found)
    if retries:
        yield counted(retries, "retry: field")
    if ids:
        yield counted(ids, "id: field")
    empty = sum(span.event.data == b"" for span in look.events)
    if empty:
        yield counted(empty, "event with empty data", "events with empty data")
    blank = sum(event.kind is Kind.BLOCK and not _text(look, event).strip(b"\r\n") for event in found)
    if blank:
        yield counted(blank, "blank line between events", "blank lines between events")


def data_lines(look: Look) -> Iterator[str]:
    """`data:` without a space, and data over several lines."""
    if look.stream_type is None or _is_ndjson(look):
        return
    bare = len(_NO_SPACE.findall(look.body))
    if bare:
        yield f"{counted(bare, 'data: line')} without a space after the colon"
    several = sum(_SEVERAL_DATA.search(_text(look, span.event)) is not None for span in look.events)
    if several:
        yield f"{counted(several, 'event')} with several data: lines"


def line_ends(look: Look) -> Iterator[str]:
    """CRLF, CR, or a mixture."""
    if look.stream_type is None:
        return
    pairs = look.body.count(b"\r\n")
    ends = {"CRLF": pairs, "CR": look.body.count(b"\r") - pairs, "LF": look.body.count(b"\n") - pairs}
    names = [name for name, count in ends.items() if count]
    if names not in ([], ["LF"]):
        yield f"lines end with {' and '.join(names)}"


def other_line_ends(look: Look) -> Iterator[str]:
    """Characters in the data that some readers of lines take for line ends."""
    found = _OTHER_LINE_ENDS.findall(look.body) if look.stream_type is not None else []
    if found:
        yield f"{counted(len(found), 'character')} that some readers take for a line end: {shown_bytes(found[0])}"


def not_utf8(look: Look) -> Iterator[str]:
    """A stream, or JSON, that is no UTF-8."""
    if look.stream_type is None and b"json" not in (look.content_type or b"").lower():
        return
    try:
        look.body.decode()
    except UnicodeDecodeError as error:
        yield f"not UTF-8 at byte {error.start} of the body"


def tail(look: Look) -> Iterator[str]:
    """A last event that no client gets, or a last JSON line without its end."""
    if not look.spans:
        return
    last = look.spans[-1].event
    if last.kind is Kind.TAIL:
        yield f"the last event is not finished, no client gets it: {shown_bytes(look.body[last.start : last.stop])}"
    elif _is_ndjson(look) and not look.body.endswith(b"\n"):
        yield "the last JSON line has no line end"


def white_space(look: Look) -> Iterator[str]:
    """White space before a body that is no stream."""
    blank = len(look.body) - len(look.body.lstrip())
    if blank and look.stream_type is None and len(look.body) > blank:
        yield f"{counted(blank, 'byte')} of white space before the body"


def _is_ndjson(look: Look) -> bool:
    return isinstance(reader_for(look.stream_type), NdjsonReader)


def _text(look: Look, event: Event) -> bytes:
    """The bytes of a span, without a byte order mark."""
    text = look.body[event.start : event.stop]
    return text.removeprefix(_BOM) if event.start == 0 else text


CHECKS: tuple[Check, ...] = (
    mark,
    comments,
    fields,
    data_lines,
    line_ends,
    other_line_ends,
    not_utf8,
    tail,
    white_space,
)
