"""Makes the cassettes of cassettes/mlx_lm.server anew: a real mlx_lm.server, recorded by `mockllm record`.

    MLX_PYTHON=$(tests/real/setup) && .venv/bin/python -m tests.real.record_cassettes $MLX_PYTHON
    cassettes/mlx_lm.server

Every exchange gets a fresh server, since the server remembers prompts and a warm one sends fewer keepalives.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.client import ask
from tests.peers.command import Running
from tests.real.mlx import MODEL, mlx_server

CHAT = "/v1/chat/completions"
MLX_PORT, RECORDER_PORT = 8080, 8801


@dataclass(frozen=True, slots=True)
class Wanted:
    """One exchange: the cassette's name and what is asked."""

    name: str
    body: bytes | None
    path: str = CHAT

    @property
    def request(self) -> bytes:
        method = b"GET" if self.body is None else b"POST"
        host = b"Host: 127.0.0.1:%d" % RECORDER_PORT
        lines = [b"%s %s HTTP/1.1" % (method, self.path.encode()), host, b"Accept: */*"]
        if self.body is not None:
            lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(self.body)]
        return b"\r\n".join([*lines, b"", self.body or b""])


def wanted() -> list[Wanted]:
    """Everything that is shipped, one answer a file."""
    asked = {path.stem: json.loads(path.read_bytes()) for path in sorted((MODEL / "requests").glob("*.json"))}
    hello = asked["hello"]

    def chat(name: str, body: Any) -> Wanted:
        return Wanted(name, json.dumps(body, ensure_ascii=False).encode())

    prompt = {"model": "default_model", "stream": True, "temperature": 0, "max_tokens": 8, "prompt": "Say hello"}
    return [
        *(chat(name, body) for name, body in asked.items()),
        chat("hello-usage", {**hello, "stream_options": {"include_usage": True}}),
        chat("hello-nonstream", {**hello, "stream": False}),
        chat("hello-truncated", {**hello, "stream_options": {}}),
        Wanted("completions", json.dumps(prompt).encode(), "/v1/completions"),
        Wanted("error-bad-json", b'{"model": "default_model", "messages": ['),
        chat("error-no-messages", {"model": "default_model", "stream": True}),
        Wanted("error-not-found", b"{}", "/v1/nothing"),
        Wanted("models", None, "/v1/models"),
        Wanted("health", None, "/health"),
    ]


def main(python: str, folder: Path) -> None:
    """Record all that is wanted into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in wanted():
        with tempfile.TemporaryDirectory() as work, mlx_server(python, Path(work, "mlx"), port=MLX_PORT):
            tapes = Path(work, "tapes")
            upstream = f"http://127.0.0.1:{MLX_PORT}"
            recorder = Running("record", upstream, "-o", tapes, "--port", str(RECORDER_PORT))
            answer = ask(recorder.host, recorder.port, item.request, timeout_s=60)
            finished = recorder.stop()
            (tape,) = tapes.iterdir()
            tape.replace(folder / f"{item.name}.jsonl")
            print(f"{item.name}: {len(answer.wire)} B; {finished.stderr.splitlines()[0]}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
