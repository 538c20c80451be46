"""A question through Ollama's client, the answer piece by piece."""

from collections.abc import Iterator

import ollama


def ask_ollama(question: str, host: str, model: str = "tiny-chat") -> Iterator[str]:
    """The pieces of the answer. Raises ollama.ResponseError."""
    for part in ollama.Client(host=host).chat(
        model=model, messages=[{"role": "user", "content": question}], stream=True
    ):
        yield part.message.content or ""
