"""How a recording is played on a client's connection: its ending, its silence, and clients that are slow or leave."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mockllm import plans
from mockllm.core.exchange import Exchange
from mockllm.core.response import End
from mockllm.plans import Made, Wanted
from tests.peers.client import RawClient, ask, get, post
from tests.peers.common import Ended, now_us
from tests.peers.framing import answer_end
from tests.shell.serving import replaying, wait_until
from tests.shell.tapes import CHUNKED_HEAD, LAST, head, plain, plain_wire, request, write

LOOPS = ["asyncio", "uvloop"]
ASK = post("/x", b"1")
CLIENT: list[Any] = [0, "end", "client"]
RECORDER: list[Any] = [0, "end", "client", {"by": "recorder"}]


@pytest.mark.parametrize("end", [[CLIENT], [RECORDER], []], ids=["client", "recorder", "killed"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([head(Content_Length="3"), [0, "data", "abc"]], None),
        ([CHUNKED_HEAD, [0, "data", "abc"], LAST], None),
        ([head(status=204)], None),
        ([head(Content_Length="3"), [0, "data", "ab"]], Ended.FIN),
        ([CHUNKED_HEAD, [0, "data", "abc"]], Ended.FIN),
        ([CHUNKED_HEAD, [0, "data", "abc", {"before": "5\r\n", "after": ""}]], Ended.FIN),
        ([head(version="1.0"), [0, "data", "data: [DONE]\n\n"]], Ended.RST),
        ([head(version="1.0")], Ended.RST),
        ([[0, "wire", "HTTP/1.1 200 O"]], Ended.RST),
        ([[0, "wire", "garbage"]], Ended.RST),
        ([], Ended.RST),
    ],
)
def test_what_a_recorded_client_left_is_never_mistaken_for_a_whole_answer(
    lines: list[Any], expected: Ended | None, end: list[Any], tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *lines, *end)
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as client:
        client.send(ASK)
        answer = client.read(for_ms=60 if expected is None else None)
        assert answer.end is (expected or Ended.TIMEOUT)
        if expected is None:
            client.send(ASK)
            assert client.read(len(answer.wire)).wire == answer.wire
    with replaying(tmp_path, on_client=End.HANG) as replay, RawClient(replay.host, replay.port) as client:
        client.send(ASK)
        assert client.read(len(answer.wire)).wire == answer.wire
        assert client.read(for_ms=30).end is Ended.TIMEOUT


def test_keep_alive_pipelining_and_head(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request("/h", "HEAD"), head(), [0, "end", "complete"])
    write(tmp_path / "b.jsonl", request("/slow", json=1), head(Content_Length="1"), [40, "data", "1"], CLIENT)
    wire_h, wire_slow = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as client:
        client.send(post("/slow", b"1") + ASK + get("/h", method="HEAD") + get("/none") + ASK)
        wire = wire_slow + plain_wire("one") + wire_h
        assert client.read(len(wire)).wire == wire
        miss = client.read(answer_end).wire
        assert miss.startswith(b"HTTP/1.1 404 ")
        rest = client.read(lambda data: (miss + data).endswith(plain_wire("one")))
        assert rest.end is Ended.OPEN


@pytest.mark.parametrize("asked", [post("/x", b"1", "Connection: close"), post("/x", b"1", version="1.0")])
def test_a_client_that_will_not_use_the_connection_again_is_closed(asked: bytes, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    with replaying(tmp_path) as replay:
        answer = ask(replay.host, replay.port, asked)
    assert (answer.wire, answer.end) == (plain_wire("one"), Ended.FIN)


def test_an_early_answer_is_on_time_though_the_request_is_long(tmp_path: Path) -> None:
    """Its times count from the request's beginning; it cannot come before the request is known."""
    lines = [head(413, Content_Length="2"), [150, "data", "no"], [0, "request", {"text": "abcdef"}]]
    write(tmp_path / "a.jsonl", request(early=True), *lines, [0, "end", "complete"])
    asked = post("/x", b"abcdef")
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as client:
        client.send(asked[:-3])
        time.sleep(0.1)
        client.send(asked[-3:])
        answer = client.read(answer_end)
    assert answer.wire.endswith(b"no")
    assert answer.end_at < 120_000, "150 ms after the beginning is 50 ms after the end"


def test_a_client_that_leaves_during_its_upload(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    with replaying(tmp_path) as replay:
        with RawClient(replay.host, replay.port) as client:
            client.send(post("/x", b"1" * 100)[:-50])
        assert ask(replay.host, replay.port, ASK, answer_end).wire == plain_wire("one")
        assert len(replay.log.wait(1)) == 1
        assert replay.app.misses == 0


# --- slow readers


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("speed", [1.0, 0.0])
def test_a_slow_reader_is_waited_for(speed: float, loop: str, tmp_path: Path) -> None:
    piece = "0123456789abcdef" * 4096
    write(
        tmp_path / "a.jsonl", request(json=1), head(version="1.0"), *[[0.001, "data", piece]] * 300, [0, "end", "fin"]
    )
    wire = b"HTTP/1.0 200 OK\r\n\r\n" + piece.encode() * 300
    with replaying(tmp_path, loop=loop, speed=speed) as replay:
        with RawClient(replay.host, replay.port, rcvbuf=8192) as client:
            client.send(ASK)
            first = client.read(1000).wire
            written = -1
            while written != len(replay.writes):
                written = len(replay.writes)
                time.sleep(0.1)
            assert sum(map(len, replay.writes)) < len(wire) / 2, "the rest waits on disk and in one buffer"
            answer = client.read()
        assert first + answer.wire == wire
        assert answer.end is Ended.FIN


@pytest.mark.parametrize("loop", LOOPS)
def test_a_reset_comes_after_everything_was_delivered(loop: str, tmp_path: Path) -> None:
    body = "0123456789abcdef" * 8192
    lines = [head(Content_Length="999999"), [0, "data", body], [0, "end", "rst"]]
    write(tmp_path / "a.jsonl", request(json=1), *lines)
    with replaying(tmp_path, loop=loop) as replay, RawClient(replay.host, replay.port, rcvbuf=4096) as client:
        client.send(ASK)
        pieces = [client.read(4096)]
        while pieces[-1].end is Ended.OPEN:
            time.sleep(0.002)
            pieces.append(client.read(4096))
    assert b"".join(piece.wire for piece in pieces).endswith(b"\r\n\r\n" + body.encode())
    assert pieces[-1].end is Ended.RST


# --- clients that leave


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
def test_a_client_that_leaves_in_silence_is_noticed_and_freed(rst: bool, loop: str, tmp_path: Path) -> None:
    begun = head(version="1.0")
    write(tmp_path / "a.jsonl", request(json=0), begun, [0, "end", "hang"])
    write(tmp_path / "b.jsonl", request(json=1), begun, [3_600_000, "data", "late"], [0, "end", "complete"])
    with replaying(tmp_path, loop=loop) as replay:
        clients = [RawClient(replay.host, replay.port) for _ in range(20)]
        for number, client in enumerate(clients):
            client.send(post("/x", b"%d" % (number % 2)))
            client.read(19)
        assert replay.alive() == 20
        left_at = now_us()
        for client in clients:
            client.leave(rst=rst)
        lines = replay.log.wait(20)
        assert now_us() - left_at < 2_000_000
        assert all(line.endswith(", the client left") for line in lines)
        wait_until(lambda: replay.alive() == 0)
        clock: Any = replay.app._clock
        assert clock.waiting == 0


def test_a_client_that_leaves_while_the_nearest_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    looking, go = threading.Event(), threading.Event()

    def nearest(*_: object, **__: object) -> None:
        looking.set()
        assert go.wait(5)

    with replaying(tmp_path) as replay:
        monkeypatch.setattr(replay.library, "nearest", nearest)
        with RawClient(replay.host, replay.port) as client:
            client.send(get("/none"))
            assert looking.wait(5)
            # meanwhile others are served
            assert ask(replay.host, replay.port, ASK, answer_end).wire == plain_wire("one")
        go.set()
        assert "404" in replay.log.wait(2)[1]


# --- plans


def test_plans_are_kept_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_PLANS", 7000)
    for name in "abcd":
        write(tmp_path / f"{name}.jsonl", request(f"/{name}", json=1), *plain(name * 1000))
    made: list[str] = []
    with replaying(tmp_path) as replay:
        real = replay.app._plans._make

        def make(wanted: Wanted, exchange: Exchange) -> Made:
            made.append(exchange.response.wire[-1:].decode())
            return real(wanted, exchange)

        monkeypatch.setattr(replay.app._plans, "_make", make)
        for name in "abababcdaa":
            assert ask(replay.host, replay.port, post(f"/{name}", b"1"), answer_end).wire == plain_wire(name * 1000)
            assert replay.app._plans._size <= 7000
    assert "".join(made) == "abcda"


def test_a_plan_larger_than_the_bound_is_played_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_PLANS", 10)
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request(json=2), *plain("two"))
    with replaying(tmp_path) as replay:
        for body, text in ((b"1", "one"), (b"2", "two"), (b"1", "one")):
            assert ask(replay.host, replay.port, post("/x", body), answer_end).wire == plain_wire(text)
        assert len(replay.app._plans._kept) == 1


def test_a_replay_that_is_stopped_in_the_middle(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), head(version="1.0"), [3_600_000, "data", "1"], [0, "end", "fin"])
    with replaying(tmp_path) as replay:
        client = RawClient(replay.host, replay.port)
        client.send(ASK)
        client.read(19)
        began = now_us()
    assert now_us() - began < 3_000_000
    assert client.read().end in (Ended.FIN, Ended.RST)


def test_an_answer_that_came_before_the_body_was_sent_comes_so_again(tmp_path: Path) -> None:
    lines = [head(status=413, Content_Length="4"), [0, "data", "much"], [0, "request", {"text": "beg", "cut": True}]]
    early = {**request(method="POST", target="/up"), "early": True}
    early["request"] = {key: value for key, value in early["request"].items() if key not in ("json", "text")}
    write(tmp_path / "a.jsonl", early, *lines, [0, "end", "complete", {"then": "fin", "then_ms": 1}])
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as client:
        client.send(b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\nbegi")
        answer = client.read()
        assert answer.wire.startswith(b"HTTP/1.1 413")
        assert answer.wire.endswith(b"much")
        assert answer.end is Ended.FIN
        assert replay.app.misses == 0
