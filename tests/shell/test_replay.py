"""Which recording answers a request, and what a client is told where none does."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from mockllm.core.errors import CassetteError, UsageError
from tests.peers.client import Answer, RawClient, ask, get, post
from tests.peers.common import Ended
from tests.peers.framing import answer_end
from tests.shell.serving import Replaying, replaying
from tests.shell.tapes import head, plain, plain_wire, request, write


def asked(replay: Replaying, request_bytes: bytes) -> Answer:
    return ask(replay.host, replay.port, request_bytes, answer_end)


def body_of(answer: Answer) -> bytes:
    return answer.wire.partition(b"\r\n\r\n")[2]


def chat(text: str = "hi", temperature: float = 1, stream: bool = True) -> dict[str, object]:
    return {"model": "m", "stream": stream, "temperature": temperature, "messages": [{"role": "user", "content": text}]}


def test_the_same_method_target_and_body_match(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/v1/chat?x=1&y=2", json=chat()), *plain("one"))
    write(tmp_path / "b.jsonl", request("/v1/chat?x=1&y=2", json=chat(temperature=0.5)), *plain("two"))
    write(tmp_path / "c.jsonl", request("/v1/chat?x=1&y=2", "PUT", json=chat()), *plain("three"))
    write(tmp_path / "d.jsonl", request("/v1/chat", json=chat()), *plain("four"))
    write(tmp_path / "e.jsonl", request("/v1/models", "GET"), *plain("five"))
    write(tmp_path / "f.jsonl", request("/text", text="not JSON"), *plain("six"))
    write(tmp_path / "g.jsonl", request("/any", body="any"), *plain("seven"))
    body = json.dumps(chat()).encode()
    chunked = get("/v1/chat?x=1&y=2", "Transfer-Encoding: chunked", method="POST")
    chunked += b"a;x=y\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (body[:10], len(body) - 10, body[10:])
    with replaying(tmp_path) as replay:
        for answer, request_bytes in {
            "one": post("/v1/chat?x=1&y=2", json.dumps(chat()).encode()),
            " one": post("/v1/chat?y=2&x=1", json.dumps(chat(), indent=3, sort_keys=True).encode()),
            "one ": chunked,
            "two": post("/v1/chat?x=1&y=2", json.dumps(chat(temperature=0.5)).encode()),
            "three": post("/v1/chat?x=1&y=2", body).replace(b"POST", b"PUT"),
            "four": post("http://mock:80/v1/chat", body),
            "five": get("/v1/models"),
            "six": post("/text", b"not JSON"),
            "seven": post("/any", b"whatever"),
        }.items():
            assert asked(replay, request_bytes).wire == plain_wire(answer.strip())
        for miss in (post("/v1/chat?x=1", body), post("/text", b"not  JSON"), get("/any"), get("/v1/models/")):
            assert asked(replay, miss).wire.startswith(b"HTTP/1.1 404 ")
        assert replay.app.misses == 4


def test_repeats_are_answered_in_recorded_order_then_the_last_again(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", request(json=1), *plain("two"), request(json=1), *plain("three"))
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request(json=2), *plain("other"))
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as client:
        got = []
        for body in (b"1", b"1", b"2", b"1", b"1", b"1", b"2"):
            client.send(post("/x", body))
            got.append(body_of(client.read(answer_end)).decode())
        lines = replay.log.wait(7)
    assert got == ["one", "two", "other", "three", "three", "three", "other"]
    assert [("again, the last of its kind" in line) for line in lines] == [False] * 4 + [True] * 3
    assert f"POST /x {tmp_path}/b.jsonl:5 (again, the last of its kind): " in lines[4]
    assert re.search(r": 43 of 43 B, late by \S+ \S+ at the median, \S+ \S+ at most$", lines[4])


def test_secrets_never_count(tmp_path: Path) -> None:
    write(
        tmp_path / "a.jsonl",
        request("/x?key=[redacted]&alt=sse", headers=[["Authorization", "[redacted]"]], json=1),
        *plain("one"),
    )
    with replaying(tmp_path) as replay:
        for target in ("/x?key=mine&alt=sse", "/x?alt=sse", "/x?alt=sse&key="):
            assert asked(replay, post(target, b"1", "Authorization: Bearer other")).wire == plain_wire("one")


# --- misses


def test_a_miss_says_what_was_nearest_and_why(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/v1/chat/completions", json=chat("hello")), *plain("one"))
    write(tmp_path / "b.jsonl", request("/v1/chat/completions", json=chat("good bye")), *plain("two"))
    with replaying(tmp_path) as replay:
        body = json.dumps(chat("good bye!", temperature=0)).encode()
        answer = asked(replay, post("/v1/chat/completions?key=s3cret", body, "x-api-key: s3cret"))
        (line,) = replay.log.wait(1)
    head_bytes, _, document = answer.wire.partition(b"\r\n\r\n")
    assert head_bytes.startswith(b"HTTP/1.1 404 ")
    assert b"\r\ncontent-type: application/json" in head_bytes.lower()
    assert b"\r\nx-should-retry: false" in head_bytes
    assert b"\r\nmockllm-error: no-match" in head_bytes
    assert answer.end is Ended.OPEN
    error = json.loads(document)["error"]
    assert set(error) == {"message", "type"}
    assert error["type"] == "mockllm_no_match"
    assert error["message"] == (
        f"no recording answers POST /v1/chat/completions?key=[redacted]; the nearest is {tmp_path}/b.jsonl:1, but "
        'body: $.temperature is 0, recorded 1; $.messages[0].content is "good bye!", recorded "good bye"'
    )
    assert line == f"POST /v1/chat/completions?key=[redacted] 404: {error['message']}"
    assert b"s3cret" not in answer.wire


@pytest.mark.parametrize(
    ("request_bytes", "said"),
    [
        (
            post("/v1/chat/completion", b"{}"),
            'a.jsonl:1, but path: "/v1/chat/completion", recorded "/v1/chat/completions"',
        ),
        (get("/v1/chat/completions"), "a.jsonl:1, but method: GET, recorded POST"),
        (post("/v1/chat/completions?a=1", b"{}"), 'a.jsonl:1, but query: "a" is "1", recorded absent'),
        (post("/v1/chat/completions", b"[]"), "a.jsonl:1, but body: $ is [], recorded {}"),
        (post("/v1/chat/completions", b"{"), "a.jsonl:1, but body: "),
    ],
)
def test_a_miss_names_what_differs(request_bytes: bytes, said: str, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/v1/chat/completions", json={}), *plain("one"))
    with replaying(tmp_path) as replay:
        assert said in json.loads(body_of(asked(replay, request_bytes)))["error"]["message"]


def test_a_miss_on_head_has_no_body(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json={}), *plain("one"))
    with replaying(tmp_path) as replay, RawClient(replay.host, replay.port) as client:
        client.send(get("/", method="HEAD"))
        assert client.read(lambda data: data.endswith(b"\r\n\r\n")).wire.startswith(b"HTTP/1.1 404 ")
        assert client.read(for_ms=30).end is Ended.TIMEOUT


def test_a_miss_where_nothing_is_recorded(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "# nothing yet")
    with replaying(tmp_path) as replay:
        (said,) = replay.said.lines
        assert said == f"{tmp_path}/a.jsonl: holds no recording"
        assert b"there are no recordings" in asked(replay, get("/")).wire


def test_a_body_too_large_to_compare_is_answered_by_a_recording_of_any_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("mockllm.replay"), "MAX_BODY", 1000)
    write(tmp_path / "a.jsonl", request("/any", body="any"), *plain("any"), request("/x", text="a"), *plain("x"))
    with replaying(tmp_path) as replay:
        with RawClient(replay.host, replay.port) as client:
            for piece in (post("/any", b"a" * 100_000)[:-50_000], b"a" * 50_000):
                client.send(piece)
                assert client.read(answer_end, for_ms=20).wire in (b"", plain_wire("any"))
        assert replay.log.wait(1)[0].startswith("POST /any ")
        assert b"body: too large to be compared" in asked(replay, post("/x", b"a" * 100_000)).wire


def closest_wire(text: str) -> bytes:
    """What says in its head that it is only the closest."""
    return plain_wire(text).replace(b"\r\n\r\n", b"\r\nmockllm-match: closest\r\n\r\n", 1)


def test_closest_plays_the_nearest_of_the_same_method_and_path(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/v1/chat", json=chat("hello there", stream=False)), *plain("whole"))
    write(tmp_path / "b.jsonl", request("/v1/chat", json=chat("something else")), *plain("other"))
    write(tmp_path / "c.jsonl", request("/v1/chat", json=chat("hello")), *plain("streamed"))
    with replaying(tmp_path, closest=True) as replay:
        for text, stream, expected in [
            ("hello there", False, "whole"),
            ("hello there!", True, "streamed"),
            ("something", True, "other"),
            ("something else", False, "whole"),
        ]:
            answer = asked(replay, post("/v1/chat", json.dumps(chat(text, stream=stream)).encode()))
            exact = (text, stream) == ("hello there", False)
            assert (b"\r\nmockllm-match: closest\r\n" in answer.wire) is not exact
            assert answer.wire.replace(b"mockllm-match: closest\r\n", b"") == plain_wire(expected)
        assert "(the closest)" in replay.log.wait(4)[1]
        assert "(the closest)" not in replay.log.lines[0]
        assert replay.app.misses == 0
        assert b" 404 " in asked(replay, post("/v1/other", b"{}")).wire
        assert b" 404 " in asked(replay, get("/v1/chat")).wire
        assert replay.app.misses == 2


# --- what is loaded, and when


def test_health(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request(json=2), *plain("two"))
    with replaying(tmp_path) as replay:
        asked(replay, get("/nothing"))
        document = json.loads(body_of(asked(replay, get("/_mockllm/health"))))
        assert document["status"] == "ok"
        assert document["version"]
        assert (document["exchanges"], document["misses"]) == (2, 1)
        assert b" 404 " in asked(replay, get("/_mockllm/nonsense")).wire


@pytest.mark.parametrize(
    ("lines", "number", "found"),
    [
        (['{"mockllm":2}'], 1, "format version 2"),
        (["[0]"], 1, "a line that begins '[0]'"),
        ([request(), "nonsense"], 2, "a line that begins 'nonsense'"),
        ([{"mockllm": 1}], 1, "a header line without a request"),
    ],
)
def test_a_bad_line_start_or_header_is_refused_when_loading(
    lines: list[object], number: int, found: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", *lines)
    with pytest.raises(CassetteError) as caught:
        replaying(tmp_path).__enter__()
    assert (caught.value.source, caught.value.line) == (str(path), number)
    assert found in caught.value.found


@pytest.mark.parametrize("name", ["", "none.jsonl"])
def test_what_is_not_there_is_refused_when_loading(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        replaying(tmp_path / name).__enter__()


def test_a_bad_body_is_found_when_it_is_played(tmp_path: Path) -> None:
    bad = [head(Content_Length="3"), [0, "data", "too long"], [0, "end", "complete"]]
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), "# here", request(json=2), *bad)
    with replaying(tmp_path) as replay:
        assert asked(replay, post("/x", b"1")).wire == plain_wire("one")
        answer = asked(replay, post("/x", b"2"))
        assert answer.wire.startswith(b"HTTP/1.1 500 ")
        assert b"\r\nx-should-retry: false" in answer.wire
        error = json.loads(body_of(answer))["error"]
        assert error["type"] == "mockllm_bad_cassette"
        assert error["message"].startswith(f"{tmp_path}/a.jsonl:8: found 8 bytes of body")
        assert "expected 3" in error["message"]
        assert error["message"] in replay.log.wait(2)[1]
        assert asked(replay, post("/x", b"1")).wire == plain_wire("one")


def test_an_edited_file_is_played_as_it_is_now(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request(json=2), *plain("two"))
    with replaying(tmp_path) as replay:
        for text in ("two", "another", "two"):
            write(path, request(json=1), *plain("more, and longer"), "# a comment", request(json=2), *plain(text))
            assert asked(replay, post("/x", b"2")).wire == plain_wire(text)
        miss = body_of(asked(replay, post("/x", b"3")))
        assert b"a.jsonl:1, but body: $ is 3, recorded 1" in miss
        write(path, request(json=1), *plain("one"))
        assert b"a.jsonl:1, but body: $ is 2, recorded 1" in body_of(asked(replay, post("/x", b"2")))
        path.unlink()
        answer = asked(replay, post("/x", b"1"))
        assert answer.wire.startswith(b"HTTP/1.1 404 ")
        assert b"there are no recordings" in answer.wire
        assert replay.said.lines == [f"cannot read {path}: no such file or directory; it is not played"]


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", request(json=1), head(Content_Length="9"), [0, "data", "abc"])
    with path.open("a") as file:
        file.write('[0,"data","de')
    with replaying(tmp_path) as replay:
        assert replay.said.lines == [
            f"{path}:4: dropped an unfinished last line (the recorder was killed, or the disk was full)"
        ]
        answer = ask(replay.host, replay.port, post("/x", b"1"))
        assert body_of(answer) == b"abc"
        assert answer.end is Ended.FIN
