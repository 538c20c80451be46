"""Puts fresh tapes where a cassette is: all of them at once, so that whoever reads finds the old or the new one.

It must not know who recorded them, or whether they are any good.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from mockllm import files
from mockllm.core.errors import MockllmError
from mockllm.core.rules import Rules
from mockllm.core.tape import dump
from mockllm.files import Recording
from mockllm.library import Library


def renew(path: Path, fresh: Sequence[Path], rules: Rules, *, keep: bool) -> None:
    """Make files of fresh tapes the cassette at `path`: one file where it ends in `.jsonl`, else a folder of them.

    `keep`: what is there stays, but for recordings of a request that a fresh one answers (by `rules`); without it
    nothing stays. Other files of a folder always do. Several processes may do it at a time. Raises MockllmError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent):
            old = _kept(path, fresh, rules) if keep else []
            (_renew_file if path.suffix == files.SUFFIX else _renew_folder)(path, old, fresh)
    except OSError as error:
        raise MockllmError(f"cannot renew {path}: {error}") from None


def _kept(path: Path, fresh: Sequence[Path], rules: Rules) -> list[Recording]:
    """The recordings of a cassette that no fresh one replaces, in order."""

    def entries(paths: Sequence[Path]) -> Library:
        return Library(paths, lambda _: None, rules, empty_ok=True)

    answered = {item.key for item in entries(fresh).deck.entries}
    return [item.handle for item in entries([path]).deck.entries if item.key not in answered]


def _renew_file(path: Path, old: Sequence[Recording], fresh: Sequence[Path]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    files.write_new(beside, _text(old) + b"".join(dump(one) for tape in fresh for one in files.read_all(tape)))
    beside.replace(path)


def _renew_folder(path: Path, old: Sequence[Recording], fresh: Sequence[Path]) -> None:
    beside, before = (path.with_name(f".{path.name}.{os.getpid()}.{what}") for what in ("new", "old"))
    for left in (beside, before):
        shutil.rmtree(left, ignore_errors=True)
    if path.exists():
        shutil.copytree(path, beside, ignore=shutil.ignore_patterns(f"*{files.SUFFIX}"))
    for source, recordings in groupby(old, lambda recording: recording.path):
        files.write_new(beside / source.relative_to(path), _text(list(recordings)))
    folder = files.Folder(beside)
    for tape in fresh:
        name = f"{folder.reserve():06d}-{tape.name.partition('-')[2]}"
        files.write_new(beside / name, tape.read_bytes())
    if path.exists():
        path.rename(before)
    beside.rename(path)
    shutil.rmtree(before, ignore_errors=True)


def _text(recordings: Sequence[Recording]) -> bytes:
    return b"".join(dump(files.read(recording)) for recording in recordings)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While this goes on, no other process does it in that folder."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
