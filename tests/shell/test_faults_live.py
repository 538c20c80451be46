"""Where a live replay takes its faults from, which of them apply to a request, and what they do on a real socket."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from mockllm import bending, plans
from mockllm.bending import Bending
from mockllm.core.faults.bend import Bent
from mockllm.core.faults.bend import bend as real_bend
from mockllm.sessions import Session
from tests.conftest import Launch
from tests.peers.client import Answer, RawClient, ask, post
from tests.peers.common import Ended, now_us
from tests.peers.framing import answer_end
from tests.peers.script import Send
from tests.peers.server import RawServer
from tests.shell.serving import Replaying, recording, replaying, without_proxies
from tests.shell.tapes import chunk, head, plain, plain_wire, request, stream, stream_wire, write

LOOPS = ["asyncio", "uvloop"]
BEGUN = stream_wire().removesuffix(b"0\r\n\r\n")


@pytest.fixture(autouse=True)
def no_proxies() -> Iterator[None]:
    with without_proxies():
        yield


@pytest.fixture
def tapes(tmp_path: Path) -> Path:
    """POST /x of 1 is a stream of two events, of 2 a plain answer."""
    folder = tmp_path / "tapes"
    write(folder / "a.jsonl", request(json=1), *stream("1", "2"), request(json=2), *plain("{}"))
    return folder


def play(replay: Replaying, path: str = "/x", *headers: str, body: bytes = b"1") -> Answer:
    return ask(replay.host, replay.port, post(path, body, *headers), answer_end)


def mark(name: str, more: str = "") -> str:
    """A fault that shows as a header."""
    return f"header:name=mark-{name},value=x{more}"


def marks(answer: Answer) -> list[str]:
    """The marks in an answer, in their order."""
    return re.findall(r"\r\nmark-(\w+): x", answer.wire.decode())


# --- sources, and which one counts


@pytest.mark.parametrize(
    ("session", "prefix", "headers", "expected"),
    [
        (None, "", [], ["server", "again"]),
        ("session", "", [], ["session"]),
        ("session", "/~prefix", [], ["prefix"]),
        ("session", "", ["header"], ["header"]),
        ("session", "/~prefix", ["header"], ["prefix", "header"]),
        ("session", "/~one/~two", ["three", "four"], ["one", "two", "three", "four"]),
        (None, "/~prefix", [], ["prefix"]),
        (None, "", ["header"], ["header"]),
        ("session", "/~none", [], []),
        (None, "", ["none"], []),
        ("none", "", [], []),
        ("session", "/~one", ["none", "two"], ["two"]),
        ("session", "/~one/~none/~two", [], ["two"]),
        ("session", "", [""], ["session"]),
    ],
)
def test_a_requests_own_faults_replace_its_sessions_which_replace_the_servers(
    session: str | None, prefix: str, headers: list[str], expected: list[str], tapes: Path
) -> None:
    def spec(name: str) -> str:
        return name if name in ("none", "") else mark(name)

    path = re.sub(r"~(\w+)", lambda found: f"~{spec(found[1])}", prefix) + "/x"
    with replaying(tapes, faults=[mark("server"), mark("again")]) as replay:
        if session is not None:
            assert replay.control("PUT", "faults", spec(session)).status == 200
        answer = play(replay, path, *[f"mockllm-fault: {spec(name)}" for name in headers])
        assert marks(answer) == expected
        if session is not None:
            replay.control("DELETE", "faults")
        assert marks(play(replay)) == ["server", "again"]


def test_segments_of_sessions_and_faults_follow_each_other(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for path in ("/~session=t/~{}/~{}/x", "/~{}/~session=t/~{}/x", "/~{}+{}/~session=t/x"):
            assert marks(play(replay, path.format(mark("a"), mark("b")))) == ["a", "b"]
        entries = replay.entries(3)
    assert {entry["session"] for entry in entries} == {"t"}
    assert {entry["request"]["target"] for entry in entries} == {"/x"}
    assert entries[0]["faults"] == [
        {"fault": mark(name), "fired": True, "effect": True, "why": None} for name in ("a", "b")
    ]


def test_an_encoded_prefix_is_decoded_once(tapes: Path) -> None:
    with replaying(tapes) as replay:
        assert marks(play(replay, "/~header%3Aname%3Dmark-a%2Cvalue=x%2Bcrlf/x")) == ["a"]
        assert play(replay, "/~header:name=a,value=%2541/x").wire.startswith(b"HTTP/1.1 400 ")
        bent = play(replay, "/x", "mockllm-fault: header:name=mark-a,value=x%2520y").wire
        assert b"\r\nmark-a: x%20y\r\n" in bent, "a header's values are decoded once too"


def test_from_the_command_line(tapes: Path, tmp_path: Path, launch: Launch) -> None:
    journal = tmp_path / "j.jsonl"
    options = ["--fault", mark("one"), "--fault", "cut:at=1ev,end=rst", "--journal", journal, "--fail-unused"]
    replay = launch("replay", tapes, *options)
    answer = ask(replay.host, replay.port, post("/x", b"1"))
    assert (marks(answer), answer.end) == (["one"], Ended.RST)
    assert answer.wire.endswith(b"\r\n\r\n" + chunk("data: 1\n\n"))
    finished = replay.stop()
    assert finished.status == 4
    assert finished.stderr.splitlines()[-1] == f"mockllm: {tapes}/a.jsonl:7 was never asked for"
    (line,) = journal.read_text().splitlines()
    assert json.loads(line)["stream_status"] == "server_cut"


def test_a_recorder_does_not_interpret_prefixes(tmp_path: Path) -> None:
    with RawServer(lambda _: [Send(plain_wire("one"))]) as server, recording(server.url, tmp_path) as recorder:
        asked = post("/~session=t/~crlf/x", b"1", "mockllm-fault: reset")
        assert ask(recorder.host, recorder.port, asked, answer_end).wire == plain_wire("one")
        (tape,) = recorder.tapes()
    assert server.requests[0].startswith(b"POST /~session=t/~crlf/x HTTP/1.1\r\n")
    assert b"mockllm-fault" not in server.requests[0]
    assert tape.request.target == b"/~session=t/~crlf/x"


# --- wrong ones


def refused(replay: Replaying, path: str = "/x", *headers: str) -> dict[str, Any]:
    """The error, which stands in the journal too."""
    answer = play(replay, path, *headers)
    assert answer.wire.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nx-should-retry: false\r\n" in answer.wire
    error: dict[str, Any] = json.loads(answer.wire.partition(b"\r\n\r\n")[2])["error"]
    entry = replay.entries()[0]
    assert [entry["match"], entry["status"], entry["miss"]] == ["refused", 400, False]
    assert [entry["message"], entry["recording"], entry["stream_status"]] == [error["message"], None, None]
    assert error["message"] in replay.log.wait(1)[0]
    return error


@pytest.mark.parametrize(
    ("path", "headers", "said"),
    [
        ("/~crlff/x", [], "fault spec, character 1: unknown fault 'crlff'; the nearest is 'crlf'"),
        ("/~session=s/~crlf+cut:at=x/x", [], "fault spec, character 10: at='x'; expected 3ev, 12b, 50pct or a time"),
        ("/~crlf/x", ["mockllm-session: s", "mockllm-fault: cut"], "fault spec, character 9: cut needs at="),
        ("/x", ["mockllm-session: s", "mockllm-fault: \xff"], "fault spec, character 1: unknown fault"),
    ],
)
def test_a_wrong_spec_is_a_400_that_names_it(path: str, headers: list[str], said: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        error = refused(replay, path, *headers)
        assert error["message"].startswith(said)
        assert error["type"] == "mockllm_bad_fault"
        entry = replay.entries()[0]
        assert entry["request"]["target"] == "/x"
        assert entry["session"] == ("default" if path == "/~crlff/x" else "s")
        assert play(replay).wire == stream_wire("1", "2"), "nothing was counted"


@pytest.mark.parametrize("path", ["/~comment:text=a%20b/x", "/~crlf:path=a/x", "/~/x", "/~%E2%9C%93/x"])
def test_what_a_prefix_cannot_say_is_a_400_that_points_to_the_header(path: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        error = refused(replay, path)
        assert "use the header mockllm-fault or PUT /_mockllm/faults" in error["message"]
        assert error["type"] == "mockllm_bad_prefix"
        assert replay.entries()[0]["request"]["target"] == path


# --- counting


def fired(replay: Replaying, count: int, path: str = "/x", *headers: str) -> list[bool]:
    """For each of so many requests whether the one mark is there."""
    return [bool(marks(play(replay, path, *headers))) for _ in range(count)]


def test_times_and_skip_count_for_each_session_and_each_spec(tapes: Path) -> None:
    once, second = mark("a", ",times=1"), mark("a", ",skip=1,times=1")
    with replaying(tapes, faults=once) as replay:
        assert fired(replay, 2) == [True, False]
        assert fired(replay, 2, "/~session=t/x") == [True, False]
        for spec, expected in ((once, [False, False]), (second, [False, True, False])):
            assert fired(replay, len(expected), "/x", f"mockllm-fault: {spec}") == expected
        assert fired(replay, 3, f"/~session=t/~{second}/x") == [False, True, False]
        assert fired(replay, 2, f"/~crlf/~{once}/x") == [True, False], "as another spec it counts for itself"
        assert fired(replay, 1) == [False]


def test_only_requests_of_the_path_count(tapes: Path) -> None:
    write(tapes / "b.jsonl", request("/y", json=1), *plain("y"))
    with replaying(tapes, faults=mark("a", ",path=/y*,times=1,skip=1")) as replay:
        assert fired(replay, 2) == [False, False]
        seen = [fired(replay, 1, path)[0] for path in ("/y", "/x", "http://h:1/y", "/y")]
        assert seen == [False, False, True, False]


def test_requests_that_no_recording_answers_do_not_count(tapes: Path) -> None:
    with replaying(tapes, faults=mark("a", ",times=1")) as replay:
        assert play(replay, "/none").wire.startswith(b"HTTP/1.1 404 ")
        assert fired(replay, 2) == [True, False]


def test_a_draw_is_the_same_in_every_run_and_another_with_another_seed(tapes: Path) -> None:
    runs = []
    for seed in (1, 1, 2):
        with replaying(tapes, faults=mark("a", f",p=0.5,seed={seed}")) as replay:
            runs.append(fired(replay, 16))
    assert runs[0] == runs[1] != runs[2]
    assert all({True, False} == set(run) for run in runs)


def test_the_journal_says_which_fired(tapes: Path) -> None:
    with replaying(tapes, faults=[mark("a", ",times=1"), mark("b")]) as replay:
        fired(replay, 2)
        first, second = replay.entries(2)
    assert [one["fired"] for one in first["faults"]] == [True, True]
    assert second["faults"] == [
        {"fault": mark("a", ",times=1"), "fired": False, "effect": False, "why": None},
        {"fault": mark("b"), "fired": True, "effect": True, "why": None},
    ]


# --- without effect


def test_a_fault_without_effect_is_said_once_and_in_every_entry(tapes: Path) -> None:
    with replaying(tapes, faults=f"keepalive:every=1s,style=mlx+{mark('a')}") as replay:
        for _ in range(2):
            answer = play(replay, body=b"2")
            assert marks(answer) == ["a"], "the other one is played"
        play(replay, "/~cut:at=99ev/x")
        entries = replay.entries(3)
        said = replay.said.wait(2)
    assert len(said) == 2
    assert re.fullmatch(rf"fault keepalive:\S+ had no effect on {tapes}/a\.jsonl:7: \S.*", said[0])
    assert said[1].startswith(f"fault cut:at=99ev had no effect on {tapes}/a.jsonl:1: ")
    for entry in entries[:2]:
        keepalive, marked = entry["faults"]
        assert (keepalive["fired"], keepalive["effect"]) == (True, False)
        assert said[0].endswith(keepalive["why"])
        assert (marked["fired"], marked["effect"], marked["why"]) == (True, True, None)


def test_what_is_said_is_bounded_and_the_journal_still_has_it(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bending, "MAX_SAID", 2)
    said: list[str] = []
    faults = Bending((), said.append)
    for number in range(4):
        spec = Bending.parse([f"cut:at={90 + number}ev"])
        (told,) = faults.told(faults.fire(Session("s"), spec, "/"), ["why"], "a:1")
        assert told["why"] == "why"
    assert len(said) == 2


# --- time


def test_speed_and_the_cap_come_first_and_times_in_faults_are_real(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *stream("1", "2", gap_ms=3_600_000))
    fault = "ttft:add=60ms+keepalive:every=20ms,text=: ka"
    for options in ({"speed": 0.0}, {"speed": 1_000_000.0}, {"max_gap_us": 1_000}):
        with replaying(tmp_path, faults=fault.replace(" ", "%20"), **options) as replay:
            answer = play(replay)
        body_at = next(at for at, data in answer.reads if b"data: 1" in data)
        assert 50_000 <= body_at < 10_000_000  # the client began to count a little later
        assert answer.wire.count(b": ka") >= 2


# --- endings


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("end", "expected"), [("complete", Ended.OPEN), ("fin", Ended.FIN), ("rst", Ended.RST), ("hang", Ended.TIMEOUT)]
)
def test_every_ending_of_a_cut_on_a_socket(end: str, expected: Ended, loop: str, tapes: Path) -> None:
    wire = BEGUN + chunk("data: 1\n\n") + (b"0\r\n\r\n" if end == "complete" else b"")
    with replaying(tapes, faults=f"cut:at=1ev,end={end}", loop=loop) as replay:
        with RawClient(replay.host, replay.port) as client:
            client.send(post("/x", b"1"))
            answer = client.read(answer_end, for_ms=80 if end == "hang" else None)
    assert (answer.wire, answer.end) == (wire, expected)


@pytest.mark.parametrize(
    ("fault", "wires"),
    [
        ("split:bytes=2,gap=20ms", [b"1", b"2"]),
        ("split:inside=event,gap=20ms", None),
        ("framing:as=close", [b"data: 1\n\ndata: 2\n\n"]),
        ("framing:as=length", [b"\r\nContent-Length: 18\r\n", b"data: 1\n\ndata: 2\n\n"]),
        ("http:version=1.0", [b"HTTP/1.0 200 OK\r\n"]),
    ],
)
def test_segment_faults_on_a_socket(fault: str, wires: list[bytes] | None, tapes: Path) -> None:
    with replaying(tapes, faults=fault) as replay:
        answer = ask(replay.host, replay.port, post("/x", b"1", "Connection: close"))
        writes = [data for data in replay.writes if data]
    assert b"".join(writes) == answer.wire
    assert answer.end is Ended.FIN
    if fault.startswith("split"):
        assert len(writes) > 2, "each piece in a write of its own"
        assert len(answer.reads) > 2, "which arrive one by one"
        body = answer.wire.partition(b"\r\n\r\n")[2]
        assert re.sub(rb"[0-9a-f]\r\n(.*?)\r\n", rb"\1", body, flags=re.DOTALL) == b"data: 1\n\ndata: 2\n\n"
    for wire in wires or ():
        assert wire in answer.wire


def test_c30_an_idle_connection_is_closed_and_reset(tapes: Path) -> None:
    """A request that comes before that is answered first; the close then counts from its answer."""
    with replaying(tapes, faults="idle-close:after=150ms") as replay, RawClient(replay.host, replay.port) as client:
        for _ in range(2):
            client.send(post("/x", b"2"))
            answer = client.read(answer_end)
            assert answer.wire == plain_wire("{}")
        idle = client.read()
        assert (idle.wire, idle.end) == (b"", Ended.FIN)
        assert idle.end_at >= 150_000
    with replaying(tapes, faults="reset") as replay:
        answer = ask(replay.host, replay.port, post("/x", b"1"))
        assert (answer.wire, answer.end) == (b"", Ended.RST)


def test_an_idle_close_leaves_a_busy_connection_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    slow = [head(Content_Length="4"), [0, "data", "sl"], [300, "data", "ow"], [0, "end", "complete"]]
    write(tmp_path / "b.jsonl", request(json=2), *slow)
    with replaying(tmp_path, faults="idle-close:after=100ms,times=1") as replay:
        with RawClient(replay.host, replay.port) as client:
            for body, text in ((b"1", "one"), (b"2", "slow"), (b"1", "one")):
                client.send(post("/x", body))
                assert client.read(answer_end).wire == plain_wire(text)
            assert client.read(for_ms=150).end is Ended.TIMEOUT


# --- clients that try again


def chat_of(replay: Replaying) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{replay.url}/v1", api_key="k", timeout=15, max_retries=3)


def delta(text: str) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


@pytest.fixture
def chat_tape(tmp_path: Path) -> Path:
    return write(
        tmp_path / "chat.jsonl",
        request("/v1/chat/completions", body="any"),
        *stream(delta("Hel"), delta("lo"), "[DONE]", gap_ms=1),
    )


def hear(client: openai.OpenAI, got: list[str]) -> None:
    """Ask for a stream, and add every piece of its text as it comes."""
    messages: Any = [{"role": "user", "content": "hi"}]
    for part in client.chat.completions.create(model="m", messages=messages, stream=True):
        got += [choice.delta.content or "" for choice in part.choices]


def said_by(client: openai.OpenAI) -> str:
    got: list[str] = []
    hear(client, got)
    return "".join(got)


def test_c14_the_openai_sdk_waits_as_told_and_tries_again(chat_tape: Path) -> None:
    spec = "status:code=429,retry-after=1,times=1+status:code=529,skip=1,times=1"
    with replaying(chat_tape, faults=spec) as replay, chat_of(replay) as client:
        assert said_by(client) == "Hello"
        entries = replay.entries(3)
    assert [entry["status"] for entry in entries] == [429, 529, 200]
    assert [entry["attempt"] for entry in entries] == [1, 2, 3]
    assert entries[0]["since_last_ms"] is None
    assert entries[1]["since_last_ms"] >= 950, "Retry-After: 1"
    assert [[one["fired"] for one in entry["faults"]] for entry in entries] == [
        [True, False],
        [False, True],
        [False, False],
    ]


def test_c21_the_first_attempt_is_cut_and_the_second_is_whole(chat_tape: Path) -> None:
    with replaying(chat_tape, faults="cut:at=1ev,times=1") as replay, chat_of(replay) as client:
        got: list[str] = []
        with pytest.raises((openai.APIConnectionError, httpx.RemoteProtocolError)):
            hear(client, got)
        assert got == ["Hel"]
        assert said_by(client) == "Hello"
        first, second = replay.entries(2)
    assert [first["stream_status"], first["events_sent"], first["attempt"]] == ["server_cut", 1, 1]
    assert [second["stream_status"], second["events_sent"], second["attempt"]] == ["complete", 3, 2]


def test_c30_the_openai_sdk_tries_again_after_a_reset(chat_tape: Path) -> None:
    with replaying(chat_tape, faults="reset:times=1") as replay, chat_of(replay) as client:
        assert said_by(client) == "Hello"
        assert [entry["stream_status"] for entry in replay.entries(2)] == ["server_cut", "complete"]


# --- plans


def test_a_bent_plan_is_made_once_for_each_recording_and_spec(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def bend(response: Any, faults: Any) -> Bent:
        made.append(tuple(faults))
        return real_bend(response, faults)

    monkeypatch.setattr(plans, "bend", bend)
    with replaying(tapes, faults="crlf+bom:times=1") as replay:
        for session in ("a", "b", "a", "b"):
            play(replay, f"/~session={session}/x")
        for _ in range(2):
            play(replay, "/~split:bytes=1/x")
            play(replay, "/x", "mockllm-fault: split:bytes=1,gap=1ms")
            play(replay, "/~split:bytes=1/x", body=b"2")
    names = [[fault.name for fault in faults] for faults in made]
    assert names == [["crlf", "bom"], ["crlf"], ["split"], ["split"]]


def test_others_play_on_while_a_plan_is_bent(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that want the same wait for one making."""
    bending_now, go, made = threading.Event(), threading.Event(), []

    def bend(response: Any, faults: Any) -> Bent:
        if faults:
            made.append(faults)
            bending_now.set()
            assert go.wait(20)
        return real_bend(response, faults)

    monkeypatch.setattr(plans, "bend", bend)
    with replaying(tapes) as replay:
        clients = [RawClient(replay.host, replay.port) for _ in range(2)]
        for client in clients:
            client.send(post("/~split:bytes=9/x", b"1"))
        assert bending_now.wait(20)
        assert play(replay).wire == stream_wire("1", "2")
        go.set()
        for client in clients:
            with client:
                assert client.read(answer_end).end is Ended.OPEN
        assert play(replay, "/~split:bytes=9/x").wire.endswith(b"0\r\n\r\n")
    assert len(made) == 1


def test_bent_plans_are_kept_within_the_bound(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_PLANS", 20_000)
    with replaying(tapes) as replay:
        kept = replay.app._plans
        for number in range(40):
            play(replay, f"/~comment:text=c{number},at=0ev/x")
            assert kept._size <= 20_000
            assert kept._size == sum(plans._cost(made) for _, made in kept._kept.values())
        assert 2 < len(kept._kept) < 12


def test_a_replay_that_holds_streams_for_ever_stops_soon(tapes: Path) -> None:
    specs = ["keepalive:every=20ms,text=ka,hold=30s", "stall:at=1ev,for=forever", "cut:at=1ev,end=hang"]
    with replaying(tapes) as replay:
        clients = [RawClient(replay.host, replay.port) for _ in range(30)]
        for number, client in enumerate(clients):
            client.send(post(f"/~{specs[number % len(specs)]}/x", b"1"))
            assert b"data: 1" in client.read(lambda data: b"data: 1\n" in data).wire
        began = now_us()
    assert now_us() - began < 3_000_000
    for client in clients:
        assert client.read().end in (Ended.FIN, Ended.RST)


def test_a_replay_of_nothing_but_silence_can_be_asked_how_it_goes(tapes: Path) -> None:
    with replaying(tapes, faults="ttfb:add=60m") as replay, RawClient(replay.host, replay.port) as client:
        client.send(post("/x", b"1"))
        (entry,) = replay.control("GET", "journal/wait?timeout=10s").document
        assert [entry["ended"], entry["match"], entry["bytes_sent"]] == [False, "exact", 0]
        client.leave()
        (entry,) = replay.entries()
    assert [entry["stream_status"], entry["bytes_sent"]] == ["client_gone", 0]
