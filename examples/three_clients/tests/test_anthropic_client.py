"""anthropic-python against a recording of a real llama-server, which speaks Anthropic's protocol too."""

import pytest
from chat import answer
from chat.with_anthropic import ask_anthropic


def test_it_streams(mockllm):
    assert "".join(ask_anthropic("Say hello", mockllm.base_url)) == "Hello world"


@pytest.mark.mockllm("cassettes/test_anthropic_client/test_it_streams", faults="error:at=2ev,style=anthropic")
def test_an_error_in_mid_stream(mockllm):
    assert answer(ask_anthropic("Say hello", mockllm.base_url)) == "no answer"
    (entry,) = mockllm.journal
    assert entry.faults[0]["effect"]


@pytest.mark.mockllm("cassettes/test_anthropic_client/test_it_streams", speed=0)
def test_what_was_asked_is_in_the_journal(mockllm, monkeypatch):
    for name, value in mockllm.environment.items():
        monkeypatch.setenv(name, value)
    assert answer(ask_anthropic("Say hello")) == "Hello world"
    (entry,) = mockllm.journal
    assert (entry.method, entry.path, entry.status) == ("POST", "/v1/messages", 200)
    assert entry.json["max_tokens"] == 64
