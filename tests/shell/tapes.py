"""Cassettes written by hand, as a person would write them."""

import json
from pathlib import Path
from typing import Any

CHUNKED_HEAD: list[Any] = [
    0,
    "head",
    {
        "status": 200,
        "reason": "OK",
        "headers": [["Content-Type", "text/event-stream"], ["Transfer-Encoding", "chunked"]],
    },
]
LAST: list[Any] = [0, "wire", "0\r\n\r\n"]


def request(target: str = "/x", method: str = "POST", early: bool = False, **more: Any) -> dict[str, Any]:
    """A header line. `more` is the body (`json=`, `text=`, `body=`) or `headers=`."""
    line: dict[str, Any] = {"mockllm": 1} | ({"early": True} if early else {})
    return line | {"request": {"method": method, "target": target, **more}}


def head(status: int = 200, version: str = "1.1", at: float = 0, **headers: str) -> list[Any]:
    """A head line; `Content_Length="5"` is a header."""
    pairs = [[name.replace("_", "-"), value] for name, value in headers.items()]
    return [at, "head", {"version": version, "status": status, "reason": "OK", "headers": pairs}]


def plain(text: str, **more: Any) -> list[list[Any]]:
    """A complete answer with a length."""
    return [head(Content_Length=str(len(text.encode())), **more), [0, "data", text], [0, "end", "complete"]]


def plain_wire(text: str) -> bytes:
    """What `plain` puts on the wire."""
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text.encode())}\r\n\r\n{text}".encode()


def stream(*events: str, gap_ms: float = 0) -> list[list[Any]]:
    """A complete answer in chunks: server-sent events of these data, so far apart (0: in one read)."""
    lines = [[gap_ms, "data", f"data: {event}\n\n"] for event in events]
    return [CHUNKED_HEAD, *lines, LAST, [0, "end", "complete"]]


def stream_wire(*events: str) -> bytes:
    """What `stream` puts on the wire."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(chunk(f"data: {event}\n\n") for event in events) + b"0\r\n\r\n"


def chunk(text: str) -> bytes:
    """A chunk of this text."""
    return b"%x\r\n%s\r\n" % (len(text.encode()), text.encode())


def write(path: Path, *lines: Any) -> Path:
    """A file of these lines; a string stands as it is."""
    text = "".join((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
