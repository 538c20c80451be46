"""What a replay sees of its files while they change: edits, new ones, ones that are gone, ones that cannot be read."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mockllm import files
from mockllm import library as module
from mockllm.core.errors import CassetteError, UsageError
from mockllm.core.exchange import Request
from mockllm.core.matching import keys
from mockllm.library import Library
from tests.peers.client import ask, post
from tests.peers.framing import answer_end
from tests.shell.serving import replaying
from tests.shell.tapes import head, plain, plain_wire, request, write

HOUR_US = 3_600_000_000


def asked(body: bytes = b"1", target: bytes = b"/x") -> Request:
    return Request("POST", target, (), body)


class Playing:
    """A library, and who draws from it: `draw` gives the file and line that answers."""

    def __init__(self, *paths: Path, **more: Any) -> None:
        self.said: list[str] = []
        self.library = Library(paths, self.said.append, **more)
        self.now = 0

    def draw(self, body: bytes = b"1", after_us: int = 0, target: bytes = b"/x") -> str | None:
        self.now += after_us
        found = self.library.draw(keys(asked(body, target)), {}, self.now)
        return None if found is None else f"{found.handle.path.name}:{found.handle.place.header_line}"


def settle(*paths: Path) -> None:
    """As if nothing had changed there for an hour."""
    for path in paths:
        at = path.stat().st_mtime_ns - HOUR_US * 1000
        os.utime(path, ns=(at, at))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request(json=2), *plain("two"))
    settle(tmp_path)
    return tmp_path


# --- edits


def test_an_edit_is_seen_at_the_request_that_it_answers(folder: Path) -> None:
    playing = Playing(folder)
    assert [playing.draw(b"1"), playing.draw(b"2")] == ["a.jsonl:1", "a.jsonl:5"]
    write(folder / "a.jsonl", "# longer", request(json=1), *plain("one"), request(json=2), *plain("two"))
    assert [playing.draw(b"1"), playing.draw(b"2")] == ["a.jsonl:2", "a.jsonl:6"]
    assert playing.said == []


def test_an_edit_that_answers_something_else_now(folder: Path) -> None:
    """What no longer answers a request gives way to what does, and that may have been edited too."""
    write(folder / "b.jsonl", request(json=9), *plain("nine"))
    playing = Playing(folder)
    write(folder / "a.jsonl", "# longer", request(json=3), *plain("three"))
    write(folder / "b.jsonl", "# longer", request(json=1), *plain("one"))
    assert playing.draw(b"1") == "b.jsonl:2"
    assert playing.draw(b"2") is None
    assert playing.draw(b"3") == "a.jsonl:2"


def test_an_edit_to_the_worse_is_refused_where_it_would_be_played_and_mended_later(folder: Path) -> None:
    playing = Playing(folder)
    write(folder / "a.jsonl", request(json=1), "nonsense")
    for _ in range(2):
        with pytest.raises(CassetteError, match=r"a\.jsonl:2: found a line that begins 'nonsense'"):
            playing.draw(b"1")
    assert playing.said == [], "the client is told"
    for _ in range(2):
        assert playing.draw(b"3") is None
    (said,) = playing.said
    assert said.startswith(f"{folder}/a.jsonl:2: found ")
    assert said.endswith("; it is not played")
    write(folder / "a.jsonl", request(json=1), *plain("mended"))
    assert playing.draw(b"1") == "a.jsonl:1"
    write(folder / "a.jsonl", request(json=1), "nonsense")
    assert playing.draw(b"3") is None
    assert len(playing.said) == 2, "said anew, since it was mended between"


def test_an_edited_file_that_cannot_be_read_is_a_500_that_says_so(folder: Path) -> None:
    with replaying(folder) as replay:
        write(folder / "a.jsonl", request(json=1), "nonsense")
        wire = ask(replay.host, replay.port, post("/x", b"1"), answer_end).wire
        assert wire.startswith(b"HTTP/1.1 500 ")
        assert b"a.jsonl:2: found a line that begins 'nonsense'" in wire
        (entry,) = replay.entries()
        assert [entry["match"], entry["status"]] == ["refused", 500]
        assert "a.jsonl:2: found" in entry["message"]
        write(folder / "a.jsonl", request(json=1), *plain("mended"))
        assert ask(replay.host, replay.port, post("/x", b"1"), answer_end).wire == plain_wire("mended")


# --- new ones, and ones that are gone


def test_a_new_file_is_seen_at_once_by_who_misses_it(folder: Path) -> None:
    playing = Playing(folder)
    assert playing.draw(b"3") is None
    write(folder / "deep" / "er" / "b.jsonl", request(json=3), *plain("three"))
    assert playing.draw(b"3") == "b.jsonl:1"
    settle(folder, folder / "deep", folder / "deep" / "er")
    assert playing.draw(b"4") is None
    write(folder / "deep" / "er" / "c.jsonl", request(json=4), *plain("four"))
    assert playing.draw(b"4") == "c.jsonl:1"


def test_a_new_file_that_comes_first_is_seen_within_a_second(folder: Path) -> None:
    assert module.LOOK_US < 1_000_000
    playing = Playing(folder)
    assert playing.draw(b"1", after_us=HOUR_US) == "a.jsonl:1"
    write(folder / "0.jsonl", request(json=1), *plain("zero"))
    assert playing.draw(b"1", after_us=module.LOOK_US // 2) == "a.jsonl:1"
    assert playing.draw(b"1", after_us=module.LOOK_US) == "0.jsonl:1"
    assert len(playing.library) == 3


def test_a_file_of_the_same_tick_of_the_file_systems_clock_is_seen(folder: Path) -> None:
    """Two changes may have one time: a folder that changed just now is looked at again."""
    playing = Playing(folder)
    write(folder / "b.jsonl", request(json=3), *plain("three"))
    assert playing.draw(b"3") == "b.jsonl:1"
    before = folder.stat()
    write(folder / "c.jsonl", request(json=4), *plain("four"))
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert playing.draw(b"4") == "c.jsonl:1"


def test_a_quiet_folder_is_not_listed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Any] = []
    find = files.find

    def counted(*args: Any, **more: Any) -> list[Path]:
        listed.append(args)
        return find(*args, **more)

    monkeypatch.setattr(files, "find", counted)
    playing = Playing(folder)
    for _ in range(5):
        playing.draw(b"1", after_us=HOUR_US)
        playing.draw(b"3")
    assert len(listed) == 1


@pytest.mark.parametrize("wait_us", [0, HOUR_US])
def test_a_file_that_is_gone_is_said_once_and_may_come_back(wait_us: int, folder: Path) -> None:
    write(folder / "b.jsonl", request(json=3), *plain("three"))
    playing = Playing(folder)
    (folder / "a.jsonl").unlink()
    for _ in range(2):
        assert playing.draw(b"1", after_us=wait_us) is None
    assert playing.draw(b"3") == "b.jsonl:1"
    assert playing.said == [f"cannot read {folder}/a.jsonl: no such file or directory; it is not played"]
    write(folder / "a.jsonl", request(json=1), *plain("back"))
    assert playing.draw(b"1") == "a.jsonl:1"


def test_a_path_that_is_a_file_may_go_and_come_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    playing = Playing(path)
    path.unlink()
    assert playing.draw() is None
    write(path, request(json=1), *plain("back"))
    assert playing.draw() == "a.jsonl:1"


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        Playing(tmp_path / "new")
    playing = Playing(tmp_path / "new", empty_ok=True)
    assert playing.draw() is None
    write(tmp_path / "new" / "a.jsonl", request(json=1), *plain("one"))
    assert playing.draw() == "a.jsonl:1"


def test_a_new_file_that_cannot_be_read_is_said_once_and_played_once_it_can(folder: Path) -> None:
    playing = Playing(folder)
    write(folder / "b.jsonl", request(json=3), "nonsense")
    for _ in range(3):
        assert playing.draw(b"3", after_us=HOUR_US) is None
        assert playing.draw(b"1") == "a.jsonl:1", "the others are played"
    (said,) = playing.said
    assert said.startswith(f"{folder}/b.jsonl:2: found a line that begins 'nonsense'")
    write(folder / "b.jsonl", request(json=3), *plain("three"))
    assert playing.draw(b"3") == "b.jsonl:1"


def test_a_new_file_that_vanishes_while_it_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = files.find
    playing = Playing(folder)
    write(folder / "b.jsonl", request(json=3), *plain("three"))

    def gone(*args: Any, **more: Any) -> list[Path]:
        found = find(*args, **more)
        (folder / "b.jsonl").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(files, "find", gone)
    for _ in range(2):
        assert playing.draw(b"3") is None
    assert playing.said == [f"cannot read {folder}/b.jsonl: no such file or directory; it is not played"]


def test_a_recording_whose_request_was_never_finished_answers_any_body(tmp_path: Path) -> None:
    early = [head(413, Content_Length="0"), [0, "request", {"text": "abc", "cut": True}], [0, "end", "complete"]]
    write(tmp_path / "a.jsonl", request(early=True), *early)
    assert Playing(tmp_path).draw(b"whatever") == "a.jsonl:1"


def test_what_is_no_cassette_is_passed_over(folder: Path) -> None:
    (folder / "notes.txt").write_text("nonsense")
    (folder / "sub.jsonl").mkdir()
    (folder / ".#a.jsonl").symlink_to("nowhere")
    (folder / "loop").symlink_to(folder)
    (folder / "link.jsonl").symlink_to(folder / "a.jsonl")
    assert [path.name for path in Playing(folder).library.files] == ["a.jsonl", "link.jsonl"]


def test_files_are_in_the_order_of_their_folders(tmp_path: Path) -> None:
    for name in ("b", "a-b", "a/b", "a/a/z", "a.b"):
        write(tmp_path / f"{name}.jsonl", request(json=1), *plain(name))
    found = [path.relative_to(tmp_path) for path in files.find([tmp_path])]
    assert found == sorted(found)


# --- the nearest, in a thread of its own


def test_the_nearest_is_looked_for_among_what_can_be_read(folder: Path) -> None:
    write(folder / "b.jsonl", request(json=3), *plain("three"))
    playing = Playing(folder)
    write(folder / "a.jsonl", "nonsense")
    found = playing.library.nearest(asked(b"2"), same_place=True)
    assert found is not None
    assert found.path.name == "b.jsonl"
    (folder / "b.jsonl").unlink()
    assert playing.library.nearest(asked(b"4"), same_place=True) == found, "known before: nothing is read again"


def test_a_miss_is_a_404_even_where_the_nearest_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replaying(folder) as replay:
        nearest = replay.library.nearest(asked(b"2"), same_place=True)
        write(folder / "a.jsonl", request(json=1), "nonsense")
        monkeypatch.setattr(replay.library, "nearest", lambda *_, **__: nearest)
        wire = ask(replay.host, replay.port, post("/x", b"5"), answer_end).wire
    assert wire.startswith(b"HTTP/1.1 404 ")
    assert b"a.jsonl:5, but " in wire
    assert b"a.jsonl:2: found a line that begins 'nonsense'" in wire


def test_files_may_change_while_the_nearest_is_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write(folder / f"{number}.jsonl", request(json=[number]), *plain("x"))
    playing = Playing(folder)
    reading, go = threading.Event(), threading.Event()
    real = files.read_request

    def slow(recording: files.Recording) -> Request:
        reading.set()
        assert go.wait(10)
        return real(recording)

    monkeypatch.setattr(files, "read_request", slow)
    found: list[files.Recording | None] = []
    look: Callable[[], None] = lambda: found.append(playing.library.nearest(asked(b"[7]"), same_place=True))  # noqa: E731
    thread = threading.Thread(target=look)
    thread.start()
    assert reading.wait(10)
    (folder / "0.jsonl").unlink()
    write(folder / "z.jsonl", request(json=["z"]), *plain("z"))
    assert playing.draw(b'["z"]') == "z.jsonl:1"
    go.set()
    thread.join(10)
    (nearest,) = found
    assert nearest is not None
    assert nearest.path.name == "7.jsonl"
