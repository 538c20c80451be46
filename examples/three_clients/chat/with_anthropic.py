"""A question through Anthropic's client, the answer piece by piece."""

from collections.abc import Iterator

import anthropic


def ask_anthropic(question: str, base_url: str | None = None, model: str = "tiny-chat") -> Iterator[str]:
    """The pieces of the answer. Raises anthropic.AnthropicError."""
    with anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0) as client:
        stream = client.messages.create(
            model=model,
            max_tokens=64,
            messages=[{"role": "user", "content": question}],
            extra_body={"temperature": 0},
            stream=True,
        )
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                yield event.delta.text
