"""The cassettes that ship: readable, without traces of a machine, and the quirks they are there for."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import openai
import pytest

from mockllm import files
from mockllm.core.dialects import family, text
from mockllm.core.events import Kind, events
from mockllm.core.http1 import scan
from mockllm.core.response import Then
from tests.shell.serving import replaying

FOLDER = files.shipped()
QUIRKS = FOLDER / "quirks"
MLX = FOLDER / "mlx_lm.server"
LLAMA = FOLDER / "llama-server"
CONVERSATIONS = {"diary-fr", "hello", "haiku", "unicode", "sse", "long", "tool", "tool-result", "reasoning"}


def asked(path: Path) -> dict[str, object]:
    """What the recording's client asked."""
    (exchange,) = files.read_all(path)
    return dict(json.loads(exchange.request.body or b"{}"))


def chunks(path: Path, prompt: str) -> Iterator[object]:
    """What openai-python makes of a quirk."""
    with replaying(path, speed=0) as replay, openai.OpenAI(base_url=replay.url + "/v1", api_key="none") as client:
        messages = [{"role": "user", "content": prompt}]
        yield from client.chat.completions.create(model="any", stream=True, messages=messages)  # type: ignore[call-overload]


def test_all_that_the_issue_names_is_there() -> None:
    names = {path.stem for path in MLX.glob("*.jsonl")}
    assert names >= CONVERSATIONS | {"hello-usage", "hello-nonstream", "completions", "models", "health"}
    assert {name for name in names if name.startswith("error-")}
    names = {path.stem for path in LLAMA.glob("*.jsonl")}
    chats = {f"chat-{name}" for name in CONVERSATIONS}
    assert names >= chats | {"chat-long-ping", "messages-hello", "responses-hello", "models", "health"}
    assert {name for name in names if name.startswith("error-")}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.jsonl")), ids=lambda path: path.stem)
def test_a_cassette_is_genuine_or_says_that_it_is_written(path: Path) -> None:
    raw = path.read_text(encoding="utf-8")
    assert not re.search(r"rawcap|[0-9a-z-]+\.(local|internal)\b", raw), (
        "a name of a machine, or of what was used on it"
    )
    assert not re.search(r'"/(work|root|home|tmp|Users)/|/(site-packages|\.venv)/', raw), "a path of a machine"
    (exchange,) = files.read_all(path)
    if path.parent == QUIRKS:
        assert exchange.meta["origin"] == "written"
    else:
        assert exchange.meta["recorded"]
        assert str(exchange.meta["upstream"]).startswith("http://127.0.0.1:")


def test_the_long_prompt_has_several_keepalives() -> None:
    (exchange,) = files.read_all(MLX / "long.jsonl")
    assert len(re.findall(rb": keepalive \d+/\d+\n\n", scan(exchange.response).body)) >= 5


def test_pings_of_llama_server() -> None:
    """A bare colon in a chunk of its own, every few seconds, while it reads a long prompt."""
    (exchange,) = files.read_all(LLAMA / "chat-long-ping.jsonl")
    pings = [segment.at for segment in exchange.response.segments if segment.data == b":\n\n"]
    assert len(pings) >= 5
    assert all(1_500_000 < later - earlier < 4_000_000 for earlier, later in pairwise(pings))


def test_llama_server_closes_what_it_promises_to_keep() -> None:
    (exchange,) = files.read_all(LLAMA / "chat-hello.jsonl")
    assert b"\r\nKeep-Alive: " in exchange.response.wire
    assert exchange.response.then is Then.FIN


@pytest.mark.parametrize(
    ("name", "who"), [("chat-hello", "llama"), ("messages-hello", "anthropic"), ("responses-hello", "responses")]
)
def test_llama_server_speaks_several_dialects(name: str, who: str) -> None:
    (exchange,) = files.read_all(LLAMA / f"{name}.jsonl")
    found = events(scan(exchange.response).body, b"text/event-stream")
    assert family(exchange.request.target, b"text/event-stream", found) == who
    assert "".join(map(text, found)) == "Hello world"


def test_a_stream_that_ends_without_done() -> None:
    (exchange,) = files.read_all(MLX / "hello-truncated.jsonl")
    body = scan(exchange.response).body
    assert b"finish_reason" in body
    assert b"[DONE]" not in body


def test_the_stream_of_the_bug_that_started_this_project(tmp_path: Path) -> None:
    path = QUIRKS / "keepalive-19-33.jsonl"
    body = asked(path)
    with replaying(path, speed=0) as replay:
        with openai.OpenAI(base_url=replay.url + "/v1", api_key="none") as client:
            found = list(client.chat.completions.create(**body))  # type: ignore[call-overload]
        assert "".join(c.choices[0].delta.content or "" for c in found if c.choices) == "Vous pouvez noter les faits."
        assert next(c.usage for c in found if c.usage).prompt_tokens == 3000
        with httpx.stream("POST", replay.url + "/v1/chat/completions", json=body) as response:
            lines = list(response.iter_lines())
    assert [line for line in lines if line.startswith(":")] == [": keepalive 19/33", ": keepalive 33/33"]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data:")]
    assert data[-1] == "[DONE]"
    parsed = [json.loads(one) for one in data[:-1]]
    assert "".join(c["delta"]["content"] for one in parsed for c in one["choices"]) == "Vous pouvez noter les faits."
    assert parsed[-1]["usage"] == {"prompt_tokens": 3000, "completion_tokens": 5, "total_tokens": 3005}


def test_a_first_chunk_without_choices() -> None:
    first, *rest = chunks(QUIRKS / "first-chunk-without-choices.jsonl", "first chunk without choices")
    assert first.choices == []  # type: ignore[attr-defined]
    assert "".join(c.choices[0].delta.content or "" for c in rest) == "Hello"  # type: ignore[attr-defined]


def test_tool_calls_that_share_an_index() -> None:
    found = list(chunks(QUIRKS / "tool-calls-sharing-an-index.jsonl", "tool calls sharing an index"))
    calls = [call for c in found for call in c.choices[0].delta.tool_calls or []]  # type: ignore[attr-defined]
    assert {call.index for call in calls} == {0}
    assert [call.id for call in calls if call.id] == ["call_a", "call_b"]
    assert "".join(call.function.arguments for call in calls) == '{"city":"Paris"}{"zone":"CET"}'


def test_nulls_where_objects_are_expected() -> None:
    (exchange,) = files.read_all(QUIRKS / "nulls.jsonl")
    found = [one.json() for one in events(scan(exchange.response).body, b"text/event-stream") if one.data != b"[DONE]"]
    assert None in found
    choices = [one["choices"][0]["delta"] for one in found if one]
    assert None in choices
    assert any(delta is not None and delta.get("tool_calls", "") is None for delta in choices)


def test_an_emoji_over_two_deltas() -> None:
    (exchange,) = files.read_all(QUIRKS / "emoji-over-two-deltas.jsonl")
    body = scan(exchange.response).body
    assert b'"\\ud83c"' in body
    assert b'"\\udf89"' in body
    pieces = [text(one) for one in events(body, b"text/event-stream") if one.kind is Kind.EVENT]
    joined = "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16")
    assert joined == "Hurra 🎉"


@pytest.mark.timeout(120)
def test_the_wheel_has_them(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=110)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("mockllm_cassette-")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".jsonl")}
    assert inside == {f"mockllm/cassettes/{path.relative_to(FOLDER)}" for path in FOLDER.rglob("*.jsonl")}
    assert "mockllm/py.typed" in zipfile.ZipFile(wheel).namelist()
    # outside the checkout they are found in the package
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    code = "import mockllm.files; print(mockllm.files.shipped())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.strip() == str(tmp_path / "installed" / "mockllm" / "cassettes")
