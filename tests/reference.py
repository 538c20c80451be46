"""Server-sent events by the standard, written from its text word by word: what the package's own reader is held to.

Whole bodies only, nothing incremental. It knows nothing of mockllm.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dispatched:
    """An event that a client gets, and the id and reconnection time that its block set."""

    name: bytes
    data: bytes
    id: bytes | None
    retry: bytes | None


def reference(body: bytes) -> list[Dispatched]:
    """WHATWG HTML §9.2.6 word by word on the whole body, bytes as Latin-1 so that each stays one character."""
    stream = body.decode("latin-1")
    if stream.startswith("\xef\xbb\xbf"):
        stream = stream[3:]
    *lines, _unfinished = stream.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found = []
    data_buffer, event_type = "", ""
    new_id: str | None = None
    new_retry: str | None = None
    for line in lines:
        if line == "":
            if data_buffer != "":
                data = data_buffer[:-1] if data_buffer[-1] == "\n" else data_buffer
                fields = (event_type, data, new_id, new_retry)
                found.append(Dispatched(*(None if f is None else f.encode("latin-1") for f in fields)))  # type: ignore[arg-type]
            data_buffer, event_type, new_id, new_retry = "", "", None, None
            continue
        if line[0] == ":":
            continue
        colon = line.find(":")
        name, value = (line, "") if colon < 0 else (line[:colon], line[colon + 1 :])
        if value[:1] == " ":
            value = value[1:]
        if name == "event":
            event_type = value
        if name == "data":
            data_buffer += value + "\n"
        if name == "id" and "\0" not in value:
            new_id = value
        if name == "retry" and value != "" and all(c in "0123456789" for c in value):
            new_retry = value
    return found
