"""Where an HTTP/1 message ends, as plainly as it can be told: enough for peers that only speak what tests write.

It must not import mockllm: a fault in the program's own framing must not hide in here too.
"""


def header(head: bytes, name: bytes) -> bytes | None:
    """The value of the first header of that name (case-insensitive) in a head, or None."""
    for line in head.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon and key.strip().lower() == name.lower():
            return value.strip()
    return None


def head_end(data: bytes | bytearray) -> int | None:
    """The offset after the blank line that ends the head; None while it has not come."""
    at = data.find(b"\r\n\r\n")
    return None if at < 0 else at + 4


def request_end(data: bytes | bytearray) -> int | None:
    """The offset after the first whole request in `data` (RFC 9112 §6.3); None while it is not whole."""
    start = head_end(data)
    if start is None:
        return None
    head = bytes(data[:start])
    if (header(head, b"transfer-encoding") or b"").lower().endswith(b"chunked"):
        return chunked_end(data, start)
    return _reached(data, start + int(header(head, b"content-length") or 0))


def answer_end(data: bytes | bytearray) -> int | None:
    """The offset after the first whole answer to a GET or POST in `data`; None while it is not whole.

    None for ever where it ends with the connection. 1xx heads count into the answer that follows them.
    """
    start, status = 0, 100
    while status < 200:
        end = head_end(data[start:])
        if end is None:
            return None
        head, start = bytes(data[start : start + end]), start + end
        status = int(head.split(b" ", 2)[1][:3])
    if status in (204, 304):
        return start
    if (header(head, b"transfer-encoding") or b"").lower().endswith(b"chunked"):
        return chunked_end(data, start)
    length = header(head, b"content-length")
    return None if length is None else _reached(data, start + int(length))


def chunked_end(data: bytes | bytearray, start: int) -> int | None:
    """The offset after the chunked body (trailers included) that begins at `start` (RFC 9112 §7.1), or None."""
    at, size = start, 1
    while size:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(data[at:line_end].partition(b";")[0], 16)
        at = line_end + 2 + (size + 2 if size else 0)
    while not data.startswith(b"\r\n", at):
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return None
        at = line_end + 2
    return at + 2


def _reached(data: bytes | bytearray, end: int) -> int | None:
    return end if len(data) >= end else None
