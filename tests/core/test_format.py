"""`cassettes/FORMAT.md` is the contract: its examples render as it says, its tables name all that the code knows."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mockllm.core.cassette import BODY_KEYS, HEADER_KEYS, Asked, index, loads
from mockllm.core.exchange import Exchange
from mockllm.core.lines import CODES, END_KEYS, FRAMING_KEYS, HeadFields
from mockllm.core.response import End, Then
from mockllm.core.tape import VERSION, dump

TEXT = (Path(__file__).parents[2] / "cassettes" / "FORMAT.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```jsonl\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
RENDERED = [
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + CHUNKED + b"d\r\n: keepalive\n\n\r\n"
    b'16\r\ndata: {"choices":[]}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n',
    b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n"
    + CHUNKED
    + b"005;x=y\r\nhello\r\n1\r\n\xff\r\n00\r\nSum: 1\r\n\r\n",
    b'HTTP/1.0 200 OK\r\nContent-type: text/event-stream\r\n\r\ndata: {"choices": []}\n\ndata: [DONE]\n\n',
    b"HTTP/1.1 413\r\nContent-Length: 0\r\n\r\n",
]
"""The bytes of each exchange of the examples, in order."""


def exchanges() -> list[Exchange]:
    """All exchanges of all examples."""
    return [exchange for example in EXAMPLES for exchange in loads(example.encode(), "FORMAT.md")]


def tables() -> Iterator[tuple[str, set[str]]]:
    """The tables: the name of the first column, and what stands in it."""
    for table in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        title, _, *rows = [line.split("|")[1].strip() for line in table.splitlines()]
        yield title, {row.strip("`") for row in rows}


def test_every_example_renders_to_its_bytes() -> None:
    assert [exchange.response.wire for exchange in exchanges()] == RENDERED


def test_every_example_is_whole_and_may_be_joined_to_the_others() -> None:
    joined = "".join(EXAMPLES).encode()
    assert index(joined, "FORMAT.md").torn is None
    assert [exchange.response for exchange in loads(joined)] == [exchange.response for exchange in exchanges()]


def test_the_first_example_is_what_a_recorder_writes() -> None:
    assert b"".join(dump(exchange) for exchange in loads(EXAMPLES[0].encode())).decode() == EXAMPLES[0]


def test_the_examples_end_as_the_text_says() -> None:
    stream, spelled, closed, refused = (exchange.response for exchange in exchanges())
    assert (stream.then, stream.then_at - stream.end_at) == (Then.FIN, 400)
    assert [len(data) for _, data in spelled.reads()] == [28, 59, 4, 6, 14]
    assert (closed.end, closed.then, closed.then_at, closed.end_at) == (End.COMPLETE, Then.FIN, 242_300, 242_300)
    assert (refused.end, refused.then) == (End.COMPLETE, Then.OPEN)
    request = exchanges()[3].request
    assert (request.early, request.cut, request.body) == (True, True, b"RIFF")


def test_the_tables_name_all_that_the_code_knows_and_nothing_else() -> None:
    known = {
        "key": [
            {*HEADER_KEYS, "recorded", "upstream", "origin", "decoded"},
            {*Asked.__struct_fields__, *BODY_KEYS, "cut"},
            set(HeadFields.__struct_fields__),
            set(FRAMING_KEYS),
        ],
        "code": [set(CODES)],
        "value": [{end.value for end in End}],
        "option": [{*END_KEYS, "by"}],
    }
    found: dict[str, list[set[str]]] = {}
    for title, names in tables():
        found.setdefault(title, []).append(names)
    assert found == known


@pytest.mark.parametrize("then", list(Then))
def test_every_then_is_named(then: Then) -> None:
    assert f"`{then.value}`" in next(line for line in TEXT.splitlines() if line.startswith("| `then`"))


def test_the_version_is_the_codes() -> None:
    assert TEXT.startswith(f"# The cassette format, version {VERSION}\n")


def test_a_key_that_means_nothing_is_kept_and_changes_nothing() -> None:
    for key in ("recorded", "upstream", "origin"):
        [first, *_] = exchanges()
        bare = replace(first, meta={})
        assert loads(dump(replace(bare, meta={key: "x"}))) == [replace(bare, meta={key: "x"})]
