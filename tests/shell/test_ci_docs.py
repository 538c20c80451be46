"""docs/ci.md: its YAML can be read, its commands are ones that the command line takes, and nothing in it just waits."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mockllm.cli import main
from mockllm.environment import environment
from tests.shell.tapes import plain, request, write
from tests.shell.test_readme import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)


GITHUB, GITLAB, COMPOSE = map(yaml.safe_load, blocks("yaml"))


def strings(document: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(document, dict):
        for value in document.values():
            yield from strings(value)
    elif isinstance(document, list):
        for value in document:
            yield from strings(value)
    elif isinstance(document, str):
        yield document


def commands() -> list[list[str]]:
    """Every `mockllm …` of the page, without its redirections."""
    scripts = [*blocks("sh"), *strings([GITHUB, GITLAB]), "mockllm " + COMPOSE["services"]["replay"]["command"]]
    lines = [line for script in scripts for line in script.splitlines() if line.startswith("mockllm ")]
    return [shlex.split(re.sub(r"(2?>.*|&)$", "", line))[1:] for line in lines]


def test_there_is_something_for_each_of_them() -> None:
    assert {"pytest", "any-language", "several-steps"} == set(GITHUB["jobs"])
    assert all(job["steps"][0]["uses"].startswith("actions/checkout@") for job in GITHUB["jobs"].values())
    assert all(job["script"] for name, job in GITLAB.items() if name != "variables")
    assert set(COMPOSE["services"]) == {"replay", "tests"}


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_the_command_line_takes_it(command: list[str]) -> None:
    name, subcommand, rest = main.resolve_command(click.Context(main), list(command))
    assert subcommand is not None
    subcommand.make_context(name, rest)


def test_every_kind_of_command_is_there() -> None:
    assert {command[0] for command in commands()} == {"record", "replay", "run"}


def test_nothing_just_waits() -> None:
    assert "sleep" not in TEXT.lower()
    health = COMPOSE["services"]["replay"]["healthcheck"]["test"]
    assert "/_mockllm/health" in health[-1]
    assert COMPOSE["services"]["tests"]["depends_on"] == {"replay": {"condition": "service_healthy"}}


def test_clients_in_containers_find_the_replay() -> None:
    given = COMPOSE["services"]["tests"]["environment"]
    expected = environment("http://replay:8800")
    assert {name: given[name] for name in expected if name != "MOCKLLM_BASE_URL"} == {
        name: value for name, value in expected.items() if name != "MOCKLLM_BASE_URL"
    }


def test_the_steps_of_a_job_run_one_after_another(tmp_path: Path) -> None:
    """As GitHub runs them: each in a shell of its own; only the port, and what needs the network, is changed."""
    write(tmp_path / "cassettes" / "a.jsonl", request("/v1/a", "GET"), *plain("one"))
    steps = [step["run"] for step in GITHUB["jobs"]["several-steps"]["steps"] if "run" in step]
    assert steps.pop(0).startswith("pipx install")
    assert steps[1] == "npm test"
    steps[1] = "curl -sf http://127.0.0.1:8800/v1/a"
    (port,) = free_ports(1)
    script = "\n".join(f"bash -e -c {shlex.quote(step.replace('8800', port))} || exit" for step in steps)
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=40)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{output}\n{errors}"
    ready, answers = output.split("\n", 1)
    assert ready == f"mockllm: playing 1 exchange of 1 file at http://127.0.0.1:{port}"
    assert answers.startswith("one{")
    assert '"misses":0' in answers
