"""What a recorder writes and when: a tape for each exchange, every read on disk before the client has it, no secret,
and a disk that fails hurts nobody.
"""

import errno
import json
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mockllm import files
from mockllm.core.response import End, Then
from mockllm.files import Folder
from mockllm.serve import RawConnection
from tests.peers.client import RawClient, ask, get, post
from tests.peers.common import Ended
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Lockstep, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import load, recording, replaying

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n",
    b"3\r\ntwo\r\n",
    b"5\r\nthr",
    b"ee\r\n",
    b"0\r\n\r\n",
]


def ok(_request: bytes) -> Script:
    return [Send(OK)]


Write = Callable[[int, bytes], int]


def on_write(monkeypatch: pytest.MonkeyPatch, instead: Callable[[Write, int, bytes], int]) -> None:
    """Let `instead(write, file, data)` write what goes to a tape."""
    write = os.write

    def written(file: int, data: Any) -> int:
        return instead(write, file, bytes(data)) if bytes(data[:1]) in (b"{", b"[") else write(file, data)

    monkeypatch.setattr(os, "write", written)


# --- as it happens


def test_each_read_is_one_write_of_whole_lines_and_on_disk_before_the_client_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, bytes]] = []

    def noted(write: Write, file: int, data: bytes) -> int:
        done.append(("tape", data))
        return write(file, data)

    def sent(self: RawConnection, data: bytes, /, real: Any = RawConnection.write) -> None:
        done.append(("client", data))
        real(self, data)

    on_write(monkeypatch, noted)
    monkeypatch.setattr(RawConnection, "write", sent)
    lockstep = Lockstep(STREAM)
    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        wire = b"".join(STREAM)
        assert ask(recorder.host, recorder.port, post("/x", b"{}"), len(wire), on_read=lockstep.on_read).wire == wire
        (tape,) = recorder.tapes()
    assert [where for where, _ in done] == ["tape", "client"] * len(STREAM) + ["tape"]
    assert [data for where, data in done if where == "client"] == STREAM
    lines = [data for where, data in done if where == "tape"]
    assert all(data.endswith(b"\n") for data in lines)
    assert [data.count(b"\n") for data in lines] == [3, 1, 1, 1, 1, 1], "the header line goes with the first read"
    assert b"".join(lines) == next(tmp_path.iterdir()).read_bytes()
    assert [data for _, data in tape.response.reads()] == STREAM


def test_a_tape_is_there_while_its_answer_is_still_coming(tmp_path: Path) -> None:
    lockstep = Lockstep(STREAM)
    go = threading.Event()

    def look(total: int) -> None:
        (tape,) = load(tmp_path)
        assert len(tape.response.wire) >= total
        assert (tape.response.end, tape.end_meta) == (End.CLIENT, {"by": "kill"})
        lockstep.on_read(total)

    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, get("/"), len(b"".join(STREAM)), on_read=look).wire
        go.set()


# --- files


def test_files_are_numbered_on_and_named_for_people(tmp_path: Path) -> None:
    (tmp_path / "000041-get-v1-models.jsonl").write_text("mine")
    (tmp_path / "7-notes.txt").write_text("mine")
    (tmp_path / "000099-folder").mkdir()
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        asked = [get("/v1/models?key=s"), post("/v1/chat/completions", b"{}"), get("/"), get("/" + "Ab%20" * 60)]
        for count, request in enumerate(asked, 1):
            ask(recorder.host, recorder.port, request, answer_end)
            recorder.log.wait(count)
    names = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert names[:4] == [
        "000041-get-v1-models.jsonl",
        "000100-get-v1-models.jsonl",
        "000101-post-v1-chat-completions.jsonl",
        "000102-get.jsonl",
    ]
    assert re.fullmatch(r"000103-get-(ab-20)+ab-2\.jsonl", names[4])
    assert len(names[4]) < 90
    assert (tmp_path / "000041-get-v1-models.jsonl").read_text() == "mine"
    assert stat.S_IMODE((tmp_path / names[1]).stat().st_mode) == 0o600


def test_two_recorders_on_one_folder_never_take_each_others_place(tmp_path: Path) -> None:
    bodies = [b'{"n":%d}' % number for number in range(8)]
    with RawServer(ok) as server, recording(server.url, tmp_path) as one, recording(server.url, tmp_path) as two:

        def work(recorder: Any, mine: list[bytes]) -> None:
            for count, body in enumerate(mine, 1):
                assert ask(recorder.host, recorder.port, post("/x", body), answer_end).wire == OK
                recorder.log.wait(count)

        threads = [threading.Thread(target=work, args=pair) for pair in ((one, bodies[:4]), (two, bodies[4:]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(tape.request.body or b"" for tape in load(tmp_path)) == bodies
    assert sorted(int(path.name[:6]) for path in tmp_path.iterdir()) == list(range(1, 9))


def test_requests_that_differ_in_the_last_message_are_all_kept(tmp_path: Path) -> None:
    bodies = [b'{"messages":[{"role":"user","content":"%s"}]}' % text for text in (b"one", b"two", b"one")]
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        for count, body in enumerate(bodies, 1):
            ask(recorder.host, recorder.port, post("/v1/chat/completions", body), answer_end)
            recorder.log.wait(count)
    assert [tape.request.body for tape in load(tmp_path)] == bodies


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"b": 1, "a": [1.50, "\xc3\xa9", null]}', "json"),
        (b"multipart \r\n text \xe2\x80\xa8", "text"),
        (b'{"a": 1, "a": 2}', "text"),
        (b'{"a": NaN}', "text"),
        (b'{"a": "\\ud83c"}', "text"),
        (b"\x00\xff", "base64"),
        (b"", None),
    ],
)
def test_a_request_body_is_kept_so_that_a_person_can_read_it(body: bytes, key: str | None, tmp_path: Path) -> None:
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        asked = post("/x", body)
        ask(recorder.host, recorder.port, asked, answer_end)
        (tape,) = recorder.tapes()
        assert server.requests[0].endswith(b"\r\n\r\n" + body)
    header = json.loads(next(tmp_path.iterdir()).read_bytes().splitlines()[0])
    assert set(header) == {"mockllm", "recorded", "upstream", "request"}
    assert set(header["request"]) == {"method", "target", "headers"} | ({key} if key else set())
    if key == "json":
        assert header["request"]["json"] == json.loads(body)
    else:
        assert tape.request.body == body
    with replaying(tmp_path) as replay:
        assert ask(replay.host, replay.port, asked, answer_end).wire == OK


def test_one_line_is_logged_for_each_exchange(tmp_path: Path) -> None:
    scripts: list[Script] = [[Send(OK)], [Send(OK[:-1]), Fin()], [Fin()]]
    with RawServer(scripts) as server, recording(server.url, tmp_path) as recorder:
        for count, target in enumerate(["/v1/x?key=secret&a=1", "/b", "/c"], 1):
            ask(recorder.host, recorder.port, get(target), answer_end)
            recorder.log.wait(count)
    first, second, third = recorder.log.lines
    assert re.fullmatch(
        r"GET /v1/x\?key=\[redacted\]&a=1 200, 40 B, first byte \S+ \S+, \S+ \S+, complete \S+\.jsonl",
        first,
    )
    assert "200, 39 B" in second
    assert "fin (WARNING: the server closed before the answer was whole)" in second
    assert "no head, 0 B, nothing came" in third


# --- secrets


SECRETS = {
    "Authorization": "Bearer sk-1",
    "x-api-key": "sk-2",
    "API-KEY": "sk-3",
    "X-Goog-Api-Key": "sk-4",
    "Cookie": "session=sk-5",
}


def test_no_secret_of_a_request_reaches_the_disk_or_the_log(tmp_path: Path) -> None:
    def asked(suffix: str) -> bytes:
        headers = [f"{name}: {value}{suffix}" for name, value in SECRETS.items()]
        return post(f"/v1beta/models/x:generate?alt=sse&key=sk-6{suffix}", b'{"sk":"phone 555-0100"}', *headers)

    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, asked("s"), answer_end).wire == OK
        (tape,) = recorder.tapes()
        for number in range(1, 7):
            assert b"sk-%ds" % number in server.requests[0], "the server gets them all"
    written = next(tmp_path.iterdir()).read_bytes()
    assert b"sk-" not in written + "".join(recorder.log.lines).encode()
    assert b"555-0100" in written
    assert dict(tape.request.headers) | dict.fromkeys(map(str.encode, SECRETS), b"[redacted]") == dict(
        tape.request.headers
    )
    assert tape.request.target == b"/v1beta/models/x:generate?alt=sse&key=[redacted]"
    with replaying(tmp_path) as replay:
        assert ask(replay.host, replay.port, asked("another"), answer_end).wire == OK
        assert ask(replay.host, replay.port, asked("").replace(b"&key=sk-6", b""), answer_end).wire == OK
    assert replay.app.misses == 0


# --- disks that fail


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("torn", [0, 5], ids=["nothing written", "half a line written"])
def test_a_full_disk_hurts_no_client(after: int, torn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, count = True, 0

    def fill(write: Write, file: int, data: bytes) -> int:
        nonlocal count
        count += 1
        if not full or count <= after:
            return write(file, data)
        if torn and count == after + 1:
            return write(file, data[:torn])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # the rest of a torn line is no line start: count it too
    real = os.write
    monkeypatch.setattr(
        os, "write", lambda file, data: fill(real, file, bytes(data)) if len(data) > 1 else real(file, data)
    )
    lockstep, wire = Lockstep(STREAM), b"".join(STREAM)
    with RawServer([lockstep.steps, [Send(OK)], [Send(OK)]]) as server, recording(server.url, tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, get("/1"), len(wire), on_read=lockstep.on_read).wire == wire
        recorder.log.wait(1)
        assert ask(recorder.host, recorder.port, get("/2"), answer_end).wire == OK
        recorder.log.wait(2)
        full = False
        assert ask(recorder.host, recorder.port, get("/3"), answer_end).wire == OK
        recorder.log.wait(3)
    (said,) = recorder.said.lines
    assert "no space left on device" in said
    assert "clients are served on" in said
    assert recorder.recorder.failed
    broken = min(tmp_path.iterdir())
    kept = files.read_all(broken)
    assert [data for tape in kept for _, data in tape.response.reads()] == STREAM[:after]
    assert broken.read_bytes()[-1:] in (b"\n", b"")
    assert load(tmp_path)[-1].request.target == b"/3"
    assert load(tmp_path)[-1].response.end is End.COMPLETE


def test_a_disk_that_cannot_even_take_back_half_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    on_write(monkeypatch, lambda write, file, data: fails())
    monkeypatch.setattr(os, "ftruncate", fails)
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
        recorder.log.wait(1)
    assert len(recorder.said.lines) == 1
    assert recorder.recorder.failed


def test_a_disk_that_tells_only_at_the_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.close
    tape: set[int] = set()

    def noted(write: Write, file: int, data: bytes) -> int:
        tape.add(file)
        return write(file, data)

    def close(file: int) -> None:
        real(file)
        if file in tape:
            tape.clear()
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    on_write(monkeypatch, noted)
    monkeypatch.setattr(os, "close", close)
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
        recorder.log.wait(1)
    assert "quota" in recorder.said.lines[0]
    assert recorder.recorder.failed


def test_a_folder_that_goes_away(tmp_path: Path) -> None:
    folder = tmp_path / "tapes"
    with RawServer(ok) as server, recording(server.url, folder) as recorder:
        folder.rmdir()
        for count in (1, 2):
            assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
            recorder.log.wait(count)
    (said,) = recorder.said.lines
    assert "no such file" in said.lower()
    assert recorder.recorder.failed
    assert recorder.recorder.ends == {End.COMPLETE: 2}


def test_a_folder_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" / "tapes"
    with RawServer(ok) as server, recording(server.url, folder) as recorder:
        assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
        recorder.log.wait(1)
    (said,) = recorder.said.lines
    assert "not a directory" in said.lower()
    assert recorder.recorder.failed
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "permission denied" in (Folder(tmp_path).unusable or "")


# --- what is watched after the answer


def test_the_end_of_a_tape_waits_for_what_the_server_does(tmp_path: Path) -> None:
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            assert client.read(answer_end).end is Ended.OPEN
            recorder.log.wait(1)
            (tape,) = load(tmp_path)
    assert (tape.response.end, tape.response.then) == (End.COMPLETE, Then.OPEN)
