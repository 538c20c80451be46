"""`mockllm faults` and `mockllm apply`: what faults there are, and cassettes that are bent for good."""

import shutil
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import click

from mockllm.applying import apply
from mockllm.cli.common import PATHS, say
from mockllm.core.errors import UsageError
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.describe import page, table
from mockllm.core.faults.spec import nearest


@click.command()
@click.argument("name", required=False)
def faults(name: str | None) -> None:
    """List the faults, or show all there is to say of NAME, with an example before and after.

    One bends an answer where a spec names it: `--fault SPEC`, the header `mockllm-fault: SPEC`, or the base URL
    `http://127.0.0.1:8800/~SPEC/v1`. Several are joined by +.

    \b
    mockllm faults
    mockllm faults cut
    """
    if name is not None:
        fault = CATALOGUE.get(name)
        if fault is None:
            raise UsageError(f"unknown fault {name!r}{nearest(name, list(CATALOGUE))}")
        click.echo(page(fault, CATALOGUE))
        return
    formatter = click.HelpFormatter(width=min(shutil.get_terminal_size().columns, 110))
    for family, rows in groupby(table(CATALOGUE), key=itemgetter(0)):
        with formatter.section(family):
            formatter.write_dl([(written, what) for _, written, what in rows], col_max=34)
    click.echo(formatter.getvalue().strip())


@click.command(name="apply")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=PATHS)
@click.option("--fault", "specs", multiple=True, required=True, metavar="SPEC", help="As for replay; repeatable.")
@click.option("-o", "--output", required=True, type=PATHS, help="The new cassette; for several files a folder.")
def apply_command(paths: tuple[Path, ...], specs: tuple[str, ...], output: Path) -> None:
    """Write bent cassettes, to keep them in git. The recordings stay as they are; nothing is overwritten.

    \b
    mockllm apply tapes/hello.jsonl --fault crlf+cut:at=3ev -o tests/cut.jsonl
    mockllm apply tapes --fault keepalive:every=1s,style=mlx -o slow-tapes
    """
    for line in apply(paths, specs, output):
        say(line)
