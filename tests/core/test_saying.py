"""What JSON of each family says, as events and as whole answers."""

from typing import Any

import pytest

from mockllm.core.saying import delta_names, error_of, joined, reasons_of, text_of, tokens, usage_of

CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5},
}
ANTHROPIC = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
    ],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 5},
}
RESPONSES = {
    "object": "response",
    "output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}],
    "usage": {"input_tokens": 3, "output_tokens": 5},
}
OLLAMA = {
    "message": {"content": "Hello"},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 3,
    "eval_count": 5,
}
LLAMA = {"content": "Hello", "stop": True, "stop_type": "eos", "tokens_evaluated": 3, "tokens_predicted": 5}
GEMINI = {
    "candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5},
}


@pytest.mark.parametrize(
    ("value", "reasons"),
    [
        (CHAT, ["stop"]),
        (ANTHROPIC, ["end_turn"]),
        (RESPONSES, []),
        (OLLAMA, ["stop"]),
        (LLAMA, ["eos"]),
        (GEMINI, ["STOP"]),
    ],
    ids=["chat", "anthropic", "responses", "ollama", "llama", "gemini"],
)
def test_a_whole_answer(value: Any, reasons: list[str]) -> None:
    assert text_of(value) == "Hello"
    assert tokens(usage_of(value)) == (3, 5)
    assert reasons_of(value) == reasons
    assert error_of(value) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}, "ab"),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}, 7]}}]}, "ab"),
        ({"choices": [{"text": "a"}]}, "a"),
        ({"choices": None, "done": True, "response": "a"}, "a"),
        ({"choices": {}}, ""),
        ({"type": "content_block_delta", "delta": {"text": "a"}}, "a"),
        ({"content": []}, ""),
        (["a"], ""),
        (None, ""),
    ],
)
def test_text(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_texts_are_joined_over_halves_of_characters() -> None:
    assert joined(["a\ud83c", "\udf89b"]) == "a🎉b"
    assert joined(["\ud83c", "x\udf89"]) == "�x�"
    assert joined([]) == ""


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ({"message": {"usage": {"input_tokens": 1}}, "type": "message_start"}, {"input_tokens": 1}),
        ({"response": {"usage": {"output_tokens": 2}}}, {"output_tokens": 2}),
        ({"x_groq": {"usage": {"prompt_tokens": 2}}}, {"prompt_tokens": 2}),
        ({"usage": None}, {}),
        ({"eval_count": "5"}, {}),
        (7, {}),
    ],
)
def test_usage(value: Any, counts: dict[str, Any]) -> None:
    assert usage_of(value) == counts


def test_tokens_that_are_not_there() -> None:
    assert tokens({}) == (None, None)
    assert tokens({"prompt_tokens": None, "input_tokens": 4}) == (4, None)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"error": "bad"}, "bad"),
        ({"error": {"message": "bad", "code": 3}}, "bad"),
        ({"error": {"code": 3}}, ""),
        ({"type": "error", "message": "bad", "sequence_number": 4}, "bad"),
        ({"object": "error", "message": "bad"}, "bad"),
        ({"type": "response.failed", "response": {"error": {"message": "bad"}}}, "bad"),
        ({"error": None, "choices": []}, None),
        ({"error": {}}, None),
        ("error", None),
    ],
)
def test_errors(value: Any, error: str | None) -> None:
    assert error_of(value) == error


def test_what_else_deltas_carry() -> None:
    value = {
        "choices": [
            {"delta": {"role": "assistant", "content": "a", "reasoning": "b", "refusal": None}},
            {"delta": {"tool_calls": [{}], "reasoning": "c"}},
            {"delta": None},
        ]
    }
    assert delta_names(value) == ["reasoning", "tool_calls"]
    assert delta_names(None) == reasons_of(None) == []
