"""The command line: thin, one function a command. It reads options, puts the parts together and says how it went."""

import asyncio
import contextlib
import gc
import math
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from mockllm import __version__, files
from mockllm.clock import HeapClock
from mockllm.core.cassette import repair
from mockllm.core.errors import MockllmError, NoMatchError, UsageError
from mockllm.core.forward import Mount
from mockllm.core.response import End
from mockllm.core.tape import dump
from mockllm.library import Library
from mockllm.record import Options as RecordOptions
from mockllm.record import Recorder
from mockllm.relay import Limits
from mockllm.replay import Options as ReplayOptions
from mockllm.replay import Replay
from mockllm.serve import Server
from mockllm.target import Target, parse_target

REPLAY_PORT = 8800
RECORD_PORT = 8801
SHIPPED = "mlx_lm.server"
_UNITS = {"us": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000}


class Duration(click.ParamType[int]):
    """A duration with its unit, as µs."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m)", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration: write a number and its unit, such as 250ms, 2s or 1.5m", param, ctx)
        return round(float(found[1]) * _UNITS[found[2]])


class Group(click.Group):
    """Says errors that a user can mend in one line, with their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MockllmError as error:
            say(str(error))
            ctx.exit(error.exit_code)


def say(message: str) -> None:
    """One line for a person, on stderr."""
    _tell(f"mockllm: {message}")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="mockllm")
def main() -> None:
    """Record what a real LLM server sends, every byte with its time, and replay it exactly.

    \b
    mockllm record http://127.0.0.1:8080 -o tapes     stand before a real server
    mockllm replay tapes                              be that server, without it
    mockllm check tapes                               is every cassette readable?
    """


def _serving(default_port: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of every command that serves."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        command = click.option("--quiet", is_flag=True, help="No line for each exchange.")(command)
        command = click.option(
            "--port", default=default_port, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
        )(command)
        return click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")(command)

    return add


@main.command()
@click.argument("upstream", required=False)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder for the tapes, made if need be."
)
@click.option(
    "--mount", "mounts", multiple=True, metavar="/PREFIX=URL", help="A further server behind this path; repeatable."
)
@_serving(RECORD_PORT)
@click.option(
    "--connect-timeout",
    type=Duration(),
    default="10s",
    show_default=True,
    help="For name, connection and TLS together.",
)
@click.option(
    "--idle-timeout", type=Duration(), help="Give up after so long a silence of the server.  [default: never]"
)
@click.option(
    "--drain",
    type=Duration(),
    default="5s",
    show_default=True,
    help="How long a finished answer is read on when its client has left.",
)
@click.option(
    "--accept-encoding", metavar="CODING", help="Ask the server for this coding instead of the client's: identity."
)
def record(
    upstream: str | None,
    output: Path,
    mounts: tuple[str, ...],
    host: str,
    port: int,
    quiet: bool,
    connect_timeout: int,
    idle_timeout: int | None,
    drain: int,
    accept_encoding: str | None,
) -> None:
    """Stand before the real server at UPSTREAM and tape every answer, one file an exchange.

    Every byte goes on to the client as it comes. Ctrl-C ends the recording and prints a summary.

    \b
    mockllm record http://127.0.0.1:8080 -o tapes
    mockllm record https://api.openai.com -o tapes
    mockllm record -o tapes --mount /openai=https://api.openai.com --mount /mac=http://mac:8080
    """
    targets, routes = _routes(upstream, mounts)
    folder = files.Folder(output)
    options = RecordOptions(
        connect_timeout_s=connect_timeout / 1e6,
        accept_encoding=None if accept_encoding is None else accept_encoding.encode(),
        limits=Limits(idle_timeout, drain),
    )
    recorder = Recorder(targets, routes, folder, options, now=now, say=say, log=_log(quiet))
    into = f"recording {', '.join(map(str, targets))} into {output}, clients connect to"
    Server(recorder, host, port, on_ready=partial(_ready, into), on_stop=recorder.stop).run()
    ends = ", ".join(f"{count} {end.value}" for end, count in recorder.ends.items())
    say(f"{sum(recorder.ends.values())} exchanges recorded into {output}{f': {ends}' if ends else ''}")
    if recorder.failed:
        say("the recording is incomplete: some tapes could not be written")
        sys.exit(1)


@main.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--server", metavar="NAME", help=f"Without PATH: whose shipped cassettes to play.  [default: {SHIPPED}]")
@_serving(REPLAY_PORT)
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="10 is ten times faster, 0 is at once.",
)
@click.option("--max-gap", type=Duration(), help="No silence lasts longer than this.")
@click.option(
    "--on-miss",
    type=click.Choice(["error", "closest"]),
    help="What answers a request that no recording answers: a 404, or the nearest recording of its method and path."
    "  [default: error; without PATH closest]",
)
@click.option(
    "--on-client",
    type=click.Choice(["cut", "hang"]),
    default="cut",
    show_default=True,
    help="How an answer goes on whose recorded client left: cut off, or silent.",
)
def replay(
    paths: tuple[Path, ...],
    server: str | None,
    host: str,
    port: int,
    quiet: bool,
    speed: float,
    max_gap: int | None,
    on_miss: str | None,
    on_client: str,
) -> None:
    """Be the recorded server: play cassettes (files or folders), byte for byte and on time.

    Without PATH the cassettes that come with mockllm are played, the closest one to what is asked.

    \b
    mockllm replay
    mockllm replay tapes --speed 10
    mockllm replay bug.jsonl --port 0
    """
    if paths and server is not None:
        raise UsageError("--server chooses among the shipped cassettes: leave it out where paths are given")
    if math.isnan(speed):
        raise UsageError("--speed nan makes no sense: give a number, such as 10, or 0 for at once")
    library = Library(paths or [_shipped(server or SHIPPED)], say)
    options = ReplayOptions(
        speed=speed,
        max_gap_us=max_gap,
        on_client=End.HANG if on_client == "hang" else End.CLIENT,
        closest=(on_miss or ("error" if paths else "closest")) == "closest",
    )
    app = Replay(library, options, lambda: HeapClock(asyncio.get_running_loop()), _log(quiet))
    _steady()
    what = f"playing {len(library)} exchanges of {len(library.files)} files at"
    Server(app, host, port, on_ready=partial(_ready, what)).run()
    if app.misses:
        say(f"{app.misses} requests matched no recording")
        sys.exit(NoMatchError.exit_code)


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--fix", is_flag=True, help="Rewrite Content-Length and chunk sizes as the data lines have it.")
def check(paths: tuple[Path, ...], fix: bool) -> None:
    """Read every line of cassettes (files or folders) and say what is wrong.

    \b
    mockllm check tapes
    mockllm check --fix edited.jsonl
    """
    found, wrong = files.find(paths), 0
    exchanges = 0
    for path in found:
        try:
            if fix and _fix(path):
                say(f"{path}: lengths rewritten")
            exchanges += len(files.read_all(path))
        except MockllmError as error:
            wrong += 1
            say(str(error))
    click.echo(
        f"{exchanges} exchanges in {len(found)} files: {f'{wrong} files are wrong' if wrong else 'all readable'}"
    )
    sys.exit(1 if wrong else 0)


def now() -> int:
    """µs of the system's monotonic clock."""
    return time.monotonic_ns() // 1000


def _ready(what: str, base_url: str) -> None:
    _tell(f"mockllm: {what} {base_url}", err=False)


def _log(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else _tell


def _tell(line: str, *, err: bool = True) -> None:
    """That nobody reads it any more (`2>&1 | head -1`) must not disturb who is being served."""
    with contextlib.suppress(OSError):
        click.echo(line, err=err)


def _routes(upstream: str | None, mounts: tuple[str, ...]) -> tuple[list[Target], list[Mount]]:
    if upstream is None and not mounts:
        raise UsageError("name the server to record: mockllm record http://127.0.0.1:8080 -o tapes")
    targets: list[Target] = []
    routes: list[Mount] = []
    for mount in mounts:
        prefix, equals, url = mount.partition("=")
        if not equals or not prefix.startswith("/") or prefix == "/" or "?" in prefix:
            raise UsageError(f"--mount {mount} is not /PREFIX=URL, such as /openai=https://api.openai.com")
        routes.append(Mount(prefix.rstrip("/").encode(), len(targets)))
        targets.append(parse_target(url))
    if upstream is not None:
        routes.append(Mount(b"", len(targets)))
        targets.append(parse_target(upstream))
    return targets, routes


def _shipped(server: str) -> Path:
    folder = files.shipped()
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if server not in names:
        raise UsageError(f"no cassettes of {server!r} are shipped, only of {', '.join(names) or 'none'}")
    return folder / server


def _fix(path: Path) -> bool:
    before = files.read_all(path, strict=False)
    after = [repair(exchange) for exchange in before]
    if after == before:
        return False
    files.rewrite(path, b"".join(map(dump, after)))
    return True


def _steady() -> None:
    """Keep the garbage collector out of the way of the clock: what is loaded stays, and young objects are few."""
    gc.freeze()
    gc.set_threshold(10_000, 50, 1000)
