"""`mockllm apply`: bent cassettes on disk, and what it refuses."""

from pathlib import Path

import pytest

from mockllm import files
from mockllm.applying import apply
from mockllm.core.errors import UsageError
from mockllm.core.http1 import scan
from mockllm.core.response import End
from tests.peers.command import cli
from tests.shell.tapes import CHUNKED_HEAD, LAST, head, plain, request, write

STREAM = [CHUNKED_HEAD, [1, "data", "data: 1\n\n"], [1, "data", "data: 2\n\n"], LAST, [0, "end", "complete"]]


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", "# mine", request(json=1), *STREAM, "# and after")


def bent(tape: Path, *specs: str, output: Path) -> list[str]:
    return list(apply([tape], specs, output))


def test_a_bent_cassette_is_a_cassette(tape: Path, tmp_path: Path) -> None:
    before = tape.read_bytes()
    said = bent(tape, "crlf", "cut:at=1ev,end=rst", output=tmp_path / "new" / "b.jsonl")
    assert said == [f"{tmp_path}/new/b.jsonl written"]
    (exchange,) = files.read_all(tmp_path / "new" / "b.jsonl")
    assert scan(exchange.response).body == b"data: 1\r\n\r\n"
    assert exchange.response.end is End.RST
    assert exchange.meta["faults"] == "crlf+cut:at=1ev,end=rst"
    assert [note.text for note in exchange.notes] == ["# mine"]
    assert (tmp_path / "new" / "b.jsonl").stat().st_mode & 0o777 == 0o600
    assert tape.read_bytes() == before


def test_a_folder_keeps_its_shape(tmp_path: Path) -> None:
    for name in ("a.jsonl", "deep/er/b.jsonl"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / "in" / name, request(json=1), *STREAM)
    list(apply([tmp_path / "in"], ["crlf"], tmp_path / "out"))
    found = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.jsonl"))
    assert list(map(str, found)) == ["a.jsonl", "deep/er/b.jsonl"]


def test_no_effect_on_one_exchange_is_said_and_on_all_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", request(json=1), *STREAM, request(json=2), *plain("no stream"))
    said = bent(path, "crlf", output=tmp_path / "b.jsonl")
    assert said[0] == f"{path}, exchange 2: crlf had no effect: the body is no stream of events"
    one, two = files.read_all(tmp_path / "b.jsonl")
    assert "faults" in one.meta
    assert "faults" not in two.meta
    with pytest.raises(UsageError, match="keepalive:every=60m changed nothing"):
        bent(path, "keepalive:every=60m", output=tmp_path / "c.jsonl")
    assert not (tmp_path / "c.jsonl").exists()


@pytest.mark.parametrize("spec", ["crlf:times=1", "crlf:skip=1", "crlf:p=0.5", "crlf:path=/v1"])
def test_what_counts_requests_has_no_meaning_in_a_file(spec: str, tape: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="have no meaning in a file"):
        bent(tape, spec, output=tmp_path / "b.jsonl")


def test_a_seed_is_taken(tape: Path, tmp_path: Path) -> None:
    assert bent(tape, "mixed:seed=7", output=tmp_path / "b.jsonl")


def test_nothing_is_overwritten_and_none_is_nothing(tape: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists; apply overwrites nothing"):
        bent(tape, "crlf", output=tape)
    with pytest.raises(UsageError, match="nothing to apply"):
        bent(tape, "crlf+none", output=tmp_path / "b.jsonl")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name / "a.jsonl" for name in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        write(path, request(json=1), *STREAM)
    with pytest.raises(UsageError, match="have the same name"):
        list(apply(paths, ["crlf"], tmp_path / "out"))


def test_the_commands(tape: Path, tmp_path: Path) -> None:
    done = cli("apply", tape, "--fault", "crlf", "-o", tmp_path / "b.jsonl")
    assert (done.status, done.stdout, done.stderr) == (0, "", f"mockllm: {tmp_path}/b.jsonl written\n")
    wrong = cli("apply", tape, "--fault", "cut:at=1ef", "-o", tmp_path / "c.jsonl")
    assert wrong.status == 2
    assert wrong.stderr.startswith("mockllm: fault spec, character ")
    listed = cli("faults")
    assert listed.status == 0
    assert "keepalive:every=" in listed.stdout
    shown = cli("faults", "cut")
    assert "after cut:at=2ev,end=rst:" in shown.stdout
    unknown = cli("faults", "kut")
    assert (unknown.status, unknown.stderr) == (2, "mockllm: unknown fault 'kut'; the nearest is 'cut'\n")


def test_the_head_of_a_bent_answer_follows_its_body(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        request(json=1),
        head(Content_Type="text/event-stream", Content_Length="9"),
        [0, "data", "data: 1\n\n"],
        [0, "end", "complete"],
    )
    bent(path, "crlf", output=tmp_path / "b.jsonl")
    (exchange,) = files.read_all(tmp_path / "b.jsonl")
    assert b"Content-Length: 11\r\n" in exchange.response.wire
