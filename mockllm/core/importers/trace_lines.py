"""The blocks that `curl --trace` and `--trace-ascii` write: who sent what, and when, as bytes again.

A block is a line that says direction, kind and size, then a dump of the bytes: in hex, or as text in which every byte
that does not print is a dot. Its offsets still tell where CRLF was. It must not know what the bytes mean.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mockllm.core.errors import MockllmError

_TIME = rb"(?:([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{6}) )?(?:\[([^\]\s]*)\] )?"
# Not at the line's start: curl prints the body between the blocks where the trace goes to the terminal too.
_BLOCK = re.compile(_TIME + rb"(=>|<=) (?:Send|Recv) (header|data|SSL data), ([0-9]+) bytes \(0x([0-9a-f]+)\)\r?$")
_INFO = re.compile(_TIME + rb"== Info: (.*)")
_DUMP = re.compile(rb"([0-9a-f]{4,}):(?: (.*))?", re.DOTALL)
_HEX = re.compile(rb"(?:[0-9a-f]{2} ){1,16}")
_HEX_WIDTH, _TEXT_WIDTH = 16, 64
_DAY_US = 24 * 3600 * 1_000_000


class Kind(Enum):
    """What a block is."""

    SEND_HEAD = "=> header"
    SEND_DATA = "=> data"
    RECV_HEAD = "<= header"
    RECV_DATA = "<= data"
    SSL = "ssl"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Block:
    """`at` is µs since the midnight before the trace began, None without --trace-time; it never goes back. `transfer`
    is what --trace-ids says, b"" without. `exact` is false where a dump as text has dots that may be other bytes.
    """

    kind: Kind
    at: int | None
    data: bytes
    line: int
    transfer: bytes = b""
    exact: bool = True


def is_trace(data: bytes) -> bool:
    """Does a capture hold at least one block?"""
    return any(_BLOCK.search(line) for line in data.split(b"\n"))


def blocks(data: bytes, source: str) -> tuple[list[Block], int]:
    """All the blocks, and how many lines were no part of any. Raises MockllmError where a block is not whole."""
    lines = data.split(b"\n")
    found: list[Block] = []
    strange = number = 0
    clock = _Clock()
    while number < len(lines):
        line = lines[number]
        number += 1
        if block := _BLOCK.search(line):
            dump = list(_dump(lines, number, int(block[8])))
            content, exact = _content(dump, int(block[8]), f"{source}:{number}")
            kind = Kind.SSL if block[7].startswith(b"SSL") else Kind(f"{block[6].decode()} {block[7].decode()}")
            found.append(Block(kind, clock.read(block), content, number, block[5] or b"", exact))
            number += len(dump)
        elif info := _INFO.search(line):
            found.append(Block(Kind.INFO, clock.read(info), info[6].rstrip(b"\r"), number, info[5] or b""))
        elif line.strip():
            strange += 1
    return found, strange


class _Clock:
    """Turns times of day into times that never go back, also over midnight."""

    def __init__(self) -> None:
        self._day = self._last = 0

    def read(self, found: re.Match[bytes]) -> int | None:
        if found[1] is None:
            return None
        hours, minutes, seconds, micros = (int(found[group]) for group in range(1, 5))
        at = self._day + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
        if at < self._last - _DAY_US // 2:
            self._day += _DAY_US
            at += _DAY_US
        self._last = max(self._last, at)  # a clock that was set back a little
        return self._last


def _dump(lines: list[bytes], start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a block's dump: (offset, what stands there)."""
    last = -1
    for number in range(start, len(lines)):
        found = _DUMP.match(lines[number].removesuffix(b"\r"))
        if found is None or not last < int(found[1], 16) < size:
            return
        last = int(found[1], 16)
        yield last, found[2] or b""


def _content(dump: list[tuple[int, bytes]], size: int, where: str) -> tuple[bytes, bool]:
    """The bytes of a block, and whether they are exact."""
    data = _from_hex(dump)
    if len(data) == size:
        return data, True
    text = _from_text(dump, size)
    if len(text) != size:
        what = f"a block of {size} bytes of which {max(len(data), len(text))} are there"
        raise MockllmError(f"{where}: {what}: the trace is cut off or edited; take the block out to import the rest")
    return text, b"." not in text


def _from_hex(dump: list[tuple[int, bytes]]) -> bytes:
    """The bytes of a hex dump, as far as it is one."""
    data = bytearray()
    for offset, text in dump:
        found = _HEX.match(text[: 3 * _HEX_WIDTH])
        if found is None or offset != len(data):
            break
        data += bytes.fromhex(found[0].decode())
    return bytes(data)


def _from_text(dump: list[tuple[int, bytes]], size: int) -> bytes:
    """The bytes of a text dump, as far as it is one.

    What a line lacks up to the next one's offset is a CRLF, after spaces that an editor took away: one at most in the
    last line, so that a dump which is cut off is not filled up.
    """
    data = bytearray()
    for index, (offset, text) in enumerate(dump):
        last = index + 1 == len(dump)
        lacking = (size if last else dump[index + 1][0]) - offset - len(text)
        if offset != len(data) or not 0 <= lacking <= (3 if last else _TEXT_WIDTH - len(text) + 2):
            break
        data += text + b" " * (lacking if lacking < 2 else lacking - 2) + (b"\r\n" if lacking > 1 else b"")
    return bytes(data)
