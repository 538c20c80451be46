"""What record and replay tools get wrong in the field, end to end: the rows T1 to T22 that no other test names.

T6–T8, T13, T18–T20 are also in tests/core/test_matching.py and test_deck.py, T9, T12 and T16 in the tests of secrets.
"""

import gzip
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mockllm import files
from mockllm.core.errors import CassetteError
from mockllm.core.response import End
from mockllm.library import Library
from tests.conftest import Launch
from tests.peers.client import RawClient, ask, get, post
from tests.peers.command import cli
from tests.peers.common import Ended
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Hang, Rst, Script, Send, Step, Until, Wait
from tests.peers.server import RawServer
from tests.shell.serving import recording, replaying, without_proxies
from tests.shell.tapes import plain, plain_wire, request, write

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def event(data: bytes) -> bytes:
    """An event in a chunk of its own."""
    text = b"data: %s\n\n" % data
    return b"%x\r\n%s\r\n" % (len(text), text)


def taped(folder: Path, script: Script, body: bytes = b"{}", *headers: str) -> Any:
    """What a client behind the recorder got, and the one tape of it."""
    with RawServer([script]) as server, recording(server.url, folder) as recorder:
        answer = ask(recorder.host, recorder.port, post("/v1/x", body, *headers), answer_end)
        (tape,) = recorder.tapes()
    return answer, tape


def test_t1_the_gaps_are_the_servers_at_every_speed(tmp_path: Path) -> None:
    script: list[Step] = [Send(SSE)]
    for number in b"12345":
        script += [Wait(150), Send(event(bytes([number])))]
    live, _ = taped(tmp_path, [*script, Wait(5), Send(LAST)])
    assert len(live.reads) >= 6
    for speed, low, high in ((1, 700_000, 3_000_000), (10, 60_000, 500_000), (0, 0, 300_000)):
        with replaying(tmp_path, speed=speed) as replay:
            again = ask(replay.host, replay.port, post("/v1/x", b"{}"), answer_end)
        assert again.wire == live.wire
        assert low <= again.reads[-1][0] <= high


@pytest.mark.parametrize(("ending", "end", "seen"), [(Fin(), End.FIN, Ended.FIN), (Rst(), End.RST, Ended.RST)])
def test_t2_a_cut_is_relayed_taped_and_played(ending: Step, end: End, seen: Ended, tmp_path: Path) -> None:
    live, tape = taped(tmp_path, [Send(SSE + event(b"1")), Wait(20), ending])
    assert (live.end, tape.response.end) == (seen, end)
    with replaying(tmp_path, speed=0) as replay:
        again = ask(replay.host, replay.port, post("/v1/x", b"{}"))
    assert (again.wire, again.end) == (live.wire, seen)
    shown = cli("show", tmp_path).stdout
    assert end.value in shown


@pytest.mark.parametrize("status", [b"418 I'm a teapot", b"429 Too Many Requests", b"529 Overloaded"])
def test_t3_an_error_is_verbatim(status: bytes, tmp_path: Path) -> None:
    wire = b'HTTP/1.1 %s\r\nretry-AFTER: 1\r\nContent-Length: 13\r\n\r\n{"error":"x"}' % status
    live, _ = taped(tmp_path, [Send(wire)])
    assert live.wire == wire
    with replaying(tmp_path) as replay:
        assert ask(replay.host, replay.port, post("/v1/x", b"{}"), answer_end).wire == wire


def test_t4_a_client_that_leaves_stops_the_server_and_the_recorder_goes_on(tmp_path: Path) -> None:
    started = SSE + event(b"1")
    with RawServer([[Send(started), Hang()], [Send(OK)]]) as server, recording(server.url, tmp_path) as recorder:
        client = RawClient(recorder.host, recorder.port)
        client.send(post("/v1/x", b"{}"))
        client.read(len(started))
        client.leave()
        assert server.connection(0, closed=True, timeout_s=5).left is not None
        assert ask(recorder.host, recorder.port, get("/next"), answer_end).wire == OK
        left, whole = recorder.tapes(2)
    assert (left.response.end, left.response.wire, whole.response.end) == (End.CLIENT, started, End.COMPLETE)


def test_t5_an_sdk_that_closes_at_done_has_a_whole_answer(tmp_path: Path) -> None:
    go, seen = threading.Event(), SSE + event(b"1") + event(b"[DONE]")
    script = [Send(seen), Until(go), Send(LAST)]
    with RawServer([script]) as server, recording(server.url, tmp_path) as recorder:
        client = RawClient(recorder.host, recorder.port)
        client.send(post("/v1/x", b"{}"))
        client.read(len(seen))
        client.leave()
        time.sleep(0.05)
        go.set()
        (tape,) = recorder.tapes()
    assert (tape.response.end, tape.response.wire) == (End.COMPLETE, seen + LAST)


@pytest.mark.parametrize("body", [gzip.compress(b'{"a": 1}', mtime=0), bytes(range(256))])
def test_t10_a_binary_body_is_as_sent(body: bytes, tmp_path: Path) -> None:
    wire = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    live, tape = taped(tmp_path, [Send(wire)])
    assert (live.wire, tape.response.wire) == (wire, wire)
    assert "data64" in next(tmp_path.iterdir()).read_text(encoding="utf-8")


def test_t11_half_a_character_at_a_border_is_kept(tmp_path: Path) -> None:
    text = "data: é\n\n".encode()
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    live, tape = taped(tmp_path, [Send(head), Wait(20), Send(text[:7]), Wait(20), Send(text[7:] + b"\xff"), Fin()])
    assert live.wire == head + text + b"\xff"
    assert tape.response.wire == live.wire
    assert [data for _, data in tape.response.reads()][1:] == [text[:7], text[7:] + b"\xff"]


def test_t13_two_recordings_that_differ_in_the_last_message_are_both_kept(tmp_path: Path) -> None:
    with RawServer([[Send(OK)], [Send(OK.replace(b"ok", b"no"))]]) as server:
        with recording(server.url, tmp_path) as recorder:
            for text in (b'{"messages":[{"content":"a"}]}', b'{"messages":[{"content":"b"}]}'):
                ask(recorder.host, recorder.port, post("/v1/x", text), answer_end)
            recorder.tapes(2)
    with replaying(tmp_path) as replay:
        second = ask(replay.host, replay.port, post("/v1/x", b'{"messages":[{"content":"b"}]}'), answer_end)
    assert second.wire.endswith(b"no")


def test_t14_two_workers_at_once_and_a_port_that_is_taken(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "a.jsonl", request("/x", json=1), *plain("one"))
    one, two = launch("replay", tmp_path), launch("replay", tmp_path)
    for replay in (one, two):
        assert ask(replay.host, replay.port, post("/x", b"1"), answer_end).wire == plain_wire("one")
    taken = cli("replay", tmp_path, "--port", str(one.port))
    assert taken.status == 1
    assert taken.stderr.startswith(f"mockllm: port {one.port} on 127.0.0.1 is in use")
    assert taken.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "found"),
    [('[0,"data"', "no JSON"), ("nonsense", "a line that begins"), ('{"mockllm":2,"request":{}}', "format version 2")],
)
def test_t15_a_cassette_with_one_bad_line_is_refused_by_file_and_line(line: str, found: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", request(json=1), line, *plain("one"))
    with pytest.raises(CassetteError, match=f"{path}:2: found {found}.*; expected "):
        files.read_all(path)
    assert cli("check", path).stderr.startswith(f"mockllm: {path}:2: found {found}")


def test_t17_a_disk_that_takes_nothing_hurts_no_client(tmp_path: Path, launch: Launch) -> None:
    (tmp_path / "file").write_text("")
    with RawServer(lambda _: [Send(OK)]) as server:
        recorder = launch("record", server.url, "-o", tmp_path / "file" / "tapes")
        for _ in range(2):
            assert ask(recorder.host, recorder.port, get("/x"), answer_end).wire == OK
        finished = recorder.stop()
    assert finished.status == 1
    assert finished.stderr.count("cannot write") == 1
    assert "the recording is incomplete" in finished.stderr


def test_t20_what_nobody_asked_for_is_reported(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "a.jsonl", request("/x", json=1), *plain("one"), request("/y", json=1), *plain("two"))
    replay = launch("replay", tmp_path, "--fail-unused")
    ask(replay.host, replay.port, post("/x", b"1"), answer_end)
    finished = replay.stop()
    assert finished.status == 4
    assert finished.stderr.endswith(f"mockllm: {tmp_path}/a.jsonl:5 was never asked for\n")


def test_t21_a_server_that_refuses_is_a_502_and_nothing_on_tape(tmp_path: Path) -> None:
    with RawServer([]) as gone:
        url = gone.url
    with recording(url, tmp_path) as recorder:
        answer = ask(recorder.host, recorder.port, get("/x"), answer_end)
    assert answer.wire.startswith(b"HTTP/1.1 502 ")
    assert json.loads(answer.wire.partition(b"\r\n\r\n")[2])["error"]["code"] == "refused"
    assert list(tmp_path.iterdir()) == []


def test_t22_through_a_proxy_as_the_environment_says(tmp_path: Path) -> None:
    with RawServer([[Send(OK)]]) as proxy, recording("http://nothing.invalid/v1", tmp_path) as recorder:
        with without_proxies(HTTP_PROXY=proxy.url):
            assert ask(recorder.host, recorder.port, get("/x"), answer_end).wire == OK
        assert proxy.requests[0].startswith(b"GET http://nothing.invalid/v1/x HTTP/1.1\r\n")


def test_t18_ten_thousand_exchanges_cost_little(tmp_path: Path) -> None:
    for number in range(100):
        lines = [line for item in range(100) for line in (request(f"/{number}/{item}", json=1), *plain("x"))]
        write(tmp_path / f"{number:03}.jsonl", *lines)
    began = os.times()
    library = Library([tmp_path], print)
    spent = os.times()
    assert len(library) == 10_000
    assert (spent.user + spent.system) - (began.user + began.system) < 5
