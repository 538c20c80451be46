"""ollama-python against an answer that was written by hand. What else the client says in its request does not count."""

import pytest
from chat.with_ollama import ask_ollama

pytestmark = pytest.mark.mockllm("cassettes/ollama.jsonl", ignore=["/tools", "/options"])


def test_it_streams(mockllm):
    assert list(ask_ollama("Say hello", mockllm.base_url)) == ["Hello", " world", ""]


@pytest.mark.mockllm_faults("crlf", "split:inside=utf8", "split:random", "join")
def test_it_does_not_care_how_the_stream_is_cut(mockllm):
    assert "".join(ask_ollama("Say hello", mockllm.base_url)) == "Hello world"


@pytest.mark.mockllm(speed=0.5)
def test_a_slow_server(mockllm):
    assert "".join(ask_ollama("Say hello", mockllm.base_url)) == "Hello world"
