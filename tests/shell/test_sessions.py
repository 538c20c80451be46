"""Two tests that share a server do not disturb each other, and no number of sessions fills the memory."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm import sessions
from mockllm.bending import Bending
from mockllm.sessions import DEFAULT, Session, Sessions
from tests.peers.client import ask, post
from tests.peers.framing import answer_end
from tests.shell.serving import Replaying, replaying
from tests.shell.tapes import plain, request, write


def play(replay: Replaying, *headers: str, path: str = "/x") -> str:
    """The text of the answer."""
    wire = ask(replay.host, replay.port, post(path, b"1", *headers), answer_end).wire
    return wire.partition(b"\r\n\r\n")[2].decode()


@pytest.fixture
def tapes(tmp_path: Path) -> Path:
    lines = [line for text in ("one", "two", "three") for line in (request(json=1), *plain(text))]
    write(tmp_path / "a.jsonl", *lines)
    return tmp_path


# --- on a shared server


def test_each_has_its_own_positions_by_header_and_by_prefix(tapes: Path) -> None:
    with replaying(tapes) as replay:
        got = {
            "none": [play(replay)],
            "header": [play(replay, "mockllm-session: h") for _ in range(2)],
            "prefix": [play(replay, path="/~session=p/x") for _ in range(4)],
            "same": [play(replay, "MockLLM-Session: p")],
            "none again": [play(replay)],
        }
        assert replay.control("GET", "sessions").document == ["h", "p", DEFAULT]
    assert got == {
        "none": ["one"],
        "header": ["one", "two"],
        "prefix": ["one", "two", "three", "three"],
        "same": ["three"],
        "none again": ["two"],
    }


def test_the_prefix_is_nearer_than_the_header(tapes: Path) -> None:
    with replaying(tapes) as replay:
        play(replay, "mockllm-session: header", path="/~session=prefix/x")
        assert replay.entries()[0]["session"] == "prefix"


def test_each_has_its_own_faults_counts_attempts_and_journal(tapes: Path) -> None:
    once = "header:name=x,value=bent,times=1"
    with replaying(tapes) as replay:
        for name in ("a", "b"):
            assert replay.control("PUT", f"faults?session={name}", once).document["faults"] == once
        for name in ("a", "a", "b", "c"):
            play(replay, f"mockllm-session: {name}")
        entries = replay.entries(4)
        assert [entry["attempt"] for entry in entries] == [1, 2, 1, 1]
        assert [[one["fired"] for one in entry["faults"]] for entry in entries] == [[True], [False], [True], []]
        assert [entry["session"] for entry in replay.control("GET", "journal?session=b").document] == ["b"]


def test_a_session_that_is_deleted_begins_anew_and_the_others_stay(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for name in ("a", "b"):
            replay.control("PUT", f"faults?session={name}", "crlf")
            assert play(replay, f"mockllm-session: {name}") == "one"
        assert replay.control("DELETE", "sessions/a").document == {"deleted": "a"}
        gone = replay.control("DELETE", "sessions/a")
        assert (gone.status, gone.message) == (404, "there is no session 'a'")
        assert [play(replay, f"mockllm-session: {name}") for name in ("a", "b")] == ["one", "two"]
        assert replay.control("GET", "faults?session=a").document["own"] is False
        assert replay.control("GET", "faults?session=b").document["own"] is True
        assert [entry["session"] for entry in replay.entries(3)] == ["b", "a", "b"]


def test_a_reset_is_for_one_session_or_for_all(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for name in ("a", "b"):
            replay.control("PUT", f"faults?session={name}", "header:name=x,value=y,times=1")
            play(replay, f"mockllm-session: {name}")
        assert replay.control("POST", "reset?session=a").document == {"reset": "a"}
        assert [entry["session"] for entry in replay.control("GET", "journal").document] == ["b"]
        assert [play(replay, f"mockllm-session: {name}") for name in ("a", "b")] == ["one", "two"]
        assert [one["faults"][0]["fired"] for one in replay.entries(3)] == [True, True, False], "faults stay, counts go"
        assert replay.control("POST", "reset").document == {"reset": "all sessions"}
        assert replay.control("GET", "journal").document == []
        assert [play(replay, f"mockllm-session: {name}") for name in ("a", "b")] == ["one", "one"]
        assert {entry["attempt"] for entry in replay.entries(2)} == {1}


def test_to_ask_about_a_session_does_not_make_it(tapes: Path) -> None:
    with replaying(tapes) as replay:
        for method, path in (("GET", "faults"), ("DELETE", "faults"), ("POST", "reset"), ("GET", "journal")):
            assert replay.control(method, f"{path}?session=new").status == 200
        assert replay.control("GET", "sessions").document == []


BAD = ["", "a b", "a/b", "\u00e9", "x" * 101]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_a_400_and_in_the_journal(name: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        wire = ask(replay.host, replay.port, post("/x", b"1", f"mockllm-session: {name}"), answer_end).wire
        assert wire.startswith(b"HTTP/1.1 400 ")
        assert b"a name is 1 to 100 of the characters" in wire
        (entry,) = replay.entries()
        assert (entry["session"], entry["match"], entry["status"]) == (DEFAULT, "refused", 400)
        assert entry["message"] in json.loads(wire.partition(b"\r\n\r\n")[2])["error"]["message"]
        assert play(replay) == "one", "it took nothing"


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "x" * 101, "%00"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_the_control_plane_takes_no_bad_name(method: str, name: str, tapes: Path) -> None:
    with replaying(tapes) as replay:
        refused = replay.control(method, f"faults?session={name}", "crlf" if method == "PUT" else "")
        assert refused.status == 400
        assert "a name is 1 to 100" in refused.message


# --- within bounds


def test_the_session_that_was_used_longest_ago_is_forgotten_never_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    kept = Sessions()
    for name in (DEFAULT, "a", "b", "a", "c", "d"):
        kept.get(name).faults = ()
    assert kept.names() == [DEFAULT, "c", "d"]
    assert kept.find("a") is None
    assert kept.get(DEFAULT).faults == ()
    assert kept.get("a").faults is None
    assert kept.names() == ["d", DEFAULT, "a"]


@given(st.lists(st.sampled_from([DEFAULT, *"abcdef"])))
def test_there_are_never_more_than_the_bound(names: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "MAX_SESSIONS", 3)
        kept = Sessions()
        for number, name in enumerate(names):
            assert kept.get(name).name == name
            assert kept.names()[-1] == name
            assert len(kept.names()) <= 3
            recent = list(dict.fromkeys(reversed([one for one in names[: number + 1] if one != DEFAULT])))
            assert set(recent[:2]) <= set(kept.names())


def test_attempts_are_counted_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_ATTEMPTS", 2)
    session = Session("s")
    first, before = session.attempt(b"a")
    assert (first.number, before) == (1, None)
    first.ended_at = 7
    again, before = session.attempt(b"a")
    assert (again.number, before) == (2, first)
    session.attempt(b"b")
    assert session.attempt(b"a")[0].number == 3
    session.attempt(b"c")
    assert session.attempt(b"b")[0].number == 1, "the oldest was forgotten"
    assert len(session.attempts) == 2


def test_faults_are_counted_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_COUNTERS", 3)
    session = Session("s")
    two, one = (Bending.parse([text]) for text in ("crlf:times=1+nospace:times=1", "bom:times=1"))
    assert session.fire(two, "/") == [True, True]
    assert session.fire(one, "/") == [True]
    assert session.fire(two, "/") == [False, False]
    others = [Bending.parse([f"cut:at={number}ev,times=1"]) for number in range(2)]
    for other in others:
        assert session.fire(other, "/") == [True]
    assert session.fire(two, "/") == [True, False], "used last, and so half of it is still known"
    assert len(session.counters) == 3
    assert session.fire(one, "/") == [True], "forgotten"


def test_a_long_spec_costs_no_more_than_a_short_one() -> None:
    session = Session("s")
    session.fire(Bending.parse([f"comment:text={'x' * 100_000},at=0ev"]), "/")
    ((name, place),) = session.counters
    assert (len(name), place) == (32, 0)
