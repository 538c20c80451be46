"""Real clients against replays of real servers' answers, and one in front of a recorder: openai-python, anthropic,
ollama, httpx and curl see what the server would have shown them.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from mockllm import files
from mockllm.core.response import End
from tests.peers.captures import from_capture, load
from tests.peers.client import ask
from tests.peers.script import Fin, Script, Send, Wait
from tests.peers.server import RawServer
from tests.shell.serving import Replaying, recording, replaying, without_proxies
from tests.shell.tapes import CHUNKED_HEAD, head, plain, request, write

CAPTURES = [
    ("llama-server", "chat-hello"),
    ("llama-server", "chat-hello-nonstream"),
    ("llama-server", "chat-tool"),
    ("llama-server", "responses-hello"),
    ("llama-server", "messages-hello"),
    ("mlx_lm.server", "stream_chat_usage"),
]
MESSAGES: Any = [{"role": "user", "content": "Say hello"}]


@pytest.fixture(autouse=True)
def no_proxies() -> Iterator[None]:
    with without_proxies():
        yield


@pytest.fixture(scope="module")
def tapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each capture, made by a recorder."""
    folder = tmp_path_factory.mktemp("tapes")
    for server, name in CAPTURES:
        capture = load(server, name)
        with RawServer([from_capture(capture, cap_ms=1)]) as upstream:
            with recording(upstream.url, folder / server / name) as recorder:
                assert ask(recorder.host, recorder.port, capture.request).wire == capture.wire
                recorder.log.wait(1)
    return folder


@pytest.fixture
def play(tapes: Path) -> Any:
    """Replay one capture's tape, whatever is asked: `with play("llama-server", "chat-hello") as replay`."""

    def start(server: str, name: str) -> Any:
        return replaying(tapes / server / name, closest=True)

    return start


def chat_of(replay: Replaying, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{replay.url}/v1", api_key="k", timeout=15, **more)


def text_of(capture: str, server: str = "llama-server") -> str:
    """What the `data:` lines of a capture say."""
    text = ""
    for line in load(server, capture).wire.decode().split("\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return text


@pytest.mark.parametrize(("server", "name"), [CAPTURES[0], CAPTURES[5]])
def test_openai_reads_a_stream(server: str, name: str, play: Any) -> None:
    with play(server, name) as replay, chat_of(replay) as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        chunks = list(stream)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == text_of(name, server)
        assert text
        assert chunks[-1].usage is not None or server == "llama-server"
        assert len(replay.log.wait(1)) == 1


def test_openai_reads_streams_at_the_same_time(play: Any) -> None:
    async def main(url: str) -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", timeout=15) as client:

            async def one() -> str:
                stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

            return await asyncio.gather(*(one() for _ in range(8)))

    with play("llama-server", "chat-hello") as replay:
        assert set(asyncio.run(main(replay.url))) == {text_of("chat-hello")}


def test_openai_reads_what_is_no_stream(play: Any) -> None:
    with play("llama-server", "chat-hello-nonstream") as replay, chat_of(replay) as client:
        for _ in range(2):
            answer = client.chat.completions.create(model="m", messages=MESSAGES)
            assert answer.choices[0].message.content


def test_openai_reads_tool_calls(play: Any) -> None:
    with play("llama-server", "chat-tool") as replay, chat_of(replay) as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        calls = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or []]
        assert json.loads("".join(call.function.arguments or "" for call in calls if call.function)) is not None


def test_openai_reads_responses(play: Any) -> None:
    with play("llama-server", "responses-hello") as replay, chat_of(replay) as client:
        kinds = [event.type for event in client.responses.create(model="m", input="hi", stream=True)]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


def test_anthropic_reads_a_stream(play: Any) -> None:
    with play("llama-server", "messages-hello") as replay:
        with anthropic.Anthropic(base_url=replay.url, api_key="k", timeout=15) as client:
            with client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
                assert "".join(stream.text_stream)
                assert stream.get_final_message().stop_reason


def test_ollama_reads_a_stream(tmp_path: Path) -> None:
    pieces = [
        {"model": "m", "message": {"role": "assistant", "content": text}, "done": False} for text in ("Hel", "lo")
    ]
    lines = [[1, "data", json.dumps(piece) + "\n"] for piece in [*pieces, pieces[0] | {"done": True}]]
    chunked = head(Content_Type="application/x-ndjson", Transfer_Encoding="chunked")
    ending = [[0, "wire", "0\r\n\r\n"], [0, "end", "complete"]]
    write(tmp_path / "a.jsonl", request("/api/chat", body="any"), chunked, *lines, *ending)
    with replaying(tmp_path) as replay:
        client = ollama.Client(host=replay.url, timeout=15)
        parts = list(client.chat(model="m", messages=MESSAGES, stream=True))
    assert "".join(part.message.content or "" for part in parts) == "HelloHel"
    assert [part.done for part in parts] == [False, False, True]


def test_the_stream_of_the_bug_that_started_it_all() -> None:
    with replaying(files.shipped() / "quirks" / "keepalive-19-33.jsonl", closest=True, speed=0) as replay:
        with chat_of(replay) as client:
            chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
        with httpx.stream("POST", f"{replay.url}/v1/chat/completions", json={"stream": True}) as answer:
            lines = list(answer.iter_lines())
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Vous pouvez noter les faits."
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 3000
    assert lines[0] == ": keepalive 19/33"
    data = [line[6:] for line in lines if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    read = [json.loads(line) for line in data]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in read if c["choices"]) == (
        "Vous pouvez noter les faits."
    )


# --- errors are met once


def test_a_miss_is_not_tried_again(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/v1/models", "GET"), *plain("{}"))
    with replaying(tmp_path) as replay, chat_of(replay, max_retries=3) as client:
        with pytest.raises(
            openai.NotFoundError, match="no recording answers POST /v1/chat/completions; the nearest is"
        ):
            client.chat.completions.create(model="m", messages=MESSAGES)
        assert len(replay.log.wait(1)) == 1
        assert replay.app.misses == 1
        with anthropic.Anthropic(base_url=replay.url, api_key="k", max_retries=3) as other:
            with pytest.raises(anthropic.NotFoundError, match="no recording answers POST /v1/messages"):
                other.messages.create(model="m", max_tokens=9, messages=MESSAGES)
        assert replay.app.misses == 2


def test_a_server_that_is_not_there_is_not_tried_again(tmp_path: Path) -> None:
    with recording("http://127.0.0.1:1", tmp_path) as recorder:
        with openai.OpenAI(base_url=f"{recorder.url}/v1", api_key="k", max_retries=3) as client:
            with pytest.raises(openai.InternalServerError, match=r"127\.0\.0\.1:1 refused the connection"):
                client.chat.completions.create(model="m", messages=MESSAGES)
        assert len(recorder.log.wait(1)) == 1


def test_an_sdk_that_leaves_at_done_gets_a_whole_tape(tmp_path: Path) -> None:
    capture = load("llama-server", "chat-hello")
    done = capture.wire.index(b"data: [DONE]")
    cut = capture.wire.index(b"\r\n", done) + 2
    script: Script = [Send(capture.wire[:cut]), Wait(60), Send(capture.wire[cut:]), Wait(5), Fin()]
    with RawServer([script]) as server, recording(server.url, tmp_path) as recorder:
        with openai.OpenAI(base_url=f"{recorder.url}/v1", api_key="k") as client:
            with client.chat.completions.create(model="m", messages=MESSAGES, stream=True) as stream:
                assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == text_of("chat-hello")
        (tape,) = recorder.tapes()
    assert (tape.response.wire, tape.response.end) == (capture.wire, End.COMPLETE)


# --- httpx and curl

ENDINGS: dict[str, tuple[list[Any], int]] = {
    # an answer, and curl's exit status for it
    "complete": ([CHUNKED_HEAD, [0, "data", "abc"], [0, "wire", "0\r\n\r\n"], [0, "end", "complete"]], 0),
    "close-delimited": ([head(version="1.0"), [0, "data", "abc"], [0, "end", "complete"]], 0),
    "chunked, fin": ([CHUNKED_HEAD, [0, "data", "abc"], [0, "end", "fin"]], 18),
    "length, fin": ([head(Content_Length="9"), [0, "data", "abc"], [0, "end", "fin"]], 18),
    "chunked, rst": ([CHUNKED_HEAD, [0, "data", "abc"], [0, "end", "rst"]], 56),
    "close-delimited, client": ([head(version="1.0"), [0, "data", "abc"], [0, "end", "client"]], 56),
    "nothing": ([[0, "end", "fin"]], 52),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_httpx_sees_how_it_ended(name: str, tmp_path: Path) -> None:
    lines, curl_status = ENDINGS[name]
    write(tmp_path / "a.jsonl", request("/", "GET"), *lines)
    with replaying(tmp_path) as replay:
        if curl_status == 0:
            assert httpx.get(replay.url).content == b"abc"
            return
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            httpx.get(replay.url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("name", ENDINGS)
def test_curl_sees_how_it_ended(name: str, tmp_path: Path) -> None:
    lines, status = ENDINGS[name]
    write(tmp_path / "a.jsonl", request("/", "GET"), *lines)
    with replaying(tmp_path) as replay:
        done = subprocess.run(
            ["curl", "-sN", "--max-time", "10", f"{replay.url}/"], capture_output=True, check=False, timeout=20
        )
    assert (done.returncode, done.stdout) == (status, b"" if name == "nothing" else b"abc")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl_sees_the_servers_own_head(tapes: Path) -> None:
    capture = load("mlx_lm.server", "stream_chat_usage")
    body = capture.request.partition(b"\r\n\r\n")[2]
    with replaying(tapes / "mlx_lm.server") as replay:
        words = ["curl", "-siN", "--max-time", "10", "--data-binary", "@-", f"{replay.url}/v1/chat/completions"]
        done = subprocess.run(words, input=body, capture_output=True, check=True, timeout=20)
    assert done.stdout == capture.wire
