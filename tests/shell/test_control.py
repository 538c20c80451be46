"""The control plane over HTTP: what it shows, what it refuses and to whom, and that it never stands in the way."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mockllm import __version__, control
from mockllm.control import is_control
from mockllm.guard import Guard
from tests.peers.client import RawClient, ask, get, post
from tests.peers.framing import answer_end
from tests.shell.serving import Replaying, replaying
from tests.shell.tapes import head, plain, plain_wire, request, write

ROUTES = {
    "exchanges": ["GET"],
    "faults": ["DELETE", "GET", "PUT"],
    "health": ["GET"],
    "journal": ["DELETE", "GET"],
    "journal/stream": ["GET"],
    "journal/wait": ["GET"],
    "reset": ["POST"],
    "sessions": ["GET"],
    "sessions/x": ["DELETE"],
}
GUARDED = [(path, method) for path, methods in ROUTES.items() for method in methods if path != "health"]


@pytest.fixture
def tapes(tmp_path: Path) -> Path:
    write(
        tmp_path / "a.jsonl", request(json=1), *plain("one"), request("/y\u001b?key=[redacted]", "GET"), *plain("two")
    )
    return tmp_path


def play(replay: Replaying, body: bytes = b"1", *headers: str) -> bytes:
    return ask(replay.host, replay.port, post("/x", body, *headers), answer_end).wire


@pytest.mark.parametrize(
    ("target", "is_one"),
    [
        (b"/_mockllm/", True),
        (b"/_mockllm/health?x=1", True),
        (b"http://h:1/_mockllm/health", True),
        (b"/_mockllm", False),
        (b"/v1/_mockllm/health", False),
        (b"/v1?x=/_mockllm/", False),
        (b"/_MOCKLLM/health", False),
        (b"*", False),
    ],
)
def test_which_targets_are_its_own(target: bytes, is_one: bool) -> None:
    assert is_control(target) is is_one


# --- what it shows


def test_health_counts_and_needs_no_host(tapes: Path) -> None:
    with replaying(tapes) as replay:
        play(replay)
        play(replay, b"2")
        for host in ("127.0.0.1", "evil.example"):
            found = replay.control("GET", "health", host=host)
            assert (found.status, found.document) == (
                200,
                {"status": "ok", "version": __version__, "exchanges": 2, "misses": 1},
            )
        assert len(replay.control("GET", "journal").document) == 2, "its own requests are not in the journal"


def test_exchanges_are_in_order_with_how_often_they_were_played(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for session in "ab":
            play(replay, b"1", f"mockllm-session: {session}")
        assert replay.control("GET", "exchanges").document == [
            {"recording": f"{tapes}/a.jsonl:1", "method": "POST", "path": "/x", "played": 2},
            {"recording": f"{tapes}/a.jsonl:5", "method": "GET", "path": "/y\\u001b", "played": 0},
        ]


def test_faults_are_shown_put_and_taken_back(tapes: Path) -> None:
    with replaying(tapes, faults="header:name=x,value=server") as replay:
        at_first = {"session": "default", "faults": "header:name=x,value=server", "own": False}
        put = {"session": "default", "faults": "header:name=x,value=put", "own": True}
        assert replay.control("GET", "faults").document == at_first
        assert replay.control("PUT", "faults", " header:name=x,value=put\n").document == put
        assert replay.control("GET", "faults").document == put
        assert b"\r\nx: put\r\n" in play(replay)
        assert replay.control("GET", "faults?session=s").document == at_first | {"session": "s"}
        assert replay.control("DELETE", "faults").document == at_first
        assert b"\r\nx: server\r\n" in play(replay)


@pytest.mark.parametrize("body", ["", "none", '{"faults": ""}', '{"faults": "none"}', ' {"faults": "crlf+none"} '])
def test_no_faults_can_be_put_too(body: str, tapes: Path) -> None:
    with replaying(tapes, faults="header:name=x,value=server") as replay:
        found = replay.control("PUT", "faults", body)
        assert (found.status, found.document["faults"], found.document["own"]) == (200, "none", True)
        assert play(replay) == plain_wire("one")


def test_a_spec_can_be_put_as_json(tapes: Path) -> None:
    with replaying(tapes) as replay:
        found = replay.control("PUT", "faults", json.dumps({"faults": "comment:text=a%20b,at=0ev"}))
        assert found.document["faults"] == "comment:text=a%20b,at=0ev"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("crlff", "fault spec, character 1: unknown fault 'crlff'; the nearest is 'crlf'"),
        ("crlf+cut", "fault spec, character 9: cut needs at="),
        ("{", 'send the faults as text (crlf+cut:at=3ev) or as {"faults": "crlf+cut:at=3ev"}'),
        ('{"fault": "crlf"}', "send the faults as text"),
        ('{"faults": ["crlf"]}', "send the faults as text"),
        ("x" * 70_000, "a body of more than 65536 bytes"),
    ],
)
def test_a_bad_spec_is_refused_and_changes_nothing(body: str, said: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        replay.control("PUT", "faults", "bom")
        refused = replay.control("PUT", "faults", body)
        assert refused.status == 400
        assert refused.message.startswith(said)
        assert refused.document["error"]["type"] in ("mockllm_bad_fault", "mockllm_usage")
        assert replay.control("GET", "faults").document["faults"] == "bom"


def test_a_put_counts_anew(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for _ in range(2):
            replay.control("PUT", "faults", "header:name=x,value=y,times=1")
            assert [b"\r\nx: y" in play(replay) for _ in range(2)] == [True, False]


# --- journal routes


def test_the_journal_is_filtered_and_deleted(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for session, body in (("a", b"1"), ("b", b"1"), ("a", b"2")):
            play(replay, body, f"mockllm-session: {session}")
        replay.entries(3)

        def numbers(query: str) -> list[int]:
            return [entry["number"] for entry in replay.control("GET", f"journal{query}").document]

        assert numbers("") == [1, 2, 3]
        assert numbers("?session=a") == [1, 3]
        assert numbers("?miss=true") == numbers("?miss=1") == [3]
        assert numbers("?miss=false&session=a") == numbers("?miss=0&session=a") == [1]
        assert numbers("?path=/x&ended=True&after=1") == [2, 3]
        assert numbers("?ended=false") == []
        assert replay.control("DELETE", "journal?session=a").document == {"deleted": 2}
        assert numbers("") == [2]
        assert replay.control("DELETE", "journal").document == {"deleted": 1}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("nonsense=1", "unknown filter 'nonsense'; there are after, ended, miss, path, session"),
        ("count=1", "unknown filter 'count'; there are"),
        ("miss=maybe", "miss=maybe is neither true nor false"),
        ("ended=", "ended= is neither true nor false"),
        ("after=-1", "after=-1 is no number"),
        ("after=\u0661", "after=\u0661 is no number"),
        ("after=9999999999", "after=9999999999 is no number"),
    ],
)
@pytest.mark.parametrize("what", [("GET", "journal"), ("DELETE", "journal"), ("GET", "journal/stream")])
def test_bad_filters_are_refused(what: tuple[str, str], query: str, said: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        play(replay)
        refused = replay.control(what[0], f"{what[1]}?{query.replace(chr(0x661), '%D9%A1')}")
        assert refused.status == 400
        assert refused.message.startswith(said)
        assert len(replay.control("GET", "journal").document) == 1


@pytest.mark.parametrize("query", ["count=x", "timeout=soon", "timeout=601s", "timeout=-1", "what=1", "miss=x"])
def test_bad_waits_are_refused(query: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        assert replay.control("GET", f"journal/wait?{query}").status == 400


@pytest.mark.parametrize("timeout", ["0", "0s", "10ms", "0.01"])
def test_a_wait_that_is_over_is_a_408_with_what_there_is(timeout: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        play(replay)
        found = replay.control("GET", f"journal/wait?count=2&timeout={timeout}")
        assert (found.status, len(found.document)) == (408, 1)
        assert replay.control("GET", "journal/wait?count=0&timeout=0").status == 200


# --- what there is not


@pytest.mark.parametrize("path", ["", "nonsense", "journal/nonsense", "faults/x", "healthy", "sessions/a/b", "%00"])
def test_other_routes_are_404_and_the_message_lists_what_there_is(path: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        missing = replay.control("GET", path)
    assert missing.status == 404
    assert missing.message.startswith("mockllm has no GET /_mockllm/")
    for known in ROUTES:
        assert f"/_mockllm/{known.replace('sessions/x', 'sessions/{name}')}" in missing.message


@pytest.mark.parametrize("path", ROUTES)
def test_other_methods_are_405_and_allow_says_which_are_fine(path: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        for method in ("PATCH", "POST", "PUT", "DELETE", "GET"):
            if method in ROUTES[path]:
                continue
            refused = replay.control(method, path)
            assert refused.status == 405
            assert refused.message.startswith(f"mockllm has no {method} /_mockllm/{path}; there are ")
            (allow,) = [line for line in refused.head if line.startswith("allow: ")]
            allowed = {word.upper() for word in allow.removeprefix("allow: ").split(", ")}
            assert allowed - {"HEAD"} == set(ROUTES[path])


def test_head_is_answered_where_get_is(tapes: Path) -> None:
    with replaying(tapes) as replay, RawClient(replay.host, replay.port) as client:
        for path in ("health", "journal", "faults"):
            client.send(get(f"/_mockllm/{path}", method="HEAD", host="localhost"))
            assert client.read(lambda data: data.endswith(b"\r\n\r\n")).wire.startswith(b"HTTP/1.1 200 ")


def test_a_recording_of_its_own_paths_is_never_played(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/_mockllm/nonsense", "GET"), *plain("recorded"))
    with replaying(tmp_path) as replay:
        assert replay.control("GET", "nonsense").status == 404


# --- to whom


def forbidden(replay: Replaying, path: str, method: str, *headers: str, host: str = "127.0.0.1") -> str:
    refused = replay.control(method, path, "", *headers, host=host)
    assert refused.status == 403
    assert refused.document["error"]["type"] == "mockllm_control"
    return refused.message


@pytest.mark.parametrize(("path", "method"), GUARDED)
def test_pages_of_others_may_nothing(path: str, method: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        play(replay)
        assert "Host header" in forbidden(replay, path, method, host="evil.example:8800")
        assert "a page of another machine" in forbidden(replay, path, method, "Origin: http://evil.example")
        assert "a page of another machine" in forbidden(replay, path, method, "Origin: null")
        assert len(replay.control("GET", "journal").document) == 1


@pytest.mark.parametrize(("path", "method"), GUARDED)
def test_on_another_host_a_token_is_needed(path: str, method: str, tapes: Path) -> None:
    with replaying(tapes, guard=Guard("0.0.0.0", "t0ken")) as replay:
        play(replay)
        for headers in ((), ("mockllm-token: wrong",), ("Authorization: Bearer wrong",)):
            assert "control token" in forbidden(replay, path, method, *headers)
        assert replay.control("GET", "health").status == 200
        for header in ("mockllm-token: t0ken", "Authorization: Bearer t0ken"):
            found = replay.control("GET", "journal", "", header, host="mac.local")
            assert (found.status, len(found.document)) == (200, 1)
    with replaying(tapes, guard=Guard("0.0.0.0")) as replay:
        assert "--control-token" in forbidden(replay, path, method, "mockllm-token: ")


# --- beside the data plane


def test_it_answers_while_answers_go_on_and_bodies_are_bounded(tapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_BODY", 10)
    write(tapes / "b.jsonl", request(json=3), head(version="1.0"), [0, "end", "hang"])
    with replaying(tapes) as replay, RawClient(replay.host, replay.port) as client:
        client.send(post("/x", b"3"))
        client.read(19)
        assert [entry["ended"] for entry in replay.control("GET", "journal").document] == [False]
        assert replay.control("PUT", "faults", "crlf+bom+crlf").status == 400
        assert replay.control("PUT", "faults", "crlf").status == 200


@pytest.mark.parametrize("path", ["journal/wait?timeout=600s&count=9", "journal/stream"])
def test_nobody_who_waits_keeps_the_server_from_stopping(path: str, tapes: Path) -> None:
    clients: list[Any] = []
    with replaying(tapes) as replay:
        for _ in range(3):
            client = RawClient(replay.host, replay.port)
            client.send(get(f"/_mockllm/{path}", host="localhost"))
            clients.append(client)
        until(lambda: len(replay.app.journal._waiting) == 3)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    for client in clients:
        client.leave()


def until(condition: Callable[[], object]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")
