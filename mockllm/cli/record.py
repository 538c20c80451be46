"""`mockllm record`."""

import re
import sys
from pathlib import Path

import click

from mockllm import files
from mockllm.cli.again import compare
from mockllm.cli.common import PATHS, Duration, counted, open_logs, ready, redacting, routes, serving
from mockllm.clock import now
from mockllm.core.errors import UsageError
from mockllm.core.redaction import redaction
from mockllm.guard import is_loopback
from mockllm.record import Options, Recorder
from mockllm.relay import Limits
from mockllm.serve import Server

PORT = 8801


@click.command()
@click.argument("upstream", required=False)
@click.option("-o", "--output", type=PATHS, help="Folder for the tapes, made if need be.")
@click.option(
    "--mount", "mounts", multiple=True, metavar="/PREFIX=URL", help="A further server behind this path; repeatable."
)
@serving(PORT)
@click.option(
    "--connect-timeout",
    type=Duration(zero_ok=False),
    default="10s",
    show_default=True,
    help="For name, connection and TLS together.",
)
@click.option(
    "--idle-timeout",
    type=Duration(zero_ok=False),
    help="Give up after so long a silence of the server.  [default: never]",
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
@click.option(
    "--again",
    multiple=True,
    metavar="PATH",
    type=PATHS,
    help="Serve nobody: send the requests of these tapes anew, and show what has drifted (exit status 1); repeatable.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="With --again: send this, such as the key that is masked on the tape; repeatable.",
)
@redacting
@click.option("--allow-remote", is_flag=True, help="Let other machines record: --host is not this one's loopback.")
def record(
    upstream: str | None,
    output: Path | None,
    mounts: tuple[str, ...],
    host: str,
    port: int,
    quiet: bool,
    log_json: bool,
    connect_timeout: int,
    idle_timeout: int | None,
    drain: int,
    accept_encoding: str | None,
    again: tuple[Path, ...],
    headers: tuple[str, ...],
    redact: tuple[str, ...],
    redact_json: tuple[str, ...],
    allow_remote: bool,
) -> None:
    """Stand before the real server at UPSTREAM and tape every answer, one file an exchange.

    Every byte goes on to the client as it comes. Ctrl-C ends the recording and prints a summary.

    \b
    mockllm record http://127.0.0.1:8080 -o tapes
    mockllm record https://api.openai.com -o tapes
    mockllm record -o tapes --mount /openai=https://api.openai.com --mount /mac=http://mac:8080
    mockllm record https://api.openai.com --again tapes --header "Authorization: Bearer $OPENAI_API_KEY"
    """
    if not (allow_remote or is_loopback(host)):
        raise UsageError(f"--host {host} lets other machines record through this one: say --allow-remote if they may")
    targets, mounted = routes(upstream, mounts)
    logs = open_logs("record", quiet=quiet, log_json=log_json)
    options = Options(
        connect_timeout_s=connect_timeout / 1e6,
        accept_encoding=_coding(accept_encoding),
        limits=Limits(idle_timeout, drain),
        redaction=redaction(redact, redact_json),
    )
    if again:
        compare(again, targets, mounted, output, options, headers, (lambda _: None) if quiet else logs.say)
    if headers:
        raise UsageError("--header goes with --again: while recording, headers are the client's")
    if output is None:
        raise UsageError("say where the tapes go: -o tapes")
    recorder = Recorder(
        targets, mounted, files.Folder(output), options, now=now, say=logs.say, log=logs.log, report=logs.report
    )
    into = f"recording {', '.join(map(str, targets))} into {output}, clients connect to"

    def on_ready(base_url: str) -> None:
        ready(into, base_url)
        logs.watch(recorder.under_way)

    Server(recorder, host, port, on_ready=on_ready, on_stop=recorder.stop).run()
    logs.close()
    ends = ", ".join(f"{count} {end.value}" for end, count in recorder.ends.items())
    logs.say(f"{counted(sum(recorder.ends.values()), 'exchange')} recorded into {output}{f': {ends}' if ends else ''}")
    if recorder.failed:
        logs.say("the recording is incomplete: some tapes could not be written")
        sys.exit(1)


def _coding(text: str | None) -> bytes | None:
    if text is not None and not re.fullmatch(r"[!-~][ -~]*", text):
        raise UsageError(f"--accept-encoding {text!r} is no coding: give one such as identity")
    return None if text is None else text.encode()
