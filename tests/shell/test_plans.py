"""Plans are made once, kept while their file stays as it is, and know where each event ends on the wire."""

import asyncio
import gzip
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockllm import files, plans
from mockllm.bending import Bending
from mockllm.core.errors import MockllmError
from mockllm.core.http1 import scan
from mockllm.core.response import End, Response, Segment
from mockllm.plans import Plans, Wanted, event_ends
from mockllm.play import plan
from tests.shell.tapes import plain, request, write

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n%s\r\n"


# --- what is kept


def made_by(calls: list[str]) -> Plans:
    def prepared(response: Response) -> Response:
        calls.append("made")
        return response

    return Plans(prepared, lambda response, _closest: response, plan)


def recording(path: Path) -> files.Recording:
    return next(iter(files.scan([path], lambda _: None)))[0]


@pytest.mark.parametrize("spec", ["", "header:name=x,value=y"])
def test_a_plan_is_made_anew_where_its_file_changed(spec: str, tmp_path: Path) -> None:
    calls: list[str] = []

    async def main() -> None:
        path = write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
        kept = made_by(calls)
        wanted = Wanted(recording(path), tuple(step.fault for step in Bending.parse([spec])))
        for text in ("one", "another", "one"):
            write(path, request(json=1), *plain(text))
            os.utime(path, (0, len(calls) + 1))
            for _ in range(2):
                assert (await kept.get(wanted)).plan.buffer.endswith(b"\r\n\r\n" + text.encode())
            assert kept._size == sum(plans._cost(made) for _, made in kept._kept.values())
        path.unlink()
        for _ in range(2):
            with pytest.raises(MockllmError, match="no such file"):
                await kept.get(wanted)
        assert kept._size == sum(plans._cost(made) for _, made in kept._kept.values())

    asyncio.run(main())
    assert len(calls) == 3


def test_what_was_played_last_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def main() -> None:
        path = write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
        kept, one = made_by(calls), Wanted(recording(path))
        monkeypatch.setattr(plans, "MAX_PLANS", 2.5 * plans._cost(await kept.get(one)))
        faults = [Bending.parse([f"header:name=x,value={number}"])[0].fault for number in range(2)]
        others = [Wanted(one.recording, (fault,)) for fault in faults]
        for wanted in (others[0], one, others[1], one):
            await kept.get(wanted)
        assert list(kept._kept) == [others[1], one]

    asyncio.run(main())
    assert len(calls) == 3


# --- where events end

EVENTS = st.lists(st.sampled_from(["a", "", "x" * 20, "\u2028", "{}"]), max_size=6)
CUTS = st.lists(st.integers(1, 40), max_size=12)


def chunked(body: bytes, cuts: list[int], head: bytes) -> Response:
    """The body in chunks of these sizes, each in a read of its own."""
    segments, start = [Segment(0, before=head)], 0
    for size in [*cuts, max(1, len(body))]:
        data = body[start : start + size]
        start += size
        if data:
            segments.append(Segment(len(segments), data, b"%x\r\n" % len(data), b"\r\n"))
    segments.append(Segment(len(segments), before=b"0\r\n\r\n"))
    return Response(tuple(segments), End.COMPLETE, len(segments), method="POST")


def counted(response: Response, whole: Callable[[bytes], int]) -> list[int]:
    """How many events a client has after each byte of the response: read anew for each, and so surely."""
    wire = response.wire
    found = []
    for stop in range(len(wire) + 1):
        prefix = Response((Segment(0, before=wire[:stop]),), End.FIN, 0, method="POST")
        found.append(whole(scan(prefix).body))
    return found


@settings(max_examples=40)
@given(EVENTS, CUTS)
def test_events_end_where_a_client_has_them(events: list[str], cuts: list[int]) -> None:
    body = b": comment\n\n" + "".join(f"data: {event}\n\n" for event in events).encode() + b"data: unfinished"
    response = chunked(body, cuts, HEAD % (b"text/event-stream", b""))
    ends = event_ends(scan(response))
    seen = counted(response, lambda so_far: so_far.count(b"\n\n") - (so_far.startswith(b": comment\n\n")))
    for stop, count in enumerate(seen):
        assert sum(end <= stop for end in ends) == count
    assert len(ends) == len(events)


@settings(max_examples=40)
@given(EVENTS, CUTS, st.booleans())
def test_lines_of_json_end_so_too_a_last_one_without_its_end_included(
    events: list[str], cuts: list[int], ended: bool
) -> None:
    lines = [json.dumps(event) for event in [*events, "last"]]
    body = "\n".join(lines).encode() + (b"\n" if ended else b"")
    response = chunked(body, cuts, HEAD % (b"application/x-ndjson", b""))
    ends = event_ends(scan(response))
    assert len(ends) == len(lines)
    seen = counted(response, lambda so_far: so_far.count(b"\n"))
    for stop, count in enumerate(seen):
        assert sum(end <= stop for end in ends[: None if ended else -1]) == count
    if not ended:
        assert response.wire[ends[-1] :] in (b"\r\n0\r\n\r\n", b"0\r\n\r\n")


@given(EVENTS, CUTS, st.sampled_from([b"gzip", b"GZIP", b"deflate"]))
def test_events_of_a_compressed_body_end_with_the_piece_that_completes_them(
    events: list[str], cuts: list[int], coding: bytes
) -> None:
    text = "".join(f"data: {event}\n\n" for event in events).encode()
    body = zlib.compress(text) if coding == b"deflate" else gzip.compress(text, mtime=0)
    response = chunked(body, cuts, HEAD % (b"text/event-stream", b"Content-Encoding: %s\r\n" % coding))
    ends = event_ends(scan(response))
    assert len(ends) == len(events)
    assert list(ends) == sorted(ends)
    data_ends = set()
    offset = 0
    for segment in response.segments:
        data_ends.add(offset + len(segment.before) + len(segment.data))
        offset += len(segment.wire)
    assert set(ends) <= data_ends


@pytest.mark.parametrize(
    "response",
    [
        chunked(b"data: 1\n\n", [], HEAD % (b"text/plain", b"")),
        chunked(b"data: 1\n\n", [], HEAD % (b"text/event-stream", b"Content-Encoding: br\r\n")),
        chunked(b"data: 1\n\n", [], HEAD % (b"text/event-stream", b"Content-Encoding: gzip\r\n")),
        chunked(b"data: 1\n\n", [], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Response((Segment(0, before=b"HTTP/1.1 200 O"),), End.FIN, 0),
        Response((), End.RST, 0),
    ],
)
def test_what_has_no_events(response: Response) -> None:
    assert event_ends(scan(response)) == ()


def test_identity_is_no_compression() -> None:
    response: Any = chunked(b"data: 1\n\n", [], HEAD % (b"text/event-stream", b"Content-Encoding: Identity\r\n"))
    assert len(event_ends(scan(response))) == 1
