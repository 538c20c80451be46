"""Runs the `mockllm` command as a user does: a process of its own, ready when its first line says where it listens.

It must not import mockllm.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left behind. `status` is negative where a signal killed it."""

    status: int
    stdout: str
    stderr: str


def cli(
    *args: str | Path,
    input: str | None = None,
    timeout_s: float = 30,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run `mockllm ARGS` to its end. `env` is added to the environment (proxies and MOCKLLM_* are taken out first)."""
    done = subprocess.run(
        _command(args),
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout_s,
        cwd=cwd,
        env=_environment(env),
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


class Running:
    """A `mockllm` that serves. AssertionError, with its output, where it is not ready within `timeout_s`."""

    def __init__(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 20,
    ) -> None:
        self.process = subprocess.Popen(
            _command(args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=cwd,
            env=_environment(env),
        )
        self._changed = threading.Condition()
        self._lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._open = 2
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in (("stdout", self.process.stdout), ("stderr", self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()
        self.ready_line = self._first_line(timeout_s)
        self.base_url = self.ready_line.split()[-1]
        parts = urlsplit(self.base_url)
        assert parts.scheme == "http", f"the ready line does not end with a URL: {self.ready_line!r}"
        assert parts.hostname, f"the ready line does not end with a URL: {self.ready_line!r}"
        assert parts.port, f"the ready line does not end with a URL: {self.ready_line!r}"
        self.host, self.port = parts.hostname, parts.port

    @property
    def stdout(self) -> str:
        """What it printed so far."""
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        """What it said so far."""
        return self._text("stderr")

    def wait_for(self, text: str, *, times: int = 1, timeout_s: float = 10) -> str:
        """stderr, once `text` stands in it so many times. AssertionError where it does not come."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._text("stderr").count(text) >= times, timeout_s)
        assert came, f"{text!r} did not come {times} times on stderr:\n{self.stderr}"
        return self.stderr

    def stop(self, sig: int = signal.SIGINT, *, timeout_s: float = 15) -> Finished:
        """Send a signal and wait for the end. AssertionError (and a kill) where it does not end in time."""
        self.process.send_signal(sig)
        return self.wait(timeout_s=timeout_s)

    def wait(self, *, timeout_s: float = 15) -> Finished:
        """Wait for the end. AssertionError (and a kill) where it does not end in time."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not end within {timeout_s} s:\n{self.stdout}\n{self.stderr}") from None
        self._join()
        return Finished(status, self.stdout, self.stderr)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; does nothing where it has ended."""
        self.process.kill()
        self.process.wait()
        self._join()

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(5)

    def _first_line(self, timeout_s: float) -> str:
        with self._changed:
            self._changed.wait_for(lambda: self._lines["stdout"] or not self._open, timeout_s)
            lines = list(self._lines["stdout"])
        if not lines:
            self.kill()
            raise AssertionError(f"no ready line, status {self.process.returncode}, stderr:\n{self.stderr}")
        return lines[0].rstrip("\n")

    def _text(self, name: str) -> str:
        return "".join(self._lines[name])

    def _read(self, name: str, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self._lines[name].append(line)
                    self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()


def _command(args: tuple[str | Path, ...]) -> list[str]:
    return [sys.executable, "-m", "mockllm", *map(str, args)]


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("MOCKLLM_")
    }
    return {**kept, **(extra or {})}
