"""What drifted between a recording and a new answer: each case changes one thing, and only that is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from mockllm import files
from mockllm.core import cassette
from mockllm.core.drift import drift
from mockllm.core.exchange import Exchange

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
SHIPPED = sorted(files.shipped().rglob("*.jsonl"))


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": words, **more}, "finish_reason": None}]}


def answer(
    *data: str,
    status: int = 200,
    version: str = "1.1",
    end: str = "complete",
    then: str = "open",
    headers: dict[str, str] | None = None,
    method: str = "POST",
) -> Exchange:
    """An answer whose body comes in these pieces, until the close unless the headers say otherwise."""
    pairs = [[name, value] for name, value in ({"Content-Type": "text/event-stream"} | (headers or {})).items()]
    options = (
        {} if end != "complete" or (headers and "Content-Length" in headers and then == "open") else {"then": then}
    )
    lines: list[Any] = [
        {"mockllm": 1, "request": {"method": method, "target": "/v1/chat/completions"}},
        [1, "head", {"version": version, "status": status, "reason": "OK", "headers": pairs}],
        *([1, "data", piece] for piece in data),
        [1, "end", end, *([options] if options else [])],
    ]
    return load("".join(json.dumps(line) + "\n" for line in lines))


def load(text: str) -> Exchange:
    raw = text.encode()
    return cassette.load(raw, cassette.index(raw, "a").places[0], "a")


def stream(*events: Any, before: str = "", **more: Any) -> Exchange:
    """A stream of events, each in a read of its own; an object is its JSON, a string stands as it is."""
    pieces = [event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n" for event in events]
    return answer(*([before] if before else []), *pieces, **({"then": "fin"} | more))


def body(value: Any, **more: Any) -> Exchange:
    """An answer that is one JSON value, or any text, with a length."""
    whole = value if isinstance(value, str) else json.dumps(value)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(whole))}
    return answer(*([whole] if whole else []), **({"headers": headers} | more))


DONE = "data: [DONE]\n\n"
CHAT = stream(ROLE, text("Hello"), text(" world"), FINISH, DONE)
CASES = {
    "other words, and more of them": (CHAT, stream(ROLE, text("Hi"), text(" to"), text(" you"), FINISH, DONE), []),
    "the status": (
        CHAT,
        body({"error": {"message": "no\x07 key"}}, status=401),
        ["status: was 200, is 401 (no\\u0007 key)"],
    ),
    "the status, without words": (CHAT, body("", status=503), ["status: was 200, is 503"]),
    "the version": (CHAT, stream(ROLE, text("x"), FINISH, DONE, version="1.0"), ["version: was HTTP/1.1, is HTTP/1.0"]),
    "a header less": (
        body({}, headers={"X-A": "1", "Content-Length": "2"}),
        body({}, headers={"Content-Length": "2"}),
        ['head: X-A is gone, it was "1"'],
    ),
    "a header more": (
        body({}, headers={"Content-Length": "2"}),
        body({}, headers={"X-\u00e9": "\x1b", "Content-Length": "2"}),
        ['head: X-é is new: "\\u001b"'],
    ),
    "a header's value": (
        body({}, headers={"Server": "a/1", "Content-Length": "2"}),
        body({}, headers={"Server": "a/2", "Content-Length": "2"}),
        ['head: Server was "a/1", is "a/2"'],
    ),
    "a header's spelling": (
        body({}, headers={"Server": "a", "Content-Length": "2"}),
        body({}, headers={"server": "a", "Content-Length": "2"}),
        ["head: Server is spelled server"],
    ),
    "headers of one answer only": (
        body({"a": "x"}, headers={"Date": "1", "X-RateLimit-Left": "5", "X-Request-Id": "a", "Content-Length": "10"}),
        body({"a": "xyz"}, headers={"Date": "2", "cf-ray": "b", "Content-Length": "12"}),
        [],
    ),
    "the framing": (
        body({}, headers={"Content-Length": "2"}),
        answer("{}", headers={}, then="fin"),
        ["framing: was a length, is until the close", "connection: was left open after the answer, is closed"],
    ),
    "no stream any more": (
        CHAT,
        answer("{}", headers={"Content-Type": "application/json"}, then="fin"),
        [
            'head: Content-Type was "text/event-stream", is "application/json"',
            "body: was a stream of events, is no stream of events",
        ],
    ),
    "a stream under another type": (
        CHAT,
        stream(ROLE, text("x"), FINISH, DONE, headers={"Content-Type": "text/plain"}),
        ['head: Content-Type was "text/event-stream", is "text/plain"'],
    ),
    "an event more": (
        CHAT,
        stream(ROLE, text("x"), FINISH, USAGE, DONE),
        ["events: was role, text, finish, [DONE]; is role, text, finish, usage, [DONE]"],
    ),
    "no end": (
        CHAT,
        stream(ROLE, text("x"), FINISH),
        ["events: was role, text, finish, [DONE]; is role, text, finish"],
    ),
    "no events": (CHAT, stream(), ["events: was role, text, finish, [DONE]; is an empty body"]),
    "only comments": (
        CHAT,
        stream(": x\n\n"),
        ['events: the comment ": x" comes now, which did not', "events: was role, text, finish, [DONE]; is nothing"],
    ),
    "many kinds": (
        stream(*(f"event: e{n}\ndata: {{}}\n\n" for n in range(14))),
        stream(DONE),
        ["events: was e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, …; is [DONE]"],
    ),
    "keepalives": (
        CHAT,
        stream(ROLE, text("x"), FINISH, DONE, before=": keepalive 19/33\n\n: keepalive 33/33\n\n"),
        ['events: the comment ": keepalive N/N" comes now, which did not'],
    ),
    "other keepalives": (
        stream(ROLE, text("x"), FINISH, DONE, before=": keepalive 1/2\n\n"),
        stream(ROLE, text("x"), FINISH, DONE, before=": keepalive 19/33\n\n"),
        [],
    ),
    "pings": (
        stream("event: message_stop\ndata: {}\n\n"),
        stream('event: ping\ndata: {"type":"ping"}\n\n', "event: message_stop\ndata: {}\n\n"),
        ["events: a ping event comes now, which did not"],
    ),
    "fewer pings": (
        stream('event: ping\ndata: {"type":"ping"}\n\n', "event: message_stop\ndata: {}\n\n"),
        stream("event: message_stop\ndata: {}\n\n"),
        [],
    ),
    "another name": (
        stream("event: one\ndata: {}\n\n"),
        stream("event: tw\x1bo\ndata: {}\n\n"),
        ["events: was one; is tw\\u001bo"],
    ),
    "reasoning": (
        stream(ROLE, text("", reasoning_content="hm"), text("x"), FINISH, DONE),
        stream(ROLE, text("", reasoning="hm"), text("x"), FINISH, DONE),
        [
            "events: was role, reasoning_content, text, finish, [DONE]; is role, reasoning, text, finish, [DONE]",
        ],
    ),
    "something else": (stream({"a": 1}), stream("data: [1]\n\n"), ["JSON: the value was object, is array in other"]),
    "an end with words": (
        stream('data: {"content":"","stop":true}\n\n'),
        stream('data: {"content":"x","stop":true}\n\n'),
        ["events: was finish+done; is text+finish+done"],
    ),
    "a key in a chunk": (
        CHAT,
        stream(ROLE, text("x", logprobs=None), FINISH, DONE),
        ["JSON: choices[].delta.logprobs (null) is new in text"],
    ),
    "a key in a body": (body({"id": "a"}), body({"id": "b", "tier": "x"}), ["JSON: tier (string) is new in the body"]),
    "no JSON any more": (body({"id": "a"}), body("oh"), ["JSON: the value was object, is no JSON in the body"]),
    "nothing any more": (body({"id": "a"}), body(""), ["body: was 11 B, is 0 B"]),
    "a HEAD": (body("", method="HEAD"), body("", method="HEAD"), []),
    "a cut": (
        CHAT,
        stream(ROLE, text("x"), FINISH, DONE, end="rst"),
        ["ending: was complete, is rst"],
    ),
    "the connection": (
        body({"a": 1}),
        body({"a": 1}, then="rst"),
        ["connection: was left open after the answer, is reset"],
    ),
    "the recorded client left": (stream(ROLE, text("x"), end="client"), CHAT, []),
    "the recorded client left before another event": (
        stream(ROLE, text("x"), end="client"),
        stream(text("x"), FINISH, DONE),
        ["events: was role, text; is text, finish"],
    ),
    "the recorded client left a body": (body("", end="client"), body({"a": 1}), []),
    "the recorded client left before anything": (
        answer(headers={"Content-Type": "text/plain"}, end="client"),
        stream(ROLE, headers={"Content-Type": "text/plain"}),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str) -> None:
    old, new, lines = CASES[name]
    assert drift(old, new) == lines


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_nothing_drifts_from_itself(path: Path) -> None:
    (exchange,) = files.read_all(path)
    assert drift(exchange, exchange) == []


@pytest.mark.parametrize("old", SHIPPED[::9], ids=lambda path: path.stem)
def test_what_is_told_prints(old: Path) -> None:
    (one,) = files.read_all(old)
    for new in SHIPPED[::4]:
        (other,) = files.read_all(new)
        assert all(line.isprintable() for line in drift(one, other))


def test_where_there_is_no_head() -> None:
    silent = load('{"mockllm":1,"request":{"method":"GET","target":"/"}}\n[5,"end","fin"]\n')
    cut = load('{"mockllm":1,"request":{"method":"GET","target":"/"}}\n[5,"end","rst"]\n')
    assert drift(silent, silent) == []
    assert drift(silent, cut) == ["ending: was fin, is rst"]
    assert drift(silent, CHAT) == ["head: was none, is 200", "ending: was fin, is complete"]
    assert drift(CHAT, silent) == ["head: was 200, is none", "ending: was complete, is fin"]
