"""openai-python against recordings of a real mlx_lm.server, in cassettes/test_openai_client/<test>/."""

import openai
import pytest
from chat import answer
from chat.with_openai import ask_openai

HELLO = "cassettes/test_openai_client/test_it_streams"


def test_it_streams(mockllm):
    pieces = list(ask_openai("Say hello", mockllm.openai_base_url))
    assert "".join(pieces) == "Hello world"
    assert len(pieces) > 1
    (entry,) = mockllm.journal
    assert entry.json["messages"] == [{"role": "user", "content": "Say hello"}]


# openai-python takes a `retry:` field without data for an event, and fails to parse its JSON
@pytest.mark.mockllm(HELLO)
@pytest.mark.mockllm_faults("benign", without="retry")
def test_it_does_not_care_how_the_stream_is_spelled(mockllm):
    assert "".join(ask_openai("Say hello", mockllm.openai_base_url)) == "Hello world"


@pytest.mark.mockllm(HELLO, faults="cut:at=2ev,end=rst", speed=0)
def test_it_fails_where_the_connection_breaks(mockllm):
    pieces = ask_openai("Say hello", mockllm.openai_base_url)
    assert next(pieces) == "Hello"
    assert answer(pieces) == "no answer"


@pytest.mark.mockllm(HELLO, faults="status:code=429,times=1", speed=0)
def test_it_can_be_asked_again(mockllm):
    with pytest.raises(openai.RateLimitError):
        list(ask_openai("Say hello", mockllm.openai_base_url))
    assert "".join(ask_openai("Say hello", mockllm.openai_base_url)) == "Hello world"
