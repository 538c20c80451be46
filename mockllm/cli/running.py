"""`mockllm run`: a replay for as long as somebody's command runs, which finds it in its environment."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from mockllm import api
from mockllm.cli.common import PATHS, say, steady
from mockllm.cli.replay import replay
from mockllm.core.errors import NoMatchError, UnusedError
from mockllm.core.faults.spec import join
from mockllm.environment import past_proxies

SHARED = (
    "speed",
    "max_gap",
    "faults",
    "match",
    "ignore",
    "ignore_query",
    "on_miss",
    "upstream",
    "exhausted",
    "on_client",
    "cors",
    "fail_unused",
    "journal_file",
    "redact",
    "redact_json",
)
"""The options of `mockllm replay` that mean the same here."""
NOT_FOUND = 127
NOT_RUNNABLE = 126


CASSETTE = click.Option(
    ["-c", "--cassette", "paths"],
    multiple=True,
    required=True,
    metavar="PATH",
    type=PATHS,
    help="File or folder to play; repeatable.",
)


@click.command(
    params=[CASSETTE, *(option for option in replay.params if option.name in SHARED)],
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
def run(
    paths: tuple[Path, ...], command: tuple[str, ...], fail_unused: bool, journal_file: Path | None, **given: Any
) -> None:
    """Run COMMAND against a replay on a free port, and pass on its exit status.

    COMMAND finds the replay in MOCKLLM_BASE_URL, OPENAI_BASE_URL (with /v1), ANTHROPIC_BASE_URL and OLLAMA_HOST. The
    status is 3 where it succeeds although requests met no recording, 127 where there is no such command, and 128 + N
    where signal N ended it.

    \b
    mockllm run -c tapes -- python my_client.py
    mockllm run -c tapes --speed 0 --fault crlf -- npm test
    """
    gap = given["max_gap"]
    texts = {"faults": join(given["faults"]), "max_gap": None if gap is None else f"{gap}us"}
    serving = api.replay(*paths, **given | texts, journal=journal_file)
    steady()
    with serving as server:
        status = _finished(command, server.environment | past_proxies(server.base_url, os.environ))
        misses = server.misses
        unused = server.unused if fail_unused else []
    for entry in misses:
        say(str(entry))
    for recording in unused:
        say(f"{recording} was never asked for")
    if misses:
        say(f"{len(misses)} requests were answered by no recording")
    sys.exit(status or (NoMatchError.exit_code if misses else UnusedError.exit_code if unused else 0))


def _finished(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command to its end; its status as a shell has it."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT or not _at_the_terminal():
            process.send_signal(number)

    wanted = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in wanted}
    try:
        process = subprocess.Popen(command, env=os.environ | environment)
        for number in early:
            process.send_signal(number)
        status = process.wait()
    except OSError as error:
        found = error.errno != errno.ENOENT
        what = os.strerror(error.errno or errno.EIO).lower() if found else "there is no such command"
        say(f"cannot run {command[0]}: {what}")
        return NOT_RUNNABLE if found else NOT_FOUND
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _at_the_terminal() -> bool:
    """Does the terminal send its Ctrl-C to the command, too, as to all of its foreground?"""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
