"""What answers a request that no recording answers: nobody, the nearest recording, or the real server."""

import json
import signal
import threading
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from mockllm import misses
from mockllm.cli import main
from mockllm.core.response import End
from mockllm.core.rules import parse_match
from tests.conftest import Launch
from tests.peers.client import Answer, RawClient, ask, get, post
from tests.peers.common import Ended
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Hang, Rst, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import Replaying, load, replaying
from tests.shell.tapes import plain, plain_wire, request, stream_wire, write

KEY = "sk-0123456789abcdef0123"


def real(_request: bytes) -> Script:
    return [Send(plain_wire("real"))]


def play(replay: Replaying, path: str = "/x", *headers: str, body: bytes = b"1") -> Answer:
    return ask(replay.host, replay.port, post(path, body, *headers), answer_end)


@pytest.fixture
def tapes(tmp_path: Path) -> Path:
    folder = tmp_path / "tapes"
    write(folder / "a.jsonl", request(json=1), *plain("one"), request(json=1), *plain("two"))
    return folder


# --- error, closest


def test_error_never_asks_anybody(tapes: Path) -> None:
    with RawServer(real) as server:
        tape = request("/y", json=1) | {"upstream": server.url}
        write(tapes / "b.jsonl", tape, *plain("from there"))
        with replaying(tapes) as replay:
            answer = play(replay, f"{server.url}/other")
            assert answer.wire.startswith(b"HTTP/1.1 404 ")
            assert b"\r\nmockllm-error: no-match\r\n" in answer.wire
            assert replay.entries()[0]["match"] == "miss"
        assert not server.connections


def test_closest_is_said_in_the_head_and_in_the_journal(tapes: Path) -> None:
    with replaying(tapes, closest=True) as replay:
        assert b"\r\nmockllm-match: closest\r\n" in play(replay, body=b"2").wire
        assert play(replay).wire == plain_wire("one"), "the closest one was not counted"
        assert play(replay, "/none").wire.startswith(b"HTTP/1.1 404 ")
        entries = replay.entries(3)
    assert [entry["match"] for entry in entries] == ["closest", "exact", "miss"]
    assert [entry["miss"] for entry in entries] == [False, False, True]
    assert entries[0]["recording"] == f"{tapes}/a.jsonl:1"


def test_closest_with_faults_says_so_too(tapes: Path) -> None:
    with replaying(tapes, closest=True, faults="status:code=503") as replay:
        wire = play(replay, body=b"2").wire
    assert wire.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nmockllm-match: closest\r\n" in wire


# --- exhausted


@pytest.mark.parametrize("closest", [False, True])
def test_exhausted_is_another_word_for_another_thing(closest: bool, tapes: Path) -> None:
    with replaying(tapes, repeat=False, closest=closest) as replay:
        wires = [play(replay).wire for _ in range(4)]
        assert play(replay, "/~session=t/x").wire == plain_wire("one")
        entries = replay.entries(5)
    assert wires[:2] == [plain_wire("one"), plain_wire("two")]
    for wire in wires[2:]:
        assert wire.startswith(b"HTTP/1.1 404 ")
        assert b"\r\nmockllm-error: exhausted\r\n" in wire
        error = json.loads(wire.partition(b"\r\n\r\n")[2])["error"]
        assert error["type"] == "mockllm_exhausted"
        assert error["message"].startswith("all recordings of POST /x were played; --exhausted repeat plays")
    assert [entry["match"] for entry in entries] == ["exact", "exact", "exhausted", "exhausted", "exact"]
    assert [entry["miss"] for entry in entries] == [False, False, True, True, False]
    assert (replay.app.misses, replay.app.exhausted) == (0, 2)


def test_repeats_are_named_in_the_journal(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for _ in range(3):
            play(replay)
        assert [entry["match"] for entry in replay.entries(3)] == ["exact", "exact", "repeat"]


# --- record, forward


def test_record_asks_the_server_and_plays_its_answer_from_then_on(tapes: Path) -> None:
    with RawServer(lambda _: [Send(stream_wire("real", "[DONE]"))]) as server:
        with replaying(tapes, upstream=f"{server.url}/base", keep=tapes) as replay:
            headers = [f"Authorization: Bearer {KEY}", "mockllm-session: t", "mockllm-fault: crlf"]
            wires = [play(replay, f"/~bom/v1/chat?key={KEY}", *headers, body=b'{"a": 1}').wire for _ in range(2)]
            entries = replay.entries(2)
        (asked,) = server.requests
    assert asked.startswith(f"POST /base/v1/chat?key={KEY} HTTP/1.1\r\n".encode())
    assert f"\r\nAuthorization: Bearer {KEY}\r\n".encode() in asked
    assert b"mockllm" not in asked
    assert asked.endswith(b'{"a": 1}')
    assert wires[0] == stream_wire("real", "[DONE]"), "live traffic is not bent"
    assert b"\xef\xbb\xbfdata: real\r\n\r\n" in wires[1], "its recording is"
    first, second = entries
    (tape,) = tapes.glob("000001-*.jsonl")
    assert [first["match"], first["status"], first["miss"]] == ["recorded", 200, False]
    assert [first["stream_status"], first["bytes_sent"], first["events_sent"]] == ["complete", len(wires[0]), 2]
    assert [second["match"], [one["effect"] for one in second["faults"]]] == ["exact", [True, True]]
    assert first["recording"] == second["recording"] == f"{tape}:1"
    assert KEY not in tape.read_text()
    assert "mockllm-" not in tape.read_text().lower()
    assert KEY not in json.dumps(entries)
    assert [entry["session"] for entry in entries] == ["t", "t"]
    assert tape.stat().st_mode & 0o777 == 0o600


def test_what_was_recorded_counts_as_played_and_other_requests_are_asked_again(tapes: Path) -> None:
    with RawServer(real) as server, replaying(tapes, upstream=server.url, keep=tapes) as replay:
        for body in (b"1", b"2", b"3", b"2"):
            play(replay, body=body)
        played = {one["recording"].split("/")[-1]: one["played"] for one in replay.control("GET", "exchanges").document}
        assert [str(one).split("/")[-1] for one in replay.app.desk.unused()] == ["a.jsonl:5"]
    assert len(server.requests) == 2
    assert played == {"a.jsonl:1": 1, "a.jsonl:5": 0, "000001-post-x.jsonl:1": 2, "000002-post-x.jsonl:1": 1}


def test_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "tapes"
    with RawServer(real) as server, replaying(folder, upstream=server.url, keep=folder) as replay:
        assert [play(replay).wire for _ in range(3)] == [plain_wire("real")] * 3
        assert len(load(folder)) == len(server.requests) == 1


def test_forward_keeps_nothing(tapes: Path) -> None:
    before = sorted(tapes.iterdir())
    with RawServer(real) as server, replaying(tapes, upstream=server.url) as replay:
        for _ in range(2):
            assert play(replay, "/~session=s/other?x=1", "mockllm-fault: crlf").wire == plain_wire("real")
        assert play(replay).wire == plain_wire("one")
        entries = replay.entries(3)
    assert len(server.requests) == 2
    assert server.requests[0].startswith(b"POST /other?x=1 HTTP/1.1\r\n")
    assert sorted(tapes.iterdir()) == before
    assert [entry["match"] for entry in entries] == ["forwarded", "forwarded", "exact"]
    assert [entry["recording"] for entry in entries[:2]] == [None, None]
    assert [entry["attempt"] for entry in entries[:2]] == [1, 2]


def test_a_request_in_chunks_is_passed_on_whole(tapes: Path) -> None:
    asked = get("/other", "Transfer-Encoding: chunked", method="POST") + b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
    with RawServer(real) as server, replaying(tapes, upstream=server.url) as replay:
        with RawClient(replay.host, replay.port) as client:
            for _ in range(2):
                client.send(asked)
                assert client.read(answer_end).wire == plain_wire("real")
            client.send(post("/x", b"1"))
            assert client.read(answer_end).wire == plain_wire("one"), "on the same connection"
        for got in server.requests:
            assert got.endswith(b"\r\n\r\n5\r\nabcde\r\n0\r\n\r\n")


def test_an_exhausted_request_asks_nobody(tapes: Path) -> None:
    with RawServer(real) as server, replaying(tapes, upstream=server.url, repeat=False) as replay:
        wires = [play(replay).wire for _ in range(3)]
        assert b"mockllm_exhausted" in wires[2]
    assert not server.requests


def test_a_server_that_is_not_there_is_a_502_in_the_journal(tapes: Path) -> None:
    with replaying(tapes, upstream="http://127.0.0.1:1", keep=tapes) as replay:
        wire = play(replay, body=b"2").wire
        (entry,) = replay.entries()
    assert wire.startswith(b"HTTP/1.1 502 ")
    assert [entry["match"], entry["status"], entry["stream_status"]] == ["recorded", 502, None]
    assert entry["recording"] is None
    assert len(list(tapes.iterdir())) == 1


@pytest.mark.parametrize(
    ("script", "status", "events", "ended"),
    [
        ([Send(stream_wire("1")[:-5]), Fin()], "server_cut", 1, Ended.FIN),
        ([Send(stream_wire("1")[:-5]), Rst()], "server_cut", 1, Ended.RST),
        (
            [Send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"), Fin()],
            "complete",
            1,
            Ended.FIN,
        ),
        ([Fin()], "server_cut", 0, Ended.FIN),
    ],
)
def test_how_the_real_server_ended_it(script: Script, status: str, events: int, ended: Ended, tapes: Path) -> None:
    with RawServer(lambda _: script) as server, replaying(tapes, upstream=server.url) as replay:
        answer = ask(replay.host, replay.port, post("/x", b"2"))
        (entry,) = replay.entries()
    sent = b"".join(step.data for step in script if isinstance(step, Send))
    assert (answer.wire, answer.end) == (sent, ended)
    assert [entry["stream_status"], entry["events_sent"], entry["bytes_sent"]] == [status, events, len(sent)]
    assert entry["left_after_ms"] is None


@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
def test_a_client_that_leaves_the_real_server(rst: bool, tapes: Path) -> None:
    begun = stream_wire("1")[:-5]
    with RawServer([[Send(begun), Hang()]]) as server, replaying(tapes, upstream=server.url, keep=tapes) as replay:
        client = RawClient(replay.host, replay.port)
        client.send(post("/x", b"2"))
        client.read(len(begun))
        client.leave(rst=rst)
        (entry,) = replay.entries()
        (tape,) = [tape for tape in load(tapes) if tape.request.body == b"2"]
    assert entry["stream_status"] == ("reset_by_client" if rst else "client_gone")
    assert entry["left_after_ms"] > 0
    assert [entry["bytes_sent"], entry["events_sent"], entry["status"]] == [len(begun), 1, 200]
    assert (tape.response.end, tape.response.wire) == (End.CLIENT, begun)


def test_a_client_that_leaves_before_the_real_server_answers(tapes: Path) -> None:
    asked = threading.Event()

    def silent(_request: bytes) -> Script:
        asked.set()
        return [Hang()]

    with RawServer(silent) as server, replaying(tapes, upstream=server.url) as replay:
        client = RawClient(replay.host, replay.port)
        client.send(post("/x", b"2"))
        assert asked.wait(10)
        client.leave()
        (entry,) = replay.entries()
    assert [entry["stream_status"], entry["status"], entry["bytes_sent"]] == ["client_gone", None, 0]


def test_of_a_long_answer_only_so_much_is_kept(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misses, "MAX_HEARD", 200)
    wire = stream_wire(*map(str, range(100)))
    script = [Send(wire[:150]), Send(wire[150:300]), Send(wire[300:])]
    with RawServer([script]) as server, replaying(tapes, upstream=server.url) as replay:
        assert play(replay, body=b"2").wire == wire
        (entry,) = replay.entries()
    assert [entry["stream_status"], entry["bytes_sent"], entry["status"]] == ["complete", len(wire), 200]
    assert 0 < entry["events_sent"] < 100


def test_a_body_that_is_too_large_is_not_passed_on_cut(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("mockllm.replay"), "MAX_BODY", 1000)
    with RawServer(real) as server, replaying(tapes, upstream=server.url) as replay:
        wire = play(replay, body=b"x" * 2000).wire
        assert wire.startswith(b"HTTP/1.1 400 ")
        assert b"is not passed on to the real server" in wire
        assert replay.entries()[0]["match"] == "refused"
        assert not server.requests


def test_a_replay_that_is_stopped_while_the_real_server_answers(tapes: Path) -> None:
    begun = stream_wire("1")[:-5]
    with RawServer([[Send(begun), Hang()]]) as server:
        with replaying(tapes, upstream=server.url, keep=tapes) as replay:
            client = RawClient(replay.host, replay.port)
            client.send(post("/x", b"2"))
            client.read(len(begun))
        assert client.read().end is Ended.RST
    (tape,) = [tape for tape in load(tapes) if tape.request.body == b"2"]
    assert tape.end_meta == {"by": "recorder"}


def test_two_that_miss_at_once_are_both_asked_for(tapes: Path) -> None:
    both = threading.Barrier(2)

    def at_once(_request: bytes) -> Script:
        both.wait(10)
        return [Send(plain_wire("real"))]

    with RawServer(at_once) as server:
        with replaying(tapes, upstream=server.url, keep=tapes) as replay:
            clients = [RawClient(replay.host, replay.port) for _ in range(2)]
            for client in clients:
                client.send(post("/x", b"2"))
            for client in clients:
                with client:
                    assert client.read(answer_end).wire == plain_wire("real")
            entries = replay.entries(2)
            assert [str(one).split("/")[-1] for one in replay.app.desk.unused()] == ["a.jsonl:1", "a.jsonl:5"]
            assert [play(replay, body=b"2").wire for _ in range(2)] == [plain_wire("real")] * 2
    assert {entry["match"] for entry in entries} == {"recorded"}
    assert len({entry["recording"] for entry in entries}) == 2


def test_other_matchers_decide_what_a_miss_is(tapes: Path) -> None:
    with replaying(tapes, rules=parse_match("method,path")) as replay:
        assert play(replay, body=b"anything").wire == plain_wire("one")


# --- from the command line


def test_exhausted_and_missed_requests_are_exit_status_3(tapes: Path, launch: Launch) -> None:
    replay = launch("replay", tapes, "--exhausted", "error")
    for body in (b"1", b"1", b"1", b"2"):
        ask(replay.host, replay.port, post("/x", body), answer_end)
    finished = replay.stop(signal.SIGTERM)
    assert finished.status == 3
    assert finished.stderr.splitlines()[-2:] == [
        "mockllm: 1 request matched no recording",
        "mockllm: 1 requests came after all their recordings were played",
    ]


def test_on_miss_record_from_the_command_line(tmp_path: Path, launch: Launch) -> None:
    folder = tmp_path / "new"
    with RawServer(real) as server:
        replay = launch("replay", folder, "--on-miss", "record", "--upstream", server.url, "--fail-unused")
        for _ in range(2):
            assert ask(replay.host, replay.port, get("/v1/models"), answer_end).wire == plain_wire("real")
        finished = replay.stop()
        assert (finished.status, len(server.requests)) == (0, 1)
    assert [path.name for path in folder.iterdir()] == ["000001-get-v1-models.jsonl"]


def test_a_tape_that_cannot_be_written_is_exit_status_1(tmp_path: Path, launch: Launch) -> None:
    (tmp_path / "file").touch()
    with RawServer(real) as server:
        replay = launch("replay", tmp_path / "file" / "tapes", "--on-miss", "record", "--upstream", server.url)
        assert ask(replay.host, replay.port, get("/"), answer_end).wire == plain_wire("real")
        finished = replay.stop()
    assert finished.status == 1
    assert "clients are served on, but the recording is incomplete" in finished.stderr
    assert finished.stderr.endswith("mockllm: the recording is incomplete: some tapes could not be written\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--on-miss", "record"], "--on-miss record needs the server to ask: --upstream http://"),
        (["--on-miss", "forward"], "--on-miss forward needs the server to ask"),
        (["--upstream", "http://127.0.0.1:1"], "--upstream is asked only with --on-miss record or forward"),
        (
            ["--on-miss", "record", "--upstream", "http://127.0.0.1:1"],
            "--on-miss record needs a folder among the paths",
        ),
        (["--fault", "crlff"], "fault spec, character 1: unknown fault 'crlff'; the nearest is 'crlf'"),
    ],
)
def test_usage_errors(args: list[str], said: str, tapes: Path) -> None:
    finished = CliRunner().invoke(main, ["replay", str(tapes / "a.jsonl"), *args])
    assert finished.exit_code == 2
    assert said in finished.stderr
