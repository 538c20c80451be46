"""`mockllm demo`."""

import os
import re
import signal
from contextlib import closing

import click

from mockllm.cli.common import say
from mockllm.demo import demo as story


@click.command()
def demo() -> None:
    """See it all in a few seconds, with nothing else installed: a server recorded, replayed, and a client broken.

    \b
    mockllm demo
    """
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"  # nothing leaves this machine
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with closing(story()) as lines:
            for line in lines:
                click.echo(re.sub(r"^\d\. .*?:", lambda match: click.style(match[0], bold=True), line))
    except KeyboardInterrupt:
        say("stopped; nothing is left behind")
    finally:
        signal.signal(signal.SIGTERM, before)
