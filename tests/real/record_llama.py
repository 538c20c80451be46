"""Makes the cassettes of cassettes/llama-server anew: byte captures of a real llama-server, played by a raw socket with
their own timing and recorded by `mockllm record`.

    .venv/bin/python -m tests.real.record_llama cassettes/llama-server

Only the request's Host and User-Agent are not those of the capture.
"""

import sys
import tempfile
from pathlib import Path

from mockllm import files
from tests.peers.captures import Capture, from_capture, load
from tests.peers.client import RawClient, borders
from tests.peers.command import Running
from tests.peers.framing import answer_end
from tests.peers.server import RawServer

UPSTREAM_PORT, RECORDER_PORT = 8080, 8801
WANTED = {
    "chat-diary-fr": "chat-diary-fr",
    "chat-haiku": "chat-haiku",
    "chat-hello": "chat-hello",
    "chat-hello-nonstream": "chat-hello-nonstream",
    "chat-hello-usage": "chat-hello-usage",
    "chat-long": "chat-long",
    "chat-long-ping": "ping2_stream_long_prompt",
    "chat-long-progress": "chat-long-progress",
    "chat-reasoning": "chat-reasoning",
    "chat-sse": "chat-sse",
    "chat-tool": "chat-tool",
    "chat-tool-nonstream": "chat-tool-nonstream",
    "chat-tool-result": "chat-tool-result",
    "chat-unicode": "chat-unicode",
    "completion": "stream_native_completion",
    "completions": "stream_completions",
    "error-bad-json": "invalid-json",
    "error-no-messages": "missing-messages",
    "error-not-found": "not-found",
    "health": "health",
    "messages-hello": "messages-hello",
    "models": "models",
    "responses-hello": "responses-hello",
}
"""The captures by the names of their cassettes."""
APART_US = 2000
"""Reads that came so far apart must be two reads on tape as well."""


def request_of(capture: Capture) -> bytes:
    """The request as a client of the recorder sends it."""
    head, _, body = capture.request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"User-Agent:")]
    lines[1] = b"Host: 127.0.0.1:%d" % RECORDER_PORT
    return b"\r\n".join([*lines, b"", body])


def record(capture: Capture, path: Path) -> str:
    """Record one capture; what the recorder said of it. AssertionError where reads that were apart are joined."""
    with tempfile.TemporaryDirectory() as work, RawServer([from_capture(capture)], port=UPSTREAM_PORT) as server:
        tapes = Path(work, "tapes")
        recorder = Running("record", server.url, "-o", tapes, "--port", str(RECORDER_PORT))
        with RawClient(recorder.host, recorder.port, timeout_s=60) as client:
            client.send(request_of(capture))
            client.read(answer_end)
            recorder.wait_for("complete")
        finished = recorder.stop()
        (tape,) = tapes.iterdir()
        (exchange,) = files.read_all(tape)
        assert exchange.response.wire == capture.wire
        assert borders(capture.reads, gap_us=APART_US) <= borders(exchange.response.reads()), "this machine is too busy"
        tape.replace(path)
        return finished.stderr.splitlines()[0]


def main(folder: Path) -> None:
    """Record all that is wanted into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, capture in WANTED.items():
        print(f"{name}: {record(load('llama-server', capture), folder / f'{name}.jsonl')}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
