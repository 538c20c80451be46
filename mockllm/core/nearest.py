"""Which recording is most like a request that none answers: for the message of a miss, and to play the closest.

Requests are compared by sketches of bounded size, so that ten thousand of them are ranked without their bodies. It must
not know what is done with the answer.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, TypeVar
from zlib import crc32

from mockllm.core.content import Form, Json, content_of
from mockllm.core.exchange import Request
from mockllm.core.matching import headers_of, pairs_of, path_of
from mockllm.core.rules import DEFAULT, Matcher, Rules

T = TypeVar("T")

MAX_LEAVES = 2048
"""Leaves of a body that count, those nearest to the top first."""

MAX_TEXT = 1000
"""Characters of the last user message that count: half from its start, half from its end."""

_GRAM_BITS = 4096
_STREAMS_BY_DEFAULT = (b"/api/chat", b"/api/generate")  # Ollama
_TURNS = ("messages", "input", "contents", "prompt")  # Chat and Anthropic, Responses, Gemini, completions and Ollama


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is compared of a request.

    `method` and `path` are empty where they do not count. `leaves`: a 32-bit hash for each place and value in query,
    headers and body, packed. `grams`: a bit set of the pieces of three characters in the last user message.
    """

    method: str
    path: bytes
    stream: bool
    leaves: bytes
    grams: int


Distance = tuple[int, float, bool, float]
"""Smaller is nearer: place (0 same method and path, 1 same path, 2 same method, 3 neither), how unlike the paths are
(0 to 1), whether one streams and the other does not, how unlike the bodies are (0 to 1)."""


def sketch(request: Request, rules: Rules = DEFAULT) -> Sketch:
    """The sketch of a request, of what the rules count; the same for the same request in every process. Linear in the
    size of the body.
    """
    path = path_of(request.target)
    leaves = [crc32(value, crc32(name)) for name, value in pairs_of(request.target, rules)]
    leaves += [crc32(value, crc32(b":" + name)) for name, values in headers_of(request, rules) for value in values]
    stream, text = path.endswith(_STREAMS_BY_DEFAULT), ""
    body = request.body if Matcher.BODY in rules.matchers else None
    content = content_of(request, body or b"", rules)
    if isinstance(content, Json):
        leaves += _leaves(content.value)
        text = _last_user_text(content.value)
        if isinstance(content.value, dict) and isinstance(content.value.get("stream"), bool):
            stream = content.value["stream"]
    elif content:
        pieces = [part.content for part in content.parts] if isinstance(content, Form) else [content]
        leaves += map(crc32, pieces)
        text = b" ".join(piece[:MAX_TEXT] + piece[-MAX_TEXT:] for piece in pieces).decode("utf-8", "replace")
    return Sketch(
        request.method if Matcher.METHOD in rules.matchers else "",
        path if Matcher.PATH in rules.matchers else b"",
        stream,
        array("I", leaves).tobytes(),
        _grams(text),
    )


def distance(asked: Sketch, recorded: Sketch) -> Distance:
    """How far a recording is from a request. Half of the body counts by equal leaves, half by the last user message."""
    same_path = asked.path == recorded.path
    place = (0 if same_path else 2) + (0 if asked.method == recorded.method else 1)
    ours, theirs = (frozenset(memoryview(one.leaves).cast("I")) for one in (asked, recorded))
    leaves = _share(len(ours & theirs), len(ours | theirs))
    text = _share((asked.grams & recorded.grams).bit_count(), (asked.grams | recorded.grams).bit_count())
    unlike_paths = 0.0 if same_path else _unlike_paths(asked.path, recorded.path)
    return place, unlike_paths, asked.stream != recorded.stream, 1 - (leaves + text) / 2


def nearest(asked: Sketch, candidates: Iterable[tuple[T, Sketch]]) -> T | None:
    """The candidate at the smallest distance, the first of equals; None where there is no candidate."""
    best = min(candidates, key=lambda candidate: distance(asked, candidate[1]), default=None)
    return best[0] if best else None


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _unlike_paths(one: bytes, other: bytes) -> float:
    """The part that is neither a common beginning nor a common ending."""
    common = _common(one, other) + _common(one[::-1], other[::-1])
    return max(0.0, 1 - common / max(len(one), len(other)))


def _common(one: bytes, other: bytes) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _leaves(value: Any) -> Iterator[int]:
    """A hash of place and value for each leaf, breadth first: parameters come before the turns of a conversation."""
    queue: deque[tuple[Any, int]] = deque([(value, 0)])
    left = MAX_LEAVES
    while queue and left:
        item, place = queue.popleft()
        children: Iterable[tuple[Any, int]]
        if isinstance(item, dict) and item:
            children = ((child, crc32(b"." + name.encode(), place)) for name, child in item.items())
        elif isinstance(item, list) and item:
            children = ((child, crc32(b"[%d" % index, place)) for index, child in enumerate(item))
        else:
            left -= 1
            yield crc32(_leaf(item), place)
            continue
        queue.extend(islice(children, max(0, MAX_LEAVES - len(queue))))


def _leaf(value: Any) -> bytes:
    """Bytes that are equal for equal leaves."""
    if isinstance(value, str):
        return b"=" + value.encode()
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value).encode()


def _last_user_text(value: Any) -> str:
    """What the user said last, in the bodies of the known families; empty for others."""
    if not isinstance(value, dict):
        return ""
    turns = next((value[name] for name in _TURNS if value.get(name)), "")
    if isinstance(turns, list):
        said = (turn for turn in reversed(turns) if isinstance(turn, dict) and turn.get("role") == "user")
        return _text(next(said, turns))
    return _text(turns)


def _text(value: Any) -> str:
    """The text in a message, in its parts, or in a list of either."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        return _text(next((value[name] for name in ("content", "parts", "text") if name in value), ""))
    return ""


def _grams(text: str) -> int:
    """The bit set of a text's three-character pieces, which serves languages that put no space between words too."""
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT // 2] + text[-MAX_TEXT // 2 :]
    text = f"  {text.casefold()}  " if text else ""
    pieces = {text[start : start + 3] for start in range(len(text) - 2)}
    bits = bytearray(_GRAM_BITS // 8)
    for piece in pieces:
        bit = crc32(piece.encode()) % _GRAM_BITS
        bits[bit // 8] |= 1 << bit % 8
    return int.from_bytes(bits)
