"""One line a log for what happened to an exchange, for a person at a terminal.

What it holds is text made by strangers, so it is escaped; it must not know where the line goes.
"""

from mockllm.core.shown import escaped


def duration(microseconds: int) -> str:
    """µs as a person reads them: 830 µs, 12.3 ms, 4.56 s."""
    if microseconds < 1000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


def exchange(
    method: str, target: bytes, status: int | None, size: int, first: int | None, total: int, end: str, rest: str = ""
) -> str:
    """One exchange in one line: what was asked, what came, when its first byte and its end came (µs), how it ended."""
    answer = "no head" if status is None else str(status)
    began = "nothing came" if first is None else f"first byte {duration(first)}"
    line = f"{method} {target.decode(errors='backslashreplace')} {answer}, {size} B, {began}, {duration(total)}, {end}"
    return escaped(f"{line} {rest}" if rest else line)
