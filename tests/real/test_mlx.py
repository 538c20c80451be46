"""A real mlx_lm.server, recorded and replayed: the client of the replay gets the same bytes, cuts, times and ending.

The judge is a raw socket; openai-python reads the replay too.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from tests.conftest import MLX_PYTHON
from tests.peers.client import Answer, ask, borders, get, post
from tests.peers.command import Running, cli
from tests.peers.common import Ended
from tests.real.mlx import MODEL, mlx_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

GAP_US = 5000
LATE_US = 150_000
"""How far from the recorded time a read may come on a busy machine, once in three tries."""
CHAT = "/v1/chat/completions"


def body(name: str) -> bytes:
    """The request of that name, as the model's folder has it."""
    return (MODEL / "requests" / f"{name}.json").read_bytes()


REQUESTS = {
    **{name: post(CHAT, body(name)) for name in ("diary-fr", "hello", "unicode", "long", "tool")},
    "hello-nonstream": post(CHAT, json.dumps({**json.loads(body("hello")), "stream": False}).encode()),
    "error": post(CHAT, b'{"model": "default_model", "stream": true}'),
    "models": get("/v1/models"),
}


@dataclass(frozen=True)
class Session:
    """What was recorded, as the client of the recorder saw it, and a replay of it."""

    live: dict[str, Answer]
    folder: Path
    port: int
    recorder_stderr: str
    direct: Answer
    relayed: Answer


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One pass of all requests through `mockllm record`, then a running `mockllm replay` of the folder."""
    folder = tmp_path_factory.mktemp("mlx")
    tapes = folder / "tapes"
    with mlx_server(os.environ[MLX_PYTHON], folder) as port:
        recorder = Running("record", f"http://127.0.0.1:{port}", "-o", tapes, "--port", "0", cwd=folder)
        try:
            live = {name: ask(recorder.host, recorder.port, request) for name, request in REQUESTS.items()}
        finally:
            finished = recorder.stop()
        assert finished.status == 0, finished.stderr
        # asked before, so that the server's prompt cache is the same for both
        direct = ask("127.0.0.1", port, REQUESTS["hello"])
        aside = Running("record", f"http://127.0.0.1:{port}", "-o", folder / "aside", "--port", "0", cwd=folder)
        try:
            relayed = ask(aside.host, aside.port, REQUESTS["hello"])
        finally:
            aside.stop()
    replay = Running("replay", tapes, "--port", "0", cwd=folder)
    try:
        yield Session(live, tapes, replay.port, finished.stderr, direct, relayed)
    finally:
        assert replay.stop().status == 0


def same_form(wire: bytes) -> bytes:
    """The bytes without what differs from one answer to the next: dates, ids, times."""
    wire = re.sub(rb"\r\nDate: [^\r]*", b"\r\nDate: -", wire)
    return re.sub(rb'"id": "[^"]*"|"created": [0-9]+', b"-", wire)


def at_offset(answer: Answer) -> dict[int, int]:
    """The time (µs) at which each read began, by its first byte's offset."""
    found, offset = {}, 0
    for at, data in answer.reads:
        found[offset] = at
        offset += len(data)
    return found


def differences(live: Answer, played: Answer) -> list[str]:
    """How a replay differs from what was recorded in cuts and times; what a busy machine may do to one try."""
    said = []
    starts, expected = at_offset(played), at_offset(live)
    cuts = {0, *borders(live.reads, gap_us=GAP_US)}
    if missing := cuts - starts.keys():
        said.append(f"no read begins at {sorted(missing)}")
    for offset in sorted(cuts & starts.keys()):
        if abs(starts[offset] - expected[offset]) > LATE_US:
            said.append(f"byte {offset} came at {starts[offset]} µs, recorded {expected[offset]} µs")
    if abs(played.end_at - live.end_at) > LATE_US:
        said.append(f"the end came at {played.end_at} µs, recorded {live.end_at} µs")
    return said


def test_the_recorder_adds_and_changes_nothing(session: Session) -> None:
    assert same_form(session.relayed.wire) == same_form(session.direct.wire)
    assert session.relayed.end is session.direct.end is Ended.FIN
    assert b"Hello" in session.relayed.wire


@pytest.mark.parametrize("name", REQUESTS)
def test_the_real_server_answered(session: Session, name: str) -> None:
    wire = session.live[name].wire
    status = b"400 Bad Request" if name == "error" else b"200 OK"
    assert wire.startswith(b"HTTP/1.0 " + status + b"\r\nServer: BaseHTTP/")
    if b"text/event-stream" in wire:
        assert wire.endswith(b"data: [DONE]\n\n")
        assert b"\n\n: keepalive " in wire or b"\r\n\r\n: keepalive " in wire


def test_every_exchange_is_on_tape_and_readable(session: Session) -> None:
    assert len(list(session.folder.glob("*.jsonl"))) == len(REQUESTS)
    checked = cli("check", session.folder)
    assert checked.status == 0, checked.stderr
    assert session.recorder_stderr.count(CHAT) >= len(REQUESTS) - 1


@pytest.mark.parametrize("name", REQUESTS)
def test_the_replay_is_the_recording(session: Session, name: str) -> None:
    live = session.live[name]
    for _ in range(3):
        played = ask("127.0.0.1", session.port, REQUESTS[name])
        assert played.wire == live.wire
        assert played.end is live.end is Ended.FIN
        said = differences(live, played)
        if not said:
            return
    pytest.fail("three tries: " + "; ".join(said))


def reader(session: Session) -> openai.OpenAI:
    """openai-python on the replay; a retry would hide a fault."""
    return openai.OpenAI(base_url=f"http://127.0.0.1:{session.port}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hello", "Hello world"),
        ("diary-fr", "Vous pouvez noter les faits."),
        ("unicode", "Bonjour à tous ! 你好 🎉 — ça marche."),
    ],
)
def test_openai_python_reads_the_stream(session: Session, name: str, text: str) -> None:
    request = json.loads(body(name))
    with reader(session) as client:
        chunks = list(client.chat.completions.create(**request))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_openai_python_reads_the_answer_that_is_not_streamed(session: Session) -> None:
    request = {**json.loads(body("hello")), "stream": False}
    with reader(session) as client:
        assert client.chat.completions.create(**request).choices[0].message.content == "Hello world"


def test_openai_python_reads_the_tool_call(session: Session) -> None:
    with reader(session) as client:
        chunks = list(client.chat.completions.create(**json.loads(body("tool"))))
    (call,) = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert call.function is not None
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments or "") == {"city": "Paris"}


def test_openai_python_sees_the_error(session: Session) -> None:
    with reader(session) as client, pytest.raises(openai.BadRequestError) as raised:
        client.post(CHAT.removeprefix("/v1"), body={"model": "default_model", "stream": True}, cast_to=object)
    assert raised.value.response.json() == {"error": "Request did not contain messages"}
