"""The named sets of faults: that they are what they promise to be, on every recording that ships."""

import pytest

from mockllm import files
from mockllm.core.events import Kind, events
from mockllm.core.faults.bend import bend
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.sets import BENIGN, SETS
from mockllm.core.faults.spec import parse, render
from mockllm.core.http1 import scan
from mockllm.core.look import Look
from mockllm.core.response import Response

STREAMS = [path for path in sorted(files.shipped().rglob("*.jsonl")) if b"text/event-stream" in path.read_bytes()]


def parsed(response: Response) -> list[tuple[bytes, object]]:
    """What a client that follows the standard makes of it: each event's name, and its JSON or text."""
    found = events(scan(response).body, b"text/event-stream")
    return [(one.name, one.json() or one.data) for one in found if one.kind is Kind.EVENT]


@pytest.mark.parametrize("spec", BENIGN)
def test_a_benign_fault_changes_the_stream_and_no_event(spec: str) -> None:
    faults = [step.fault for step in parse(spec, CATALOGUE)]
    had_effect = 0
    for path in STREAMS:
        for exchange in files.read_all(path):
            if Look(exchange).coding or not parsed(exchange.response):
                continue
            bent = bend(exchange.response, faults)
            had_effect += bent.idle == (None,)
            assert parsed(bent.response) == parsed(exchange.response), path
            assert scan(bent.response).whole == scan(exchange.response).whole
    assert had_effect > len(STREAMS) / 2


def test_sets_have_names_that_no_fault_has() -> None:
    assert SETS["benign"] == BENIGN
    assert not set(SETS) & set(CATALOGUE)
    assert len(set(BENIGN)) == len(BENIGN)
    assert all(render(parse(spec, CATALOGUE)) == spec for specs in SETS.values() for spec in specs)
