"""Cassette files on a disk: names, numbers, what is found in folders, parts of large files, and rewriting."""

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm import files
from mockllm.core.errors import CassetteError, MockllmError, UsageError
from mockllm.files import Folder, find, read, read_all, read_request, rewrite, scan, shipped, stamp, tape_name
from tests.shell.tapes import head, plain, plain_wire, request, write

NO_FAILURE: list[str] = []


def new(folder: Folder, number: int, name: str, failures: list[str]) -> files.TapeFile:
    made = folder.create(number, name, failures.append)
    assert made is not None
    return made


@given(st.text(min_size=1, max_size=8), st.binary(max_size=200))
def test_a_name_is_one_that_every_file_system_takes(method: str, path: bytes) -> None:
    assert re.fullmatch("[a-z0-9](?:[a-z0-9-]{0,71}[a-z0-9])?", tape_name(method, path))


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", b"/v1/chat/completions", "post-v1-chat-completions"),
        ("GET", b"/", "get"),
        ("GET", b"/../../etc/passwd", "get-etc-passwd"),
        ("GET", "/caf\u00e9/\u65e5\u672c".encode(), "get-caf"),
        ("-", b"/\xff", "exchange"),
    ],
)
def test_names(method: str, path: bytes, name: str) -> None:
    assert tape_name(method, path) == name


def test_a_folder_is_made_and_numbered_on(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    folder = Folder(path)
    assert folder.unusable is None
    assert path.is_dir()
    assert [folder.reserve(), folder.reserve()] == [1, 2]
    (path / "000012-x.jsonl").touch()
    (path / "13.jsonl").touch()
    (path / "0000000000099-too-many-digits.jsonl").touch()
    assert Folder(path).reserve() == 13


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    one, two = Folder(tmp_path), Folder(tmp_path)
    numbers = [one.reserve(), two.reserve(), one.reserve()]
    assert numbers == [1, 1, 2]
    failures: list[str] = []
    first, second, third = (
        new(folder, number, "x", failures) for folder, number in zip((one, two, one), numbers, strict=True)
    )
    for file, text in ((first, b"1\n"), (second, b"2\n"), (third, b"3\n")):
        file.write(text)
        file.close()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"00000{number}-x.jsonl" for number in (1, 2, 3)]
    assert [first.path.read_bytes(), second.path.read_bytes(), third.path.read_bytes()] == [b"1\n", b"2\n", b"3\n"]
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert failures == []


def test_a_write_after_a_failed_one_does_nothing(tmp_path: Path) -> None:
    failures: list[str] = []
    file = new(Folder(tmp_path), 1, "x", failures)
    file.write(b"one\n")
    os.close(file._file)
    file.write(b"two\n")
    file.write(b"three\n")
    file.close()
    assert failures == [f"cannot write {file.path}: bad file descriptor"]
    assert file.path.read_bytes() == b"one\n"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        Folder(tmp_path / "file")
    assert "not a directory" in (Folder(tmp_path / "file" / "below").unusable or "")


# --- what is found


def test_files_are_found_in_order_and_once(tmp_path: Path) -> None:
    for name in ("b/2.jsonl", "b/1.jsonl", "a.jsonl", "b/c/3.jsonl", "notes.txt", "b/.hidden.123"):
        write(tmp_path / name, "#")
    (tmp_path / "folder.jsonl").mkdir()
    names = ["a.jsonl", "b/1.jsonl", "b/2.jsonl", "b/c/3.jsonl"]
    assert find([tmp_path]) == [tmp_path / name for name in names]
    assert find([tmp_path / "b", tmp_path / "a.jsonl", tmp_path]) == [tmp_path / name for name in names]
    assert find([tmp_path / "notes.txt"]) == [tmp_path / "notes.txt"], "a file that is named is taken as it is"


@pytest.mark.parametrize(("name", "what"), [("nowhere", "does not exist"), ("folder.jsonl", "no cassettes")])
def test_nothing_found(name: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UsageError, match=what):
        find([tmp_path / name])


def test_a_scan_finds_every_exchange_and_says_what_is_odd(tmp_path: Path) -> None:
    one = write(
        tmp_path / "1.jsonl", "# c", request("/1"), *plain("one"), "", "# of the next", request("/2"), *plain("2")
    )
    two = write(tmp_path / "2.jsonl", "# nothing")
    three = write(tmp_path / "3.jsonl", request("/3"), head())
    with three.open("a") as file:
        file.write("[0,")
    said: list[str] = []
    found = list(scan([one, two, three], said.append))
    assert [str(recording) for recording, _ in found] == [f"{one}:2", f"{one}:8", f"{three}:1"]
    assert [recording.ordinal for recording, _ in found] == [0, 1, 0]
    assert [asked.target for _, asked in found] == [b"/1", b"/2", b"/3"]
    assert said == [
        f"{two}: holds no recording",
        f"{three}:3: dropped an unfinished last line (the recorder was killed, or the disk was full)",
    ]


def test_a_recording_is_read_without_the_rest_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for number in range(50) for line in (request(f"/{number}", json=number), *plain(f"answer {number}"))]
    path = write(tmp_path / "a.jsonl", "\ufeff# with a byte order mark", *lines)
    recordings = [recording for recording, _ in scan([path], NO_FAILURE.append)]
    monkeypatch.setattr(files, "_read", lambda _: pytest.fail("all of the file is read"))
    for number in (49, 0, 25):
        exchange = read(recordings[number])
        assert exchange.response.wire == plain_wire(f"answer {number}")
        assert read_request(recordings[number]) == exchange.request
        assert exchange.request.target == b"/%d" % number


def test_the_line_of_an_error_counts_from_the_files_start(tmp_path: Path) -> None:
    bad = [head(Content_Length="1"), [0, "data", "two"], [0, "end", "complete"]]
    path = write(tmp_path / "a.jsonl", request(), *plain("one"), "# c", request(), *bad)
    recording = [recording for recording, _ in scan([path], NO_FAILURE.append)][1]
    with pytest.raises(CassetteError) as caught:
        read(recording)
    assert (caught.value.source, caught.value.line) == (str(path), 8)


def test_an_edited_file_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", request("/1"), *plain("one"), request("/2"), *plain("two"))
    _, (second, _) = scan([path], NO_FAILURE.append)
    before = stamp(path)
    write(path, request("/1"), *plain("longer than it was"), request("/3"), *plain("three"))
    assert stamp(path) != before
    assert read(second).response.wire == plain_wire("three")
    assert read_request(second).target == b"/3"
    write(path, request("/1"), *plain("one"))
    for reader in (read, read_request):
        with pytest.raises(CassetteError, match="found 1 exchanges; expected 2 or more, as when loaded"):
            reader(second)
    path.unlink()
    for reader in (read, read_request):
        with pytest.raises(MockllmError, match=r"cannot read .*a\.jsonl: no such file"):
            reader(second)
    with pytest.raises(MockllmError, match="no such file"):
        stamp(path)
    with pytest.raises(MockllmError, match="no such file"):
        read_all(path)


# --- rewriting


def test_a_rewrite_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"before")
    path.chmod(0o604)
    rewrite(path, b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", 0o604)

    def fails(*_: object) -> None:
        raise PermissionError(1, "x")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(MockllmError, match=r"cannot write .*a\.jsonl: operation not permitted"):
        rewrite(path, b"never")
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_shipped_cassettes_are_inside_the_package_or_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (shipped() / "mlx_lm.server").is_dir()
    package = tmp_path / "mockllm"
    package.mkdir()
    monkeypatch.setattr(files, "__file__", str(package / "files.py"))
    assert shipped() == tmp_path / "cassettes"
    (package / "cassettes").mkdir()
    assert shipped() == package / "cassettes"
