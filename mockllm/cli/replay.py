"""`mockllm replay`."""

import asyncio
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import click

from mockllm import files
from mockllm.bending import Bending
from mockllm.cli.common import (
    PATHS,
    SHIPPED,
    Duration,
    counted,
    open_logs,
    ready,
    redacting,
    routes,
    serving,
    steady,
)
from mockllm.clock import HeapClock, now
from mockllm.core.errors import NoMatchError, UnusedError, UsageError
from mockllm.core.pointer import parse_pointer
from mockllm.core.redaction import redaction
from mockllm.core.response import End
from mockllm.core.rules import Rules, parse_match
from mockllm.guard import Guard, is_loopback
from mockllm.journal import Journal
from mockllm.library import Library
from mockllm.logs import Logs
from mockllm.misses import Ask
from mockllm.record import Options as RecordOptions
from mockllm.record import Recorder
from mockllm.replay import Options, Replay
from mockllm.serve import Server

PORT = 8800
SLOWEST = 1e-6
"""Slower than this a second takes eleven days."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=PATHS)
@click.option("--server", metavar="NAME", help=f"Without PATH: whose shipped cassettes to play.  [default: {SHIPPED}]")
@serving(PORT)
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="10 is ten times faster, 0 is at once.",
)
@click.option(
    "--max-gap", type=Duration(), help="No recorded silence counts for more than this; --speed comes after it."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="SPEC",
    help="Bend every answer, such as crlf+cut:at=3ev,end=rst; repeatable. `mockllm faults` lists them.",
)
@click.option(
    "--match",
    metavar="LIST",
    default="method,path,query,body",
    show_default=True,
    help="What of a request must be as recorded; header:NAME too.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="/POINTER",
    help="A place in a JSON body that does not count, such as /messages/*/id; repeatable.",
)
@click.option(
    "--ignore-query", multiple=True, metavar="NAME", help="A query parameter that does not count; repeatable."
)
@click.option(
    "--on-miss",
    type=click.Choice(["error", "closest", "record", "forward"]),
    help="What answers a request that no recording answers: a 404; the nearest recording of its method and path; or the"
    " server at --upstream, taped or not.  [default: error; without PATH closest]",
)
@click.option("--upstream", metavar="URL", help="Whom to ask for --on-miss record and forward.")
@click.option(
    "--exhausted",
    type=click.Choice(["repeat", "error"]),
    default="repeat",
    show_default=True,
    help="When all recordings of a request were played: the last one again, or a 404.",
)
@click.option(
    "--on-client",
    type=click.Choice(["cut", "hang"]),
    default="cut",
    show_default=True,
    help="How an answer goes on whose recorded client left: cut off, or silent.",
)
@click.option("--cors", is_flag=True, help="Let web pages of any origin in: answer preflights, add the headers.")
@click.option("--fail-unused", is_flag=True, help="Report recordings that nobody asked for, with exit status 4.")
@click.option("--journal", "journal_file", metavar="FILE.jsonl", type=PATHS, help="Keep what clients did, a line each.")
@click.option(
    "--control-token", metavar="TOKEN", envvar="MOCKLLM_CONTROL_TOKEN", help="Who sends it may use /_mockllm/."
)
@redacting
@click.option("--allow-remote", is_flag=True, help="With --on-miss record: --host may be open to other machines.")
def replay(
    paths: tuple[Path, ...],
    server: str | None,
    host: str,
    port: int,
    quiet: bool,
    log_json: bool,
    journal_file: Path | None,
    fail_unused: bool,
    control_token: str | None,
    allow_remote: bool,
    **given: Any,
) -> None:
    """Be the recorded server: play cassettes (files or folders), byte for byte and on time.

    Without PATH the cassettes that come with mockllm are played, the closest one to what is asked.

    \b
    mockllm replay
    mockllm replay tapes --speed 10
    mockllm replay bug.jsonl --port 0 --fault keepalive:every=500ms,style=mlx
    mockllm replay tapes --on-miss record --upstream http://127.0.0.1:8080
    """
    if paths and server is not None:
        raise UsageError("--server chooses among the shipped cassettes: leave it out where paths are given")
    shown = paths or (files.shipped_of(server or SHIPPED),)
    on_miss = given["on_miss"] or ("error" if paths else "closest")
    if on_miss == "record" and not (allow_remote or is_loopback(host)):
        raise UsageError(f"--host {host} lets other machines record through this one: say --allow-remote if they may")
    logs = open_logs("replay", quiet=quiet, log_json=log_json)
    library = Library(shown, logs.say, _rules(given), empty_ok=on_miss in ("record", "forward"))
    options = RecordOptions(redaction=redaction(given["redact"], given["redact_json"]))
    recorder = _recorder(on_miss, given["upstream"], paths, options, logs)
    keep = None if journal_file is None else files.LineFile(journal_file, logs.say)
    journal = Journal(keep.write if keep is not None else None, logs.report)
    app = Replay(
        library,
        _options(given, on_miss),
        lambda: HeapClock(asyncio.get_running_loop()),
        logs.log,
        say=logs.say,
        journal=journal,
        guard=Guard(host, control_token),
        ask=None if recorder is None else Ask(recorder, keeps=on_miss == "record"),
    )
    if not is_loopback(host) and not control_token:
        logs.say(f"{host} is open to other machines: /_mockllm/ beyond health needs --control-token")
    steady()
    what = f"playing {counted(len(library), 'exchange')} of {counted(len(library.files), 'file')} at"

    def on_ready(base_url: str) -> None:
        ready(what, base_url)
        logs.watch(journal.under_way)

    Server(app, host, port, on_ready=on_ready, on_stop=recorder.stop if recorder else None).run()
    logs.close()
    _end(app, recorder, logs.say, fail_unused=fail_unused)


def _rules(given: dict[str, Any]) -> Rules:
    hidden = redaction(given["redact"], given["redact_json"])
    return replaced(
        parse_match(given["match"]),
        ignore=(*map(parse_pointer, given["ignore"]), *hidden.places),
        ignore_query=frozenset(os.fsencode(name) for name in given["ignore_query"]),
        secrets=hidden.names,
    )


def _options(given: dict[str, Any], on_miss: str) -> Options:
    if math.isnan(given["speed"]) or 0 < given["speed"] < SLOWEST:
        raise UsageError(f"--speed {given['speed']} makes no sense: give a number such as 10 or 0.5, or 0 for at once")
    return Options(
        speed=given["speed"],
        max_gap_us=given["max_gap"],
        on_client=End.HANG if given["on_client"] == "hang" else End.CLIENT,
        closest=on_miss == "closest",
        repeat=given["exhausted"] == "repeat",
        faults=Bending.parse(given["faults"]),
        cors=given["cors"],
        redaction=redaction(given["redact"], given["redact_json"]),
    )


def _recorder(
    on_miss: str, upstream: str | None, paths: tuple[Path, ...], options: RecordOptions, logs: Logs
) -> Recorder | None:
    """Who is asked on a miss: a recorder into the first folder, or one that keeps nothing."""
    if on_miss not in ("record", "forward"):
        if upstream is not None:
            raise UsageError("--upstream is asked only with --on-miss record or forward")
        return None
    if upstream is None:
        raise UsageError(f"--on-miss {on_miss} needs the server to ask: --upstream http://127.0.0.1:8080")
    folder = next((path for path in paths if path.is_dir() or not path.exists()), None)
    if on_miss == "record" and folder is None:
        raise UsageError("--on-miss record needs a folder among the paths, for the new tapes")
    targets, mounts = routes(upstream, ())
    into = files.Folder(folder) if on_miss == "record" and folder is not None else files.Nowhere()
    return Recorder(targets, mounts, into, options, now=now, say=logs.say, log=logs.log)


def _end(app: Replay, recorder: Recorder | None, say: Callable[[str], None], *, fail_unused: bool) -> None:
    """Say what went wrong, and exit with the status for it."""
    status = 0
    if fail_unused and (unused := app.desk.unused()):
        status = UnusedError.exit_code
        for recording in unused:
            say(f"{recording} was never asked for")
    if app.misses:
        status = NoMatchError.exit_code
        say(f"{counted(app.misses, 'request')} matched no recording")
    if app.exhausted:
        status = NoMatchError.exit_code
        say(f"{app.exhausted} requests came after all their recordings were played")
    if app.failures:
        status = 1
        say(f"{counted(app.failures, 'request')} met a recording that cannot be read")
    if recorder is not None and recorder.failed:
        status = 1
        say("the recording is incomplete: some tapes could not be written")
    sys.exit(status)
