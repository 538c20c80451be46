"""`mockllm record … --again PATH`: asks a server what is on tapes anew, and shows what has drifted."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import click

from mockllm import files
from mockllm.again import Again, Outcome, parse_header, recordings_of
from mockllm.cli.common import counted
from mockllm.core.errors import MockllmError
from mockllm.core.exchange import Request
from mockllm.core.forward import Mount
from mockllm.core.shown import escaped
from mockllm.record import Options
from mockllm.target import Target


def compare(
    paths: Sequence[Path],
    targets: Sequence[Target],
    mounts: Sequence[Mount],
    output: Path | None,
    options: Options,
    headers: Sequence[str],
    say: Callable[[str], None],
) -> NoReturn:
    """Ask again, print what drifted, and exit: 0 where nothing did, 1 where something did. The new tapes go into a
    folder, or nowhere. `say` is told what is going on.
    """
    given = tuple(map(parse_header, headers))
    recordings = recordings_of(paths, say)
    with ExitStack() as stack:
        folder = output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mockllm-")))
        again = Again(targets, mounts, files.Folder(folder), options, given)
        total = len(recordings)

        def progress(number: int, request: Request) -> None:
            say(f"asking {number} of {total}: {_asked(request)}")

        outcomes = []
        for outcome in again.ask(recordings, progress):
            outcomes.append(outcome)
            click.echo("\n".join(_told(outcome)))
    drifted = sum(1 for outcome in outcomes if outcome.drift)
    unasked = sum(1 for outcome in outcomes if outcome.unasked is not None)
    left = f", {unasked} could not be asked again" if unasked else ""
    click.echo(f"{counted(total, 'exchange')}, {drifted} drifted{left}")
    if unasked == total:
        raise MockllmError("none of the requests could be sent again, so nothing was compared")
    sys.exit(1 if drifted else 0)


def _told(outcome: Outcome) -> list[str]:
    where = f"{outcome.recording} {_asked(outcome.request)}"
    if outcome.unasked is not None:
        return [f"{where}: not asked again, {outcome.unasked}"]
    if not outcome.drift:
        return [f"{where}: as recorded"]
    return [f"{where}: drifted", *(f"  {line}" for line in outcome.drift)]


def _asked(request: Request) -> str:
    return escaped(f"{request.method} {request.target.decode(errors='backslashreplace')}")
