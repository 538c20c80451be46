"""Whatever the bytes: an import gives exchanges that a cassette holds, or says in one line why not."""

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mockllm.core.cassette import loads
from mockllm.core.errors import MockllmError
from mockllm.core.http1 import scan
from mockllm.core.importers import AS, Given, read_capture
from mockllm.core.importers.dots import restored, restored_json
from mockllm.core.response import End
from mockllm.core.tape import dump
from tests.core.importers.traces import came, info, sent
from tests.core.nasties import NASTIES, Nasty, answers

TYPES = [b"text/event-stream", b"application/x-ndjson", b"application/json"]
EVENTS = st.lists(
    st.sampled_from([b"data: {}\n\n", b": x\n\n", b"data: [DONE]\n\n", b"data", b"\r\n", b"\n", "é".encode(), b"5"]),
    max_size=8,
).map(b"".join)


def imported_or_refused(data: bytes, **options: Any) -> None:
    try:
        found = read_capture(data, "cap", Given(**options))
    except MockllmError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    again = loads(b"".join(map(dump, found.exchanges)))
    assert [list(one.response.reads()) for one in again] == [list(one.response.reads()) for one in found.exchanges]
    assert [one.response.end for one in again] == [one.response.end for one in found.exchanges]
    assert all(note and "\n" not in note for note in found.notes)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "gap_us": st.sampled_from([0, 1, 20_000]),
        "framing": st.sampled_from(AS),
        "end": st.sampled_from(End),
        "method": st.sampled_from(["GET", "HEAD"]),
    },
)


@given(answers(), OPTIONS)
def test_printed_answers(found: tuple[str, bytes], options: dict[str, Any]) -> None:
    imported_or_refused(found[1], **options)


@given(st.one_of(EVENTS, st.binary(max_size=60), st.text(max_size=40).map(str.encode)), OPTIONS)
def test_bare_bodies(body: bytes, options: dict[str, Any]) -> None:
    imported_or_refused(body, **options)
    imported_or_refused(body, content_type="text/event-stream", **options)


@st.composite
def traces(draw: st.DrawFn) -> bytes:
    """What curl would have logged of any answer, in any pieces, with a few bytes changed or the end cut off."""
    method, wire = draw(answers())
    text = draw(st.booleans())
    stamp = draw(st.sampled_from([None, "10:00:00.000000"]))
    how: dict[str, Any] = {"text": text, "at": stamp}
    head, blank, body = wire.partition(b"\r\n\r\n")
    trace = sent(f"{method} /x HTTP/1.1\r\nHost: h\r\n\r\n".encode(), **how)
    trace += came(head + blank, **how)
    place = draw(st.integers(0, len(body)))
    trace += came(body[:place], "data", **how) + came(body[place:], "data", **how)
    trace += info(
        draw(st.sampled_from(["Connection #0 to host h left intact", "Closing connection 0", "Recv failure"])), at=stamp
    )
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(trace)))
        trace = trace[:place] + draw(st.sampled_from([b"", b"\n", b"0", b" "])) + trace[place + 1 :]
    return trace[: draw(st.sampled_from([len(trace), len(trace) // 2]))]


@given(traces(), st.sampled_from([None, *AS]))
def test_traces(trace: bytes, framing: Any) -> None:
    imported_or_refused(trace, framing=framing)


# 100 is left out on purpose, cookies are masked, and chunks that are none are taken for a body without them.
KEPT = [
    nasty
    for nasty in NASTIES
    if not re.search(rb"(?i)/1.1 100|cookie", nasty.wire) and (nasty.whole or b"chunked" not in nasty.wire)
]


@pytest.mark.parametrize("nasty", KEPT, ids=str)
def test_a_trace_of_a_nasty_answer_holds_its_bytes(nasty: Nasty) -> None:
    head, blank, body = nasty.wire.partition(b"\r\n\r\n")
    parts = sent(f"{nasty.method} /x HTTP/1.1\r\n\r\n".encode()), came(head + blank), came(body, "data")
    [exchange] = read_capture(b"".join(parts), "cap", Given()).exchanges
    assert exchange.response.wire == nasty.wire


@given(EVENTS, st.sampled_from([b"Transfer-Encoding: chunked\r\n", b""]))
def test_a_printed_stream_keeps_its_body(body: bytes, framing: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%b\r\n" % framing
    assume(not re.match(rb"5+\r?\n", body))  # a chunk's size
    [exchange] = read_capture(head + body, "cap", Given()).exchanges
    assert scan(exchange.response).body == body


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "text",
    [
        b'"' + b'\\"' * 300_000 + b"." * 100_000,
        b"." * 300_000 + b"x",
        b'"' * 300_001 + b"." * 300_000 + b"x",
        b"1." * 300_000,
    ],
    ids=["escapes", "dots", "quotes", "numbers"],
)
def test_dots_are_put_back_in_no_time(text: bytes, kind: bytes) -> None:
    assert len(restored(text, kind)) == len(text)  # quadratic time would run into the test's time-out
    assert restored_json(text) is None
