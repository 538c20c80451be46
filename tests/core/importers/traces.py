"""Writes curl traces in the form that curl has for them, so that tests say what came and not how it looks.

It must not import mockllm.
"""

from collections.abc import Iterator

HEX, TEXT = 16, 64


def info(text: str, at: str | None = None, ids: str = "") -> bytes:
    """A remark of curl."""
    return f"{_prefix(at, ids)}== Info: {text}\n".encode()


def sent(data: bytes, kind: str = "header", **how: str | bool | None) -> bytes:
    """A block of the request."""
    return block("=> Send", kind, data, **how)  # type: ignore[arg-type]


def came(data: bytes, kind: str = "header", **how: str | bool | None) -> bytes:
    """A block of the answer; a head goes line by line, as curl logs it."""
    if kind != "header":
        return block("<= Recv", kind, data, **how)  # type: ignore[arg-type]
    return b"".join(block("<= Recv", kind, line, **how) for line in data.splitlines(keepends=True))  # type: ignore[arg-type]


def block(direction: str, kind: str, data: bytes, at: str | None = None, ids: str = "", text: bool = False) -> bytes:
    """One block, its bytes in hex or as text."""
    first = f"{_prefix(at, ids)}{direction} {kind}, {len(data)} bytes (0x{len(data):x})\n"
    return first.encode() + b"".join(_text(data) if text else _hex(data))


def _prefix(at: str | None, ids: str) -> str:
    return (f"{at} " if at else "") + (f"[{ids}] " if ids else "")


def _hex(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), HEX):
        part = data[start : start + HEX]
        numbers = "".join(f"{byte:02x} " for byte in part).ljust(3 * HEX)
        yield f"{start:04x}: {numbers}".encode() + _shown(part) + b"\n"


def _text(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        stop = data.find(b"\r\n", start, start + TEXT + 2)
        stop, skip = (stop, 2) if stop >= 0 else (min(start + TEXT, len(data)), 0)
        yield f"{start:04x}: ".encode() + _shown(data[start:stop]) + b"\n"
        start = stop + skip


def _shown(data: bytes) -> bytes:
    return bytes(byte if 0x20 <= byte < 0x7F else 0x2E for byte in data)
