"""Ten thousand recordings: ready in about a second, memory bounded, in many files or in one."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Launch
from tests.peers.client import ask, post
from tests.peers.framing import answer_end
from tests.shell.tapes import plain, plain_wire, request, write

COUNT = 10_000
READY_S = 5
"""About one on an idle machine; on a busy one only the time spent computing says anything."""
BODY = "0123456789abcdef" * 250


def body(number: int) -> dict[str, object]:
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"What is {number}?"}]}


def lines(number: int) -> list[object]:
    return [request("/v1/chat/completions", json=body(number)), *plain(f"{number} {BODY}")]


def into_folder(folder: Path) -> None:
    for number in range(COUNT):
        write(folder / f"{number:06d}-post-v1-chat-completions.jsonl", *lines(number))


def into_one_file(folder: Path) -> None:
    write(folder / "all.jsonl", *(line for number in range(COUNT) for line in lines(number)))


@pytest.mark.parametrize("make", [into_folder, into_one_file])
def test_ten_thousand_recordings(
    make: Callable[[Path], None], tmp_path: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    # to be measured takes several times as long
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    make(tmp_path / "tapes")
    small = write(tmp_path / "small.jsonl", *lines(0))
    base = peak_kb(launch("replay", small).process.pid)
    began = time.monotonic()
    running = launch("replay", tmp_path / "tapes")
    ready = time.monotonic() - began
    cpu = cpu_s(running.process.pid)
    print(f"\n{make.__name__}: ready after {ready:.2f} s, {cpu} s of it computing")
    assert f"playing {COUNT} exchanges" in running.ready_line
    assert (ready if cpu is None else cpu) < READY_S
    for number in (0, COUNT - 1, 4711):
        asked = post("/v1/chat/completions", json.dumps(body(number)).encode())
        assert ask(running.host, running.port, asked, answer_end).wire == plain_wire(f"{number} {BODY}")
    began = time.monotonic()
    asked = post("/v1/chat/completions", json.dumps(body(4711) | {"temperature": 1}).encode())
    miss = ask(running.host, running.port, asked, answer_end).wire
    print(f"nearest of all after {time.monotonic() - began:.2f} s")
    assert b"$.temperature is 1, recorded absent" in miss
    peak = peak_kb(running.process.pid)
    if peak is not None and base is not None:
        print(f"memory {base} kB and {peak - base} kB more; {COUNT * len(BODY) // 1000} kB of bodies")
        one_file = COUNT * (len(BODY) + 400) // 1000 if make is into_one_file else 0
        assert peak - base < 35_000 + one_file


def cpu_s(pid: int) -> float | None:
    """Seconds that a process has computed so far; None where the system does not say it like this."""
    path = Path(f"/proc/{pid}/stat")
    if not path.exists():
        return None
    user, system = path.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def peak_kb(pid: int) -> int | None:
    """A process's largest memory so far; None where the system does not say it like this."""
    path = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", path.read_text()) if path.exists() else None
    return int(found[1]) if found else None
