"""mockllm: records what a real LLM server sends, every byte with its time, and replays it exactly."""

__version__ = "0.1.0"
