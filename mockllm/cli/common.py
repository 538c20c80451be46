"""What all commands share: how durations are written, how errors and log lines are said, options of what serves.

It knows no command.
"""

import contextlib
import errno
import gc
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.faults.spec import duration
from mockllm.core.forward import Mount
from mockllm.core.shown import escaped
from mockllm.logs import Logs, Style
from mockllm.target import Target, parse_target

SHIPPED = "mlx_lm.server"
"""Whose cassettes are played where none are named."""
PATHS = click.Path(path_type=Path)


class Duration(click.ParamType[int]):
    """A duration with its unit, as µs."""

    name = "duration"

    def __init__(self, *, zero_ok: bool = True) -> None:
        self._zero_ok = zero_ok

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        microseconds = duration(str(value))
        if microseconds is None:
            self.fail(f"{value!r} is no duration: write a number and its unit, such as 250ms, 2s or 1.5m", param, ctx)
        if not (microseconds or self._zero_ok):
            self.fail(f"{value!r} is no time to wait: give more than that", param, ctx)
        return microseconds


class Group(click.Group):
    """Says errors that a user can mend in one line, with their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MockllmError as error:
            say(str(error))
            ctx.exit(error.exit_code)
        except OSError as error:
            if error.filename is not None:
                raise
            say(f"cannot write the output: {os.strerror(error.errno or errno.EIO).lower()}")
            ctx.exit(1)


def counted(number: int, what: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {what}{'s' * (number != 1)}"


def say(message: str) -> None:
    """One line for a person, on stderr."""
    tell(f"mockllm: {message}")


def redacting(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that writes what clients and servers said."""
    command = click.option(
        "--redact-json", multiple=True, metavar="/POINTER", help="A place in a JSON body that is masked; repeatable."
    )(command)
    return click.option(
        "--redact",
        multiple=True,
        metavar="NAME",
        help="A header, query parameter or JSON field that is masked too, beside the known ones; repeatable.",
    )(command)


def serving(default_port: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of every command that serves."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        command = click.option(
            "--log-json", is_flag=True, help="Say everything on stderr as JSON, one object a line, for programs."
        )(command)
        command = click.option("--quiet", is_flag=True, help="No line for each exchange.")(command)
        command = click.option(
            "--port", default=default_port, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
        )(command)
        return click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")(command)

    return add


def ready(what: str, base_url: str) -> None:
    tell(f"mockllm: {what} {base_url}", err=False)


def open_logs(command: str, *, quiet: bool, log_json: bool) -> Logs:
    """What a command that serves says on stderr; live on a terminal."""
    if quiet and log_json:
        raise UsageError("--quiet and --log-json exclude each other")
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    style = Style.JSON if log_json else Style.QUIET if quiet else Style.LIVE if live else Style.LINES
    logs = Logs(style, command, partial(tell, end=""), _size)
    logging.getLogger("mockllm").handlers = [_Saying(logs.say)]
    return logs


class _Saying(logging.Handler):
    """Says what the parts of mockllm log."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(escaped(record.getMessage()) if record.exc_info is None else self.format(record))


def _size() -> tuple[int, int]:
    """Columns and rows of the terminal."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno())
    return 80, 24


def tell(text: str, *, err: bool = True, end: str = "\n") -> None:
    """That nobody reads it any more (`2>&1 | head -1`) must not disturb who is being served."""
    with contextlib.suppress(OSError):
        click.echo(text + end, err=err, nl=False)


def routes(upstream: str | None, mounts: tuple[str, ...]) -> tuple[list[Target], list[Mount]]:
    if upstream is None and not mounts:
        raise UsageError("name the server to record: mockllm record http://127.0.0.1:8080 -o tapes")
    targets: list[Target] = []
    routes: list[Mount] = []
    for mount in mounts:
        prefix, equals, url = mount.partition("=")
        if not equals or not prefix.startswith("/") or prefix == "/" or "?" in prefix:
            raise UsageError(f"--mount {mount} is not /PREFIX=URL, such as /openai=https://api.openai.com")
        path = prefix.rstrip("/").encode()
        if any(route.prefix == path for route in routes):
            raise UsageError(f"--mount {prefix} is there twice: a path leads to one server")
        routes.append(Mount(path, len(targets)))
        targets.append(parse_target(url))
    if upstream is not None:
        routes.append(Mount(b"", len(targets)))
        targets.append(parse_target(upstream))
    return targets, routes


def steady() -> None:
    """Keep the garbage collector out of the way of the clock: what is loaded stays, and young objects are few."""
    gc.freeze()
    gc.set_threshold(10_000, 50, 1000)
