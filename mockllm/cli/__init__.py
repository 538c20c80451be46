"""The command line: thin, one function a command. It reads options, puts the parts together and says how it went."""

import click

from mockllm import __version__
from mockllm.cli.bending import apply_command, faults
from mockllm.cli.common import Group
from mockllm.cli.demo import demo
from mockllm.cli.record import record
from mockllm.cli.replay import replay
from mockllm.cli.running import run
from mockllm.cli.tapes import check, import_command, show


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="mockllm")
def main() -> None:
    """Record what a real LLM server sends, every byte with its time, and replay it exactly.

    \b
    mockllm demo                                      what it does, in a few seconds
    mockllm record http://127.0.0.1:8080 -o tapes     stand before a real server
    mockllm replay tapes                              be that server, without it
    mockllm show tapes                                what was recorded
    """


for command in (demo, record, replay, run, show, import_command, faults, apply_command, check):
    main.add_command(command)
