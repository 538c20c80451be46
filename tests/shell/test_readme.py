"""The README's tour, run as it stands: its blocks in order in one shell, only the ports replaced by free ones."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.peers.command import Running

README = Path(__file__).parents[2] / "README.md"
PORTS = ("8080", "8801", "8800")

# A person at a terminal takes a moment between commands; here the shell waits for what was started.
SHELL = r"""
set -euo pipefail
await() {
    for _ in $(seq 200); do
        if curl -sf "http://127.0.0.1:$1/_mockllm/health" >/dev/null; then return; fi
        sleep 0.05
    done
    echo "nothing listens on port $1" >&2
    exit 1
}
"""


def blocks(heading: str) -> list[str]:
    """The sh blocks of a section."""
    text = README.read_text(encoding="utf-8")
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section, f"the README has no section {heading}"
    return re.findall(r"^```sh\n(.*?)^```$", section[1], re.M | re.S)


def free_ports(count: int) -> list[str]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


def port_of(command: str) -> str:
    """Where a `mockllm record` or `replay` of the README listens."""
    given = re.search(r"--port (\d+)", command)
    return given[1] if given else PORTS[1 if " record " in command else 2]


def script(text: str) -> str:
    """The blocks as a shell script that waits for each server it starts, with free ports."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if line.endswith("&"):
            lines.append(f"await {port_of(line)}")
    whole = SHELL + "\n".join(lines)
    for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True):
        whole = re.sub(rf"\b{port}\b", free, whole)
    return whole


def with_ports(text: str) -> str:
    """Every server of the tour gets its port on the command line, so that none stands on a default one."""
    named = [
        re.sub(r" &$", f" --port {port_of(line)} &", line) if "--port" not in line else line
        for line in text.splitlines()
    ]
    return "\n".join(named)


def test_every_block_of_the_tour_runs(tmp_path: Path) -> None:
    tour = "\n".join(blocks("Five minutes"))
    assert "mockllm record" in tour
    assert "mockllm replay tapes" in tour
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    process = subprocess.Popen(
        ["bash", "-c", script(with_ports(tour))],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=40)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{output}\n{errors}"
    assert output.count("data: [DONE]\n") == 2, "the recorded answer and the replayed one"
    assert "curl says 56: the connection was reset" in output
    assert "after cut:at=2ev,end=rst:" in output
    assert '"stream_status":"server_cut"' in output
    assert "odd" in output, "what show says"
    assert (
        "the nearest is tapes/000001-post-v1-chat-completions.jsonl:1, but body: $.temperature is 1, recorded 0"
        in output
    )
    assert "1 exchange in 1 file: all readable" in output
    (tape,) = (tmp_path / "tapes").iterdir()
    assert "sk-no-key" not in tape.read_text(encoding="utf-8")


def test_the_first_curl_gets_an_answer_with_keepalives(tmp_path: Path) -> None:
    curl = blocks("Two commands")[1]
    replay = Running("replay", cwd=tmp_path)
    try:
        curl = curl.replace("http://127.0.0.1:8800", replay.base_url)
        answer = subprocess.run(
            ["bash", "-c", curl], capture_output=True, encoding="utf-8", timeout=20, check=True
        ).stdout
    finally:
        finished = replay.stop()
    assert finished.status == 0
    assert answer.startswith("HTTP/1.0 200 OK")
    assert ": keepalive" in answer
    assert answer.endswith("data: [DONE]\n\n")
