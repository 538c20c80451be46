"""docker-compose.yml: its commands are ones that the command line takes, and nothing is open to the network.

No container engine is needed; what the engine would do with the file is not tested here.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mockllm.cli import main

FILE = Path(__file__).parent.parent.parent / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def services() -> dict[str, Any]:
    """The services of the file."""
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"])


def parsed(command: str, variables: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The subcommand and its options as the command line reads them, once compose has put in the variables."""
    words = shlex.split(VARIABLE.sub(lambda found: variables.get(found[1]) or found[2], command))
    name, subcommand, rest = main.resolve_command(click.Context(main), words)
    assert name is not None
    assert subcommand is not None
    return name, subcommand.make_context(name, rest).params


@pytest.mark.parametrize(
    ("service", "variables", "expected"),
    [
        ("replay", {}, {"host": "0.0.0.0", "port": 8800, "paths": ()}),
        ("replay", {"CASSETTES": "/recordings"}, {"paths": (Path("/recordings"),)}),
        ("record", {}, {"host": "0.0.0.0", "port": 8801, "upstream": "http://host.docker.internal:8080"}),
        ("record", {"UPSTREAM": "https://llm.test"}, {"upstream": "https://llm.test", "output": Path("/recordings")}),
    ],
)
def test_the_command_line_takes_the_commands(service: str, variables: dict[str, str], expected: dict[str, Any]) -> None:
    name, options = parsed(services()[service]["command"], variables)
    assert name == service
    assert options | expected == options


@pytest.mark.parametrize("service", ["record", "replay"])
def test_only_this_machine_can_connect(service: str) -> None:
    _, options = parsed(services()[service]["command"], {})
    port = options["port"]
    assert services()[service]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_a_wrong_command_is_seen() -> None:
    with pytest.raises(click.UsageError):
        parsed("replay --no-such-option", {})


def test_recordings_are_where_the_recorder_puts_them() -> None:
    assert services()["record"]["volumes"] == ["./recordings:/recordings"]
    assert services()["replay"]["volumes"] == ["./recordings:/recordings:ro"]
