"""Fresh tapes in the place of older ones: what stays, what goes, and that nothing is lost when it fails."""

import errno
import os
import threading
from pathlib import Path

import pytest

import mockllm
from mockllm.core.errors import MockllmError
from mockllm.core.rules import DEFAULT, parse_match
from mockllm.renewing import renew
from tests.shell.tapes import plain, request, write


def tape(path: Path, *texts: str) -> Path:
    """A file of exchanges, each asking and answering its own text: `a=1` asks /a and answers 1."""
    lines = []
    for text in texts:
        asked, _, answer = text.partition("=")
        lines += [request(f"/{asked}", "GET"), *plain(answer)]
    return write(path, *lines)


def found(path: Path) -> list[str]:
    return [f"{one.path[1:]}={one.body.decode()}" for one in mockllm.load(path)]


@pytest.fixture
def fresh(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "fresh"
    return [tape(folder / "000001-get-a.jsonl", "a=new"), tape(folder / "000002-get-b.jsonl", "b=new")]


@pytest.mark.parametrize("name", ["x.jsonl", "x"])
@pytest.mark.parametrize("keep", [True, False])
def test_a_new_cassette(name: str, keep: bool, fresh: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / name
    renew(path, fresh, DEFAULT, keep=keep)
    assert found(path) == ["a=new", "b=new"]
    assert [one.name for one in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["x.jsonl", "x"])
def test_all_is_replaced_or_only_what_is_asked_anew(name: str, fresh: list[Path], tmp_path: Path) -> None:
    for keep, expected in ((True, ["old=1", "c=3", "a=new", "b=new"]), (False, ["a=new", "b=new"])):
        path = tmp_path / str(keep) / name
        if path.suffix:
            tape(path, "a=1", "old=1", "a=2", "c=3")
        else:
            tape(path / "000003-get-a.jsonl", "a=1", "old=1")
            tape(path / "000007-get-b.jsonl", "a=2")
            tape(path / "sub" / "any.jsonl", "c=3")
            (path / "notes.txt").write_text("mine")
        renew(path, fresh, DEFAULT, keep=keep)
        assert sorted(found(path)) == sorted(expected)
        if not path.suffix:
            names = {one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()}
            kept = {"000003-get-a.jsonl", "sub/any.jsonl"} if keep else set()
            first = 4 if keep else 1
            assert names == {f"{first:06d}-get-a.jsonl", f"{first + 1:06d}-get-b.jsonl", "notes.txt"} | kept
        assert len(list(path.parent.iterdir())) == 1


def test_what_is_asked_anew_is_told_by_the_rules(fresh: list[Path], tmp_path: Path) -> None:
    path = tape(tmp_path / "x.jsonl", "a=1", "c=3")
    renew(path, fresh, parse_match("method"), keep=True)
    assert found(path) == ["a=new", "b=new"]


def test_comments_stay(fresh: list[Path], tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", "# mine", request("/c", "GET"), *plain("3"))
    renew(path, fresh, DEFAULT, keep=True)
    assert path.read_text().startswith("# mine\n")


@pytest.mark.parametrize("name", ["x.jsonl", "x"])
def test_what_was_left_by_a_killed_process_does_no_harm(name: str, fresh: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "c" / name
    tape(path if path.suffix else path / "000001-get-c.jsonl", "c=3")
    tape(path.with_name(f".{name}.{os.getpid()}"), "z=1")
    for what in ("new", "old"):
        tape(path.with_name(f".{name}.{os.getpid()}.{what}") / "z.jsonl", "z=1")
    renew(path, fresh, DEFAULT, keep=True)
    assert found(path) == ["c=3", "a=new", "b=new"]


def test_a_disk_that_fails_leaves_the_old_one(
    fresh: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tape(tmp_path / "x.jsonl", "a=1")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(MockllmError, match=r"cannot renew .*x\.jsonl: .*no space left"):
        renew(path, fresh, DEFAULT, keep=False)
    assert found(path) == ["a=1"]


def test_several_at_a_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    tapes = [tape(tmp_path / f"fresh{number}" / "000001-get.jsonl", f"{number}=x") for number in range(8)]
    threads = [threading.Thread(target=renew, args=(path, [one], DEFAULT), kwargs={"keep": True}) for one in tapes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found(path)) == [f"{number}=x" for number in range(8)]
