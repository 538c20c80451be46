"""The journal says what clients did: all fields, who left and when, what can be asked for, and within which bounds."""

import asyncio
import json
import re
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm import files, journal
from mockllm.core.errors import MockllmError
from mockllm.core.exchange import Request
from mockllm.journal import Entry, Filter, Journal
from tests.peers.client import RawClient, ask, get, post
from tests.peers.common import Ended, now_us
from tests.peers.framing import answer_end
from tests.peers.nginx import nginx, nginx_before
from tests.shell.serving import replaying
from tests.shell.tapes import CHUNKED_HEAD, chunk, head, plain, request, stream, stream_wire, write

ASKED = Request("POST", b"/v1/chat?x=1", (), b'{"a":1}')
EVERY = Filter()


# --- entries


def test_all_that_an_entry_says(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "# mine", request("/v1/chat", json={"model": "m"}), *stream("one", "two", gap_ms=1))
    headers = ["Last-Event-ID: 7", "Authorization: Bearer s3cret"]
    with replaying(tmp_path, faults="crlf+bom:times=0") as replay:
        before = time.time()
        ask(replay.host, replay.port, post("/~session=t/v1/chat?key=s3cret", b'{"model": "m"}', *headers), answer_end)
        (entry,) = replay.entries()
    at = entry.pop("at")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at)
    numbers = [entry.pop(f"{name}_ms") for name in ("late_max", "late_median", "duration")]
    assert 0 <= numbers[1] <= numbers[0] < numbers[2]
    assert 2 <= numbers[2] < (time.time() - before) * 1000 + 1
    assert entry == {
        "number": 1,
        "session": "t",
        "request": {
            "method": "POST",
            "target": "/v1/chat?key=[redacted]",
            "headers": [
                ["Host", "peer"],
                ["Content-Type", "application/json"],
                ["Last-Event-ID", "7"],
                ["Authorization", "[redacted]"],
                ["Content-Length", "14"],
            ],
            "last_event_id": "7",
            "json": {"model": "m"},
        },
        "match": "exact",
        "miss": False,
        "recording": f"{tmp_path}/a.jsonl:2",
        "faults": [
            {"fault": "crlf", "fired": True, "effect": True, "why": None},
            {"fault": "bom:times=0", "fired": False, "effect": False, "why": None},
        ],
        "message": None,
        "status": 200,
        "ended": True,
        "stream_status": "complete",
        "bytes_sent": len(stream_wire("one\r", "two\r")) + 2,
        "events_sent": 2,
        "left_after_ms": None,
        "attempt": 1,
        "since_last_ms": None,
    }


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", {}),
        (b'{"a": 1}', {"json": {"a": 1}}),
        (b"not JSON", {"text": "not JSON"}),
        (b"\xff", {"base64": "/w=="}),
        (b"[" * 60_000, {"text": "[" * 60_000}),
        (b"[" * 900 + b"]" * 900, None),
        (b"x" * (journal.MAX_BODY + 1), {"body_bytes": journal.MAX_BODY + 1}),
        (None, {"body_bytes": None}),
    ],
)
def test_how_a_body_is_shown(body: bytes | None, shown: dict[str, Any] | None) -> None:
    kept: list[str] = []
    told = Journal(kept.append)
    entry = told.begin("s", Request("POST", b"/", (), body))
    told.end(entry, 1)
    document = entry.to_json()["request"]
    assert json.loads(kept[0])["request"] == document
    if shown is not None:
        assert document == {"method": "POST", "target": "/", "headers": [], **shown}


def test_a_large_body_is_not_kept_in_memory() -> None:
    entry = Journal().begin("s", Request("POST", b"/", (), b"x" * 1_000_000))
    assert entry.request.body is None
    assert entry.body_bytes == 1_000_000


def test_what_is_no_text_is_shown_as_base64() -> None:
    shown = Journal().begin("s", Request("GET", b"/\xff", ((b"Last-Event-ID", b"\xfe"),))).to_json()["request"]
    assert shown["target"] == {"base64": "L/8="}
    assert shown["headers"] == [["Last-Event-ID", {"base64": "/g=="}]]
    assert shown["last_event_id"] == {"base64": "/g=="}


@pytest.mark.parametrize(
    ("which", "taken"),
    [
        (EVERY, [1, 2, 3, 4]),
        (Filter(session="a"), [1, 3]),
        (Filter(session="c"), []),
        (Filter(path="/v1/chat"), [1, 2]),
        (Filter(path="/v1/chat?x=1"), []),
        (Filter(miss=True), [2, 3]),
        (Filter(miss=False), [1, 4]),
        (Filter(ended=True), [1, 2]),
        (Filter(ended=False), [3, 4]),
        (Filter(after=2), [3, 4]),
        (Filter("a", "/v1/chat", False, True, 0), [1]),
    ],
)
def test_filters(which: Filter, taken: list[int]) -> None:
    told = Journal()
    made = [
        ("a", b"/v1/chat?x=1", "exact", True),
        ("b", b"http://h:1/v1/chat", "miss", True),
        ("a", b"/v1/other", "exhausted", False),
        ("b", b"/v1/chat/", None, False),
    ]
    for session, target, match, ended in made:
        entry = told.begin(session, Request("POST", target))
        entry.match = match
        if ended:
            told.end(entry, 1)
    assert [entry.number for entry in told.entries(which)] == taken


def test_the_ring_is_bounded_and_the_file_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SIZE", 3)
    kept: list[str] = []
    told = Journal(kept.append)
    for _ in range(5):
        told.end(told.begin("s", ASKED), 1)
    assert [entry.number for entry in told.entries(EVERY)] == [3, 4, 5]
    assert [json.loads(line)["number"] for line in kept] == [1, 2, 3, 4, 5]


def test_what_is_deleted_is_forgotten_even_while_it_goes_on() -> None:
    kept: list[str] = []
    told = Journal(kept.append)
    running, _other = told.begin("a", ASKED), told.begin("b", ASKED)
    assert told.delete(Filter(session="a")) == 1
    told.end(running, 1)
    assert [entry.session for entry in told.entries(EVERY)] == ["b"]
    assert len(kept) == 1
    assert told.delete(EVERY) == 1
    assert told.delete(EVERY) == 0
    assert told.begin("a", ASKED).number == 3, "numbers are never used twice"


# --- waiting and following


def test_a_wait_ends_when_the_entry_is_there() -> None:
    async def main() -> None:
        told = Journal()
        ended = Filter(ended=True)
        waits = [asyncio.create_task(told.wait(ended, count, 60)) for count in (1, 2)]
        first = told.begin("s", ASKED)
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        told.end(first, 1)
        assert await waits[0] == [first]
        assert not waits[1].done()
        second = told.begin("s", ASKED)
        told.end(second, 1)
        assert await waits[1] == [first, second]
        assert await told.wait(ended, 2, 0) == [first, second]
        assert not told._waiting

    asyncio.run(main())


def test_a_wait_that_is_over_gives_what_there_is() -> None:
    async def main() -> None:
        told = Journal()
        assert await told.wait(EVERY, 1, 0) == []
        assert await told.wait(EVERY, 1, 0.01) == []
        entry = told.begin("s", ASKED)
        assert await told.wait(EVERY, 2, 0.01) == [entry]
        assert not told._waiting

    asyncio.run(main())


def test_a_wait_does_not_begin_anew_with_every_entry() -> None:
    async def main() -> None:
        told = Journal()
        waiting = asyncio.create_task(told.wait(EVERY, 1_000_000, 0.2))
        began = now_us()
        while not waiting.done():
            told.begin("s", ASKED)
            await asyncio.sleep(0.01)
            assert now_us() - began < 20_000_000
        assert await waiting

    asyncio.run(main())


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "read", "delete"]), st.integers(0, 5)), max_size=40))
def test_a_follower_misses_nothing_and_gets_nothing_twice(steps: list[tuple[str, int]]) -> None:
    """Whenever it reads, whatever ends meanwhile, in the order in which it ended; not what ended before it came."""

    async def main() -> None:
        told = Journal()
        told.end(told.begin("a", ASKED), 1)
        following, got, ended = told.follow(Filter(session="a")), [], []
        running: list[Entry] = []
        reading: asyncio.Task[Entry] | None = None
        for what, which in steps:
            if what == "begin":
                running.append(told.begin("ab"[which % 2], ASKED))
            elif what == "end" and running:
                entry = running.pop(which % len(running))
                told.end(entry, 1)
                ended += [entry] if entry.session == "a" else []
            elif what == "delete":
                told.delete(EVERY)
            elif what == "read":
                reading = reading or asyncio.ensure_future(anext(following))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if reading.done():
                    got.append(reading.result())
                    reading = None
        while len(got) < len(ended):
            got.append(await asyncio.wait_for(reading or anext(following), 5))
            reading = None
        assert got == ended
        if reading is not None:
            reading.cancel()

    asyncio.run(main())


def test_a_follower_that_is_too_far_behind_gets_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SIZE", 3)

    async def main() -> None:
        told = Journal()
        following = told.follow(EVERY)
        for _ in range(5):
            told.end(told.begin("s", ASKED), 1)
        assert [(await anext(following)).number for _ in range(3)] == [3, 4, 5]
        await close(following)

    asyncio.run(main())


async def close(following: AsyncIterator[Entry]) -> None:
    await following.aclose()  # type: ignore[attr-defined]


# --- the file


def test_the_file_gets_a_line_when_an_answer_is_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("before\n")
    write(tmp_path / "tapes" / "a.jsonl", request(json=1), *plain("one"))
    keep = files.LineFile(path, lambda _: None)
    with replaying(tmp_path / "tapes", journal=Journal(keep.write)) as replay:
        with RawClient(replay.host, replay.port) as client:
            for target in ("/x", "/none?key=s3cret"):
                client.send(post(target, b"1"))
                client.read(answer_end)
        entries = replay.entries(2)
    first, *lines = path.read_text().split("\n")[:-1]
    assert first == "before"
    assert [json.loads(line) for line in lines] == entries
    assert "s3cret" not in path.read_text()


def test_a_journal_of_its_own_file_is_for_its_user_alone(tmp_path: Path) -> None:
    files.LineFile(tmp_path / "j.jsonl", lambda _: None).write("x")
    assert (tmp_path / "j.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "j.jsonl").read_text() == "x\n"


def test_a_file_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(MockllmError, match=r"cannot write .*: is a directory"):
        files.LineFile(tmp_path, lambda _: None)
    said: list[str] = []
    full = files.LineFile(Path("/dev/full"), said.append)
    for _ in range(2):
        full.write("x")
    assert said == ["cannot write /dev/full: no space left on device; it is incomplete"]


# --- how answers end

SILENT: list[Any] = [CHUNKED_HEAD, [0, "data", "data: 1\n\n"], [0, "data", "data: 2\n"], [3_600_000, "data", "\n"]]
BEGUN = stream_wire("1").removesuffix(b"0\r\n\r\n") + chunk("data: 2\n")


@pytest.mark.parametrize(
    ("lines", "status", "events"),
    [
        (stream("1", "2"), "complete", 2),
        (plain("one"), "complete", 0),
        (
            [head(version="1.0", Content_Type="text/event-stream"), [0, "data", "data: 1\n\n"], [0, "end", "complete"]],
            "complete",
            1,
        ),
        (
            [head(Content_Length="3"), [0, "data", "abc"], [0, "end", "complete", {"then": "rst", "then_ms": 1}]],
            "complete",
            0,
        ),
        ([head(Content_Length="3"), [0, "data", "abc"], [0, "end", "client"]], "complete", 0),
        ([*SILENT[:2], [0, "end", "fin"]], "server_cut", 1),
        ([*SILENT[:2], [0, "end", "rst"]], "server_cut", 1),
        ([*SILENT[:3], [0, "end", "client"]], "server_cut", 1),
        ([[0, "end", "fin"]], "server_cut", 0),
    ],
)
def test_how_the_server_ended_it(lines: list[Any], status: str, events: int, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *lines)
    with replaying(tmp_path) as replay:
        answer = ask(replay.host, replay.port, post("/x", b"1", "Connection: close"))
        (entry,) = replay.entries()
    assert [entry["stream_status"], entry["left_after_ms"]] == [status, None]
    assert [entry["bytes_sent"], entry["events_sent"]] == [len(answer.wire), events]


@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
def test_how_and_when_the_client_left(rst: bool, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *SILENT, [0, "end", "fin"])
    with replaying(tmp_path) as replay:
        client = RawClient(replay.host, replay.port)
        client.send(post("/x", b"1"))
        client.read(len(BEGUN))
        (going_on,) = replay.control("GET", "journal?ended=false").document
        client.leave(rst=rst)
        (entry,) = replay.entries()
    assert [going_on["stream_status"], going_on["match"], going_on["bytes_sent"]] == [None, "exact", len(BEGUN)]
    assert entry["stream_status"] == ("reset_by_client" if rst else "client_gone")
    assert [entry["bytes_sent"], entry["events_sent"]] == [len(BEGUN), 1]
    assert 0 < entry["left_after_ms"] <= entry["duration_ms"] < 20_000


def test_a_client_that_leaves_a_whole_answer_has_not_left_it(tmp_path: Path) -> None:
    """The server keeps the connection for another 40 ms and closes it then: nobody has to wait for that."""
    write(
        tmp_path / "a.jsonl", request(json=1), *plain("one")[:2], [0, "end", "complete", {"then": "fin", "then_ms": 40}]
    )
    with replaying(tmp_path) as replay:
        with RawClient(replay.host, replay.port) as client:
            client.send(post("/x", b"1"))
            client.read(answer_end)
        (entry,) = replay.entries()
    assert [entry["stream_status"], entry["left_after_ms"]] == ["complete", None]


def test_a_server_that_stops_has_cut_what_goes_on(tmp_path: Path) -> None:
    kept: list[str] = []
    write(tmp_path / "a.jsonl", request(json=1), *SILENT, [0, "end", "fin"])
    with replaying(tmp_path, journal=Journal(kept.append)) as replay:
        client = RawClient(replay.host, replay.port)
        client.send(post("/x", b"1"))
        client.read(len(BEGUN))
    assert client.read().end in (Ended.FIN, Ended.RST)
    (entry,) = map(json.loads, kept)
    assert [entry["stream_status"], entry["bytes_sent"], entry["events_sent"]] == ["server_cut", len(BEGUN), 1]


def test_an_answer_of_mockllms_own_is_no_stream(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    with replaying(tmp_path) as replay:
        ask(replay.host, replay.port, get("/none"), answer_end)
        (entry,) = replay.entries()
    assert [entry["stream_status"], entry["match"], entry["miss"], entry["status"]] == [None, "miss", True, 404]
    assert entry["message"].startswith("no recording answers GET /none; the nearest is")
    assert [entry["recording"], entry["late_max_ms"], entry["faults"]] == [None, None, []]


def test_attempts_are_counted_and_their_gaps_measured(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request(json=2), *plain("two"))
    with replaying(tmp_path, faults="ttfb:add=50ms,times=1") as replay, RawClient(replay.host, replay.port) as client:
        for body, wait_s in ((b"1", 0), (b" 1", 0.12), (b"2", 0), (b"1", 0)):
            time.sleep(wait_s)
            client.send(post("/x", body))
            client.read(answer_end)
        entries = replay.entries(4)
    assert [entry["attempt"] for entry in entries] == [1, 2, 1, 3]
    assert [entry["since_last_ms"] is None for entry in entries] == [True, False, True, False]
    assert entries[1]["since_last_ms"] >= 120, "from the end of the answer, not from its beginning"
    assert entries[3]["since_last_ms"] < entries[1]["since_last_ms"] + 10_000


def test_the_gap_is_not_known_while_the_last_attempt_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *SILENT, [0, "end", "fin"])
    with replaying(tmp_path) as replay:
        clients = [RawClient(replay.host, replay.port) for _ in range(2)]
        for client in clients:
            client.send(post("/x", b"1"))
            client.read(len(BEGUN))
        first, second = replay.control("GET", "journal").document
        for client in clients:
            client.leave()
    assert [first["attempt"], second["attempt"], second["since_last_ms"]] == [1, 2, None]


# --- live


def test_the_stream_tells_what_ends_from_the_first_byte_on(tmp_path: Path) -> None:
    """Nothing is lost between the moment the follower is answered and the first event."""
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    here = "127.0.0.1"
    with replaying(tmp_path) as replay:
        for session in "abcde":
            with RawClient(replay.host, replay.port) as follower:
                follower.send(get(f"/_mockllm/journal/stream?session={session}", host=here))
                opening = follower.read(lambda data: b"\r\n\r\n" in data).wire
                for name in ("other", session, session):
                    ask(replay.host, replay.port, post("/x", b"1", f"mockllm-session: {name}"), answer_end)
                told = opening + follower.read(lambda data: data.count(b"\ndata: ") == 2).wire
            assert b"content-type: text/event-stream" in told.lower()
            entries = [json.loads(line) for line in re.findall(rb"\ndata: (.*)\n\n", told)]
            assert [entry["session"] for entry in entries] == [session] * 2
            numbers = [int(number) for number in re.findall(rb"\nid: (\d+)\n", told)]
            assert numbers == [entry["number"] for entry in entries]
        for _ in range(500):
            if not replay.app.journal._waiting:
                break
            time.sleep(0.01)
        assert not replay.app.journal._waiting, "followers that left are forgotten"


def test_a_wait_over_http_needs_no_sleep(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *SILENT, [0, "end", "fin"])
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as waiting:
        waiting.send(get("/_mockllm/journal/wait?ended=true&path=/x&timeout=60s", host="127.0.0.1"))
        client = RawClient(replay.host, replay.port)
        client.send(post("/x", b"1"))
        client.read(len(BEGUN))
        assert waiting.read(for_ms=20).wire == b""
        client.leave()
        answer = waiting.read(answer_end)
    assert answer.wire.startswith(b"HTTP/1.1 200 ")
    assert b'"client_gone"' in answer.wire


def delays_of_leaving(port: int, count: int, tmp_path: Path, replay: Any) -> list[float]:
    """How long after a client left during a stall that was seen (ms)."""
    delays = []
    for number in range(1, count + 1):
        client = RawClient("127.0.0.1", port)
        client.send(post("/x", b"1"))
        assert client.read(lambda data: b"data: 2\n" in data).end is Ended.OPEN
        left_at = now_us()
        client.leave()
        entry = replay.entries(number)[-1]
        assert entry["stream_status"] in ("client_gone", "reset_by_client")
        delays.append(entry["left_after_ms"] - (left_at - client.sent_at) / 1000)
    return delays


def test_a_client_that_leaves_during_a_stall_is_seen_within_100_ms(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *SILENT, [0, "end", "fin"])
    with replaying(tmp_path) as replay:
        assert statistics.median(delays_of_leaving(replay.port, 20, tmp_path, replay)) < 100


@pytest.mark.skipif(nginx() is None, reason="no nginx: apt-get install nginx-light")
def test_so_is_one_that_leaves_an_nginx_which_stands_between(tmp_path: Path) -> None:
    write(tmp_path / "tapes" / "a.jsonl", request(json=1), *SILENT, [0, "end", "fin"])
    with replaying(tmp_path / "tapes") as replay, nginx_before(replay.port, tmp_path / "nginx") as port:
        assert statistics.median(delays_of_leaving(port, 20, tmp_path, replay)) < 100
