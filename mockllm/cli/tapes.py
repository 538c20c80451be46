"""`mockllm show`, `import` and `check`: commands that read cassettes, and make or mend them."""

import sys
from pathlib import Path

import click

from mockllm import files
from mockllm.cli.common import PATHS, Duration, counted, redacting, say
from mockllm.core.audit import findings
from mockllm.core.cassette import repair
from mockllm.core.errors import CredentialsError, MockllmError
from mockllm.core.importers import AS, As, Given
from mockllm.core.redaction import redaction
from mockllm.core.response import End
from mockllm.core.tape import dump
from mockllm.importing import import_capture, said
from mockllm.showing import show as shown


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATHS)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def show(paths: tuple[Path, ...], as_json: bool) -> None:
    """Say what cassettes hold: a line an exchange, or for a single one every read and what is odd about it.

    PATH is a file, a folder, or FILE:LINE for the exchange whose header stands there.

    \b
    mockllm show tapes
    mockllm show tapes/000001-post-v1-chat-completions.jsonl
    mockllm show tapes --json
    """
    click.echo(shown(paths, say, as_json=as_json))


@click.command(name="import")
@click.argument("capture", metavar="FILE")
@click.option("-o", "--output", required=True, type=PATHS, help="The new cassette, or a folder for it.")
@click.option("--method", metavar="METHOD", help="Of the request, where the capture does not hold it.  [default: POST]")
@click.option("--path", metavar="PATH", help="Its path and query.  [default: any]")
@click.option("--gap", type=Duration(), help="Before each event, where the capture has no times.")
@click.option("--content-type", metavar="TYPE", help="Of a body without a head.")
@click.option("--end", type=click.Choice([end.value for end in End]), help="How the answer ended, where nobody knows.")
@click.option("--as", "framing", type=click.Choice(AS), help="How the body is framed.")
@redacting
def import_command(
    capture: str,
    output: Path,
    method: str | None,
    path: str | None,
    gap: int | None,
    content_type: str | None,
    end: str | None,
    framing: As | None,
    redact: tuple[str, ...],
    redact_json: tuple[str, ...],
) -> None:
    """Make a cassette of a captured stream: FILE, or - for stdin.

    FILE is what `curl -isN` printed, with or without the head, or a file of `curl --trace-time --trace` or
    `--trace-ascii`. What a capture cannot know is said, and can be given.

    \b
    curl -isN http://mac:8080/v1/chat/completions -d @body.json | mockllm import - -o bug.jsonl
    mockllm import stream.txt -o bug.jsonl --path /v1/chat/completions --gap 20ms
    mockllm replay bug.jsonl
    """
    given = Given(method, path, gap, content_type, None if end is None else End(end), framing)
    hidden = redaction(redact, redact_json)
    imported, made = import_capture(capture, output, given, sys.stdin.buffer.read, hidden)
    for line in said(imported, made):
        say(line)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATHS)
@click.option("--fix", is_flag=True, help="Rewrite Content-Length and chunk sizes as the data lines have it.")
def check(paths: tuple[Path, ...], fix: bool) -> None:
    """Read every line of cassettes (files or folders) and say what is wrong, and what looks like a credential.

    Exits with 1 where a file cannot be read, else with 5 where something looks like a credential.

    \b
    mockllm check tapes
    mockllm check --fix edited.jsonl
    """
    found, wrong, leaks = files.find(paths), 0, 0
    exchanges = 0
    for path in found:
        try:
            if fix and _fix(path):
                say(f"{path}: lengths rewritten")
            for number, exchange in enumerate(files.read_all(path, say), 1):
                exchanges += 1
                for finding in findings(exchange):
                    leaks += 1
                    say(f"{path}, exchange {number}: {finding}")
        except MockllmError as error:
            wrong += 1
            say(str(error))
    state = f"{counted(wrong, 'file')} cannot be read" if wrong else "all readable"
    suspects = f", {counted(leaks, 'thing')} that may be a credential" if leaks else ""
    click.echo(f"{counted(exchanges, 'exchange')} in {counted(len(found), 'file')}: {state}{suspects}")
    sys.exit(1 if wrong else CredentialsError.exit_code if leaks else 0)


def _fix(path: Path) -> bool:
    before = files.read_all(path, strict=False)
    after = [repair(exchange) for exchange in before]
    if after == before:
        return False
    files.rewrite(path, b"".join(map(dump, after)))
    return True
