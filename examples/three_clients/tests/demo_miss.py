"""What a miss looks like: `pytest tests/demo_miss.py` fails, although the program under test swallows the error."""

import pytest
from chat import answer
from chat.with_openai import ask_openai


@pytest.mark.mockllm("cassettes/test_openai_client/test_it_streams")
def test_a_question_that_was_never_recorded(mockllm):
    assert answer(ask_openai("Say goodbye", mockllm.openai_base_url)) == "no answer"
