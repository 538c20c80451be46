"""A question through OpenAI's client, the answer piece by piece."""

from collections.abc import Iterator

import openai


def ask_openai(question: str, base_url: str, model: str = "default_model") -> Iterator[str]:
    """The pieces of the answer. Raises openai.OpenAIError."""
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], temperature=0, stream=True
        )
        for chunk in stream:
            for choice in chunk.choices:
                yield choice.delta.content or ""
