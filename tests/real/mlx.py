"""Starts a real mlx_lm.server with the tiny model, in the Python that has mlx-lm (`tests/real/setup`).

It must not know what is asked of the server.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.peers.client import ask, get

MODEL = Path(__file__).parent / "tiny-chat"
NAME = "mockllm/tiny-chat"
_REVISION = "0" * 40


@contextmanager
def mlx_server(python: str, folder: Path, *, port: int = 0, timeout_s: float = 60) -> Iterator[int]:
    """A server that answers /health, on the port it yields; stopped at the end. `folder` keeps its log and caches.

    Its model lies in a hub cache, so that it has a name and no path of this machine is in what the server says.

    AssertionError, with the log, where it is not there in time.
    """
    _fill_hub(folder / "hf" / "hub")
    log = folder / "mlx.log"
    with socket.create_server(("127.0.0.1", port)) as probe:
        port = probe.getsockname()[1]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", "mlx_lm", "server", "--model", NAME, "--port", str(port), "--prefill-step-size", "512"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")},
        )
    try:
        deadline = time.monotonic() + timeout_s
        while not _healthy(port):
            assert process.poll() is None, f"mlx_lm.server ended with {process.returncode}:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"mlx_lm.server is not ready after {timeout_s} s:\n{log.read_text()}"
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _fill_hub(hub: Path) -> None:
    """The model as the hub's client would have left it there."""
    repo = hub / f"models--{NAME.replace('/', '--')}"
    snapshot = repo / "snapshots" / _REVISION
    snapshot.mkdir(parents=True)
    for file in MODEL.iterdir():
        if file.is_file():
            shutil.copy(file, snapshot)
    # mlx_lm.server lists only models that have one; the loader looks for model*.safetensors
    (snapshot / "model.safetensors.index.json").write_text('{"metadata": {}, "weight_map": {}}')
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(_REVISION)


def _healthy(port: int) -> bool:
    with suppress(OSError):
        return ask("127.0.0.1", port, get("/health"), timeout_s=5).wire.startswith(b"HTTP/1.0 200")
    return False
