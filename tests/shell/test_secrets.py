"""A canary for each writer: whatever credential a client sends and wherever it comes back, no file and no line of a log
holds it; and the client's own traffic is untouched.
"""

import base64
import errno
import gzip
import json
import os
import re
import signal
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from mockllm import files
from mockllm.core import maskedtape
from mockllm.core.response import End
from mockllm.core.spelling import plain
from mockllm.journal import Journal
from tests.conftest import Launch
from tests.peers.client import RawClient, ask, get, post
from tests.peers.command import cli
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Lockstep, ReadRest, Rst, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import load, recording, replaying
from tests.shell.tapes import plain as plain_answer
from tests.shell.tapes import request, write

KEY = "sk-CANARY/0123+456789="
SHORT = "shrt-canary"
RAW = KEY.encode()
STARS = b"*" * len(RAW)
BEARER = f"Authorization: Bearer {KEY}"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def everything(folder: Path) -> Iterator[bytes]:
    """What can be read in the files of a folder: their names, their bytes, and what those stand for."""
    for path in folder.rglob("*"):
        yield str(path.relative_to(folder)).encode()
        if path.is_file():
            data = path.read_bytes()
            yield from (data, plain(data))
            yield from (base64.b64decode(text) for text in re.findall(rb'64","([A-Za-z0-9+/=]+)"', data))
        if path.suffix == ".jsonl" and b'"mockllm":' in path.read_bytes():
            for exchange in files.read_all(path):
                yield exchange.response.wire
                yield b"".join(segment.data for segment in exchange.response.segments)
                yield exchange.request.target


def no_canary(*places: Path | str | bytes, of: bytes = RAW) -> None:
    """AssertionError where the canary, or 8 bytes of it, can be read at one of these places."""
    texts = [text for place in places for text in (everything(place) if isinstance(place, Path) else [place])]
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        for form in (data, plain(data)):
            for start in range(len(of) - 7):
                assert of[start : start + 8] not in form, data[:2000]


# --- the recorder, live


BORDERS = [(RAW[:place], RAW[place:]) for place in range(len(RAW) + 1)]
STREAMS = {
    "chunked": [
        CHUNKED,
        *(part for one, two in BORDERS for part in (chunk(b"<" + one), chunk(two + b">"))),
        b"0\r\n\r\n",
    ],
    "in a chunk": [
        CHUNKED,
        *(part for one, two in BORDERS for part in (b"%x\r\n<" % (len(RAW) + 2) + one, two + b">\r\n")),
        b"0\r\n\r\n",
    ],
    "close": [CLOSE, *(part for one, two in BORDERS for part in (b"<" + one, two + b">"))],
    "length": [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(BORDERS) * (len(RAW) + 2)),
        *(part for one, two in BORDERS for part in (b"<" + one, two + b">")),
    ],
    "head": [
        b"HTTP/1.1 401 no " + RAW[:5],
        RAW[5:] + b"\r\nX: " + RAW + b"\r\nWWW-Authenticate: Bearer error=" + RAW[:9],
        RAW[9:] + b"\r\nContent-Length: 0\r\n\r\n",
    ],
    "trailer": [CHUNKED + b"0\r\nX: " + RAW[:9], RAW[9:] + b"\r\n\r\n"],
    "not utf-8": [CLOSE, b"\xff" + RAW[:9], RAW[9:] + b"\xfe"],
    "escaped": [
        CLOSE,
        b'"' + b"".join(b"\\u%04x" % byte for byte in RAW)[:-3],
        b"03d " + RAW.replace(b"/", b"\\/") + b'"',
    ],
    "percent": [CLOSE, b"/x?k=" + quote(KEY, safe="").encode()[:-2], quote(KEY, safe="").encode()[-2:] + b"&k=" + RAW],
}


@pytest.mark.parametrize("name", STREAMS)
def test_t9_a_credential_that_comes_back_is_masked_on_disk_and_untouched_for_the_client(
    name: str, tmp_path: Path
) -> None:
    pieces = [piece for piece in STREAMS[name] if piece]
    wire = b"".join(pieces)
    lockstep = Lockstep(pieces)
    with RawServer([[*lockstep.steps, Fin()]]) as server, recording(server.url, tmp_path) as recorder:
        answer = ask(recorder.host, recorder.port, post("/v1", b"{}", BEARER), on_read=lockstep.on_read)
        assert answer.wire == wire
        assert RAW in server.requests[0]
        (tape,) = recorder.tapes()
        no_canary(tmp_path, *recorder.log.lines, *recorder.said.lines)
    assert [len(data) for _, data in tape.response.reads()] == [len(piece) for piece in pieces]
    if name in ("chunked", "in a chunk", "length", "close"):
        body = b"".join(segment.data for segment in tape.response.segments)
        assert body == (b"<" + STARS + b">") * len(BORDERS)
    with replaying(tmp_path) as replay:
        again = ask(replay.host, replay.port, post("/v1", b"{}", "Authorization: Bearer other"), len(wire))
        assert again.wire == tape.response.wire


CREDENTIALS = {
    "bearer": [BEARER],
    "bare": [f"Authorization: {KEY}"],
    "basic": [f"Authorization: Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()}"],
    "x-api-key": [f"x-api-key: {KEY}"],
    "api-key": [f"API-Key: {KEY}"],
    "goog": [f"x-goog-api-key: {KEY}"],
    "cookie": [f"Cookie: a=b; session={KEY}; c=d"],
    "target": [],
    "json": [],
    "form": ["Content-Type: application/x-www-form-urlencoded"],
    "text": ["Content-Type: text/plain"],
}
BODIES = {
    "json": json.dumps({"tools": [{"headers": {"Authorization": f"Bearer {KEY}"}}], "api_key": KEY}).encode(),
    "form": b"grant_type=x&client_secret=" + RAW.replace(b"+", b"%2B").replace(b"=", b"%3D"),
    "text": b'not json: "access_token": "' + RAW + b'"',
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_t9_every_kind_of_credential_is_masked_and_found_where_it_comes_back(name: str, tmp_path: Path) -> None:
    echo = json.dumps({"error": f"bad key {KEY} of {KEY}", "max_tokens": 1234567890123456}).replace("/", "\\/").encode()
    answer = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(echo) + echo
    target = f"/v1?key={KEY.replace('+', '%2B')}" if name == "target" else "/v1"
    body = BODIES.get(name, b'{"prompt":"%b"}' % RAW)
    asked = post(target, body, *CREDENTIALS[name]).replace(
        b"Content-Type: application/json\r\n", b"", name in ("form", "text")
    )
    with RawServer([[Send(answer)]]) as server, recording(server.url, tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, asked, answer_end).wire == answer
        (tape,) = recorder.tapes()
        assert server.requests[0].endswith(body)
        no_canary(tmp_path, *recorder.log.lines)
    masked = json.loads(tape.response.segments[-1].data)
    assert masked["max_tokens"] == 1234567890123456
    assert re.fullmatch(r"bad key \*+ of \*+", masked["error"])


def test_a_credential_elsewhere_in_the_request_is_masked_and_another_key_matches(tmp_path: Path) -> None:
    def asked(key: str) -> bytes:
        body = json.dumps({"prompt": f"my key is {key}", "api_key": key, "n": 1234567890123456}).encode()
        return post(f"/bot{key}/send?q={key}&key={SHORT}", body, f"Authorization: Bearer {key}", f"X-Debug: <{key}>")

    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with RawServer([[Send(answer)]]) as server, recording(server.url, tmp_path) as recorder:
        ask(recorder.host, recorder.port, asked(KEY), answer_end)
        (tape,) = recorder.tapes()
    no_canary(tmp_path, *recorder.log.lines)
    no_canary(tmp_path, *recorder.log.lines, of=SHORT.encode())
    assert dict(tape.request.headers)[b"X-Debug"] == b"<[redacted]>"
    assert tape.request.target == b"/bot[redacted]/send?q=[redacted]&key=[redacted]"
    (path,) = tmp_path.iterdir()
    assert re.fullmatch("[a-z0-9-]{1,80}", path.stem)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with replaying(tmp_path) as replay:
        for key in (KEY, "sk-another-one-of-another-length-than-that"):
            assert ask(replay.host, replay.port, asked(key), answer_end).wire == answer


def test_cookies_that_a_server_sets_are_masked_by_name(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: session=shrt-canary; Path=/; HttpOnly\r\nContent-Length: 2\r\n\r\n"
    pieces = [head[:30], head[30:41], head[41:] + b"ok"]
    lockstep = Lockstep(pieces)
    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        answer = ask(recorder.host, recorder.port, get("/"), len(head) + 2, on_read=lockstep.on_read)
        assert answer.wire == head + b"ok"
        (tape,) = recorder.tapes()
        no_canary(tmp_path, of=SHORT.encode())
    assert tape.response.wire == head.replace(b"shrt-canary", b"[redacted]") + b"ok"
    assert len(list(tape.response.reads())) == 3


def test_names_and_places_that_the_user_gives(tmp_path: Path, launch: Launch) -> None:
    head = b"HTTP/1.1 200 OK\r\nX-Tenant: shrt-canary\r\nContent-Length: 22\r\n\r\n"
    body = json.dumps({"user": {"name": KEY}, "x-tenant": SHORT, "messages": [{"id": SHORT}, {"id": SHORT}]}).encode()
    with RawServer([[Send(head + RAW)]]) as server:
        options = ("--redact", "X-Tenant", "--redact-json", "/user", "--redact-json", "/messages/*/id")
        running = launch("record", server.url, "-o", tmp_path / "tapes", *options)
        asked = post(f"/v1?x-tenant={SHORT}", body, f"x-tenant: {SHORT}")
        assert ask(running.host, running.port, asked, answer_end).wire == head + RAW
        running.wait_for("complete")
        done = running.stop()
    for canary in (RAW, SHORT.encode()):
        no_canary(tmp_path / "tapes", done.stdout, done.stderr, of=canary)


# --- ends in the midst of a credential


def test_t16_killed_in_the_midst_of_a_credential_the_tape_ends_before_it(tmp_path: Path, launch: Launch) -> None:
    pieces = [CHUNKED + chunk(b"data: one\n\n"), chunk(b"data: " + RAW[:5]), chunk(RAW[5:12])]
    lockstep = Lockstep(pieces)
    with RawServer([lockstep.steps]) as server:
        running = launch("record", server.url, "-o", tmp_path)
        with RawClient(running.host, running.port, on_read=lockstep.on_read) as client:
            client.send(post("/v1", b"{}", BEARER))
            assert client.read(sum(map(len, pieces))).wire == b"".join(pieces)
            running.process.send_signal(signal.SIGKILL)
            running.process.wait(10)
    (tape,) = load(tmp_path)
    assert tape.response.wire == CHUNKED + chunk(b"data: one\n\n") + b"b\r\ndata: "
    assert (tape.response.end, tape.end_meta) == (End.CLIENT, {"by": "kill"})
    assert RAW[:4] not in next(tmp_path.iterdir()).read_bytes()


@pytest.mark.parametrize("ending", [Fin(), Rst()], ids=["fin", "rst"])
@pytest.mark.parametrize("length", [5, 18])
def test_cut_off_in_the_midst_of_a_credential_nothing_is_held_back(
    ending: Fin | Rst, length: int, tmp_path: Path
) -> None:
    lockstep = Lockstep([CHUNKED + b"99\r\ndata: " + RAW[:length]])
    with RawServer([[*lockstep.steps, ending]]) as server, recording(server.url, tmp_path) as recorder:
        ask(recorder.host, recorder.port, post("/v1", b"{}", BEARER), on_read=lockstep.on_read)
        (tape,) = recorder.tapes()
    rest = RAW[:length] if length < 16 else STARS[:length]
    assert tape.response.wire == CHUNKED + b"99\r\ndata: " + rest
    assert tape.response.end is (End.FIN if ending == Fin() else End.RST)


# --- compressed


def gzipped(parts: list[bytes]) -> list[bytes]:
    deflate = zlib.compressobj(wbits=31)
    pieces = [deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*pieces, deflate.flush()]


def test_a_compressed_stream_with_a_credential_is_stored_decoded(tmp_path: Path) -> None:
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    coded = gzipped([b"data: " + RAW[:9], RAW[9:] + b"\n\n", b"data: [DONE]\n\n"])
    pieces = [head, *map(chunk, coded), b"0\r\n\r\n"]
    lockstep = Lockstep(pieces)
    during: list[list[Path]] = []

    def on_read(total: int) -> None:
        during.append(list(tmp_path.iterdir()))
        lockstep.on_read(total)

    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        answer = ask(recorder.host, recorder.port, post("/v1", b"{}", BEARER), sum(map(len, pieces)), on_read=on_read)
        assert answer.wire == b"".join(pieces), "live traffic is untouched"
        (tape,) = recorder.tapes()
        no_canary(tmp_path)
    assert tape.meta["decoded"] is True
    assert [data for _, data in tape.response.reads()] == [
        CHUNKED,
        chunk(b"data: " + STARS[:9]),
        chunk(STARS[9:] + b"\n\n"),
        chunk(b"data: [DONE]\n\n"),
        b"0\r\n\r\n",
    ]
    assert not any(during), "that one alone is written at its end"
    with replaying(tmp_path) as replay:
        assert ask(replay.host, replay.port, post("/v1", b"{}"), answer_end).wire == tape.response.wire


def test_a_compressed_answer_whose_head_was_written_before_is_written_anew(tmp_path: Path) -> None:
    body = gzip.compress(b'{"key":"%b"}' % RAW, mtime=0)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    pieces = [b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", head[:30], head[30:], body]
    lockstep = Lockstep(pieces)
    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        wire = b"".join(pieces)
        assert (
            ask(recorder.host, recorder.port, post("/v1", b"{}", BEARER), len(wire), on_read=lockstep.on_read).wire
            == wire
        )
        (tape,) = recorder.tapes()
    assert tape.response.segments[-1].data == b'{"key":"%b"}' % STARS
    assert len(list(tape.response.reads())) == 4
    no_canary(tmp_path)


@pytest.mark.parametrize("call", ["write", "ftruncate"])
def test_a_disk_that_fails_where_a_tape_is_written_anew(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = gzip.compress(b'{"key":"%b"}' % RAW, mtime=0)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    lockstep = Lockstep([head[:30], head[30:] + body])

    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def on_read(total: int) -> None:
        monkeypatch.setattr(files.os, call, fails)
        lockstep.on_read(total)

    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        asked = post("/v1", b"{}", BEARER)
        assert ask(recorder.host, recorder.port, asked, len(head + body), on_read=on_read).wire == head + body
        recorder.log.wait(1)
        monkeypatch.undo()
    (said,) = recorder.said.lines
    assert "no space left on device" in said
    assert recorder.recorder.failed
    no_canary(tmp_path)


def test_a_compressed_answer_without_it_is_stored_as_sent_and_one_that_cannot_be_searched_is_told(
    tmp_path: Path,
) -> None:
    body = gzip.compress(b'{"key":"other"}', mtime=0)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    answers = [head % (coding, len(body)) + body for coding in (b"gzip", b"br", b"deflate")]
    with RawServer([[Send(answer)] for answer in answers]) as server, recording(server.url, tmp_path) as recorder:
        for count, answer in enumerate(answers, 1):
            assert ask(recorder.host, recorder.port, post(f"/{count}", b"{}", BEARER), answer_end).wire == answer
            recorder.log.wait(count)
    assert [tape.response.wire for tape in load(tmp_path)] == answers
    assert not any("decoded" in tape.meta for tape in load(tmp_path))
    told = [line.partition(" (not searched for credentials: ")[2] for line in recorder.log.lines]
    assert told == ["", "it is compressed as br)", "the compressed body is corrupt)"]


def test_a_compressed_answer_that_is_too_large_is_cut_off_on_tape_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maskedtape, "MAX_KEPT", 1000)
    monkeypatch.setattr("mockllm.taping.MAX_KEPT", 3 << 20)
    body = gzip.compress(b"<" + RAW + b">" + bytes(range(256)) * 9, 0, mtime=0)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    lockstep = Lockstep([head, body[:500], body[500:]])
    with RawServer([lockstep.steps]) as server, recording(server.url, tmp_path) as recorder:
        wire = head + body
        assert (
            ask(recorder.host, recorder.port, post("/v1", b"{}", BEARER), len(wire), on_read=lockstep.on_read).wire
            == wire
        )
        (tape,) = recorder.tapes()
    assert (tape.response.end, tape.end_meta) == (End.CLIENT, {"by": "recorder"})
    assert recorder.recorder.failed
    (said,) = recorder.said.lines
    assert "is cut off at 3 MiB" in said
    no_canary(tmp_path)


# --- early answers


def test_a_credential_in_the_body_of_a_request_that_is_answered_early(tmp_path: Path) -> None:
    body = json.dumps({"api_key": KEY, "rest": "x" * 100}).encode()
    head, rest = post("/v1", body).split(b"\r\n\r\n")
    echo = b"HTTP/1.1 400 No\r\nContent-Length: 24\r\n\r\n<" + RAW + b">"
    script: Script = [Send(echo), ReadRest()]
    with RawServer([script], early=True) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(head + b"\r\n\r\n" + rest[:50])
            assert client.read(len(echo)).wire == echo
            client.send(rest[50:])
            (tape,) = recorder.tapes()
    assert tape.request.early
    assert json.loads(tape.request.body or b"") == {"api_key": "[redacted]", "rest": "x" * 100}
    no_canary(tmp_path)


# --- other writers


def test_t9_a_server_that_cannot_be_reached(tmp_path: Path, launch: Launch) -> None:
    with RawServer([]) as server:
        url = server.url
    running = launch("record", url, "-o", tmp_path / "tapes")
    asked = post(f"/bot{KEY}?key={SHORT}&a={KEY}", b"{}", BEARER, f"Cookie: a={SHORT}")
    answer = ask(running.host, running.port, asked, answer_end)
    assert answer.wire.startswith(b"HTTP/1.1 502")
    running.wait_for("502")
    done = running.stop()
    for canary in (RAW, SHORT.encode()):
        no_canary(answer.wire, done.stdout, done.stderr, tmp_path, of=canary)


def test_t9_a_replays_journal_log_and_misses(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "tapes" / "a.jsonl", request("/v1", json={"prompt": "a"}), *plain_answer("one"))
    journal = tmp_path / "out" / "journal.jsonl"
    journal.parent.mkdir()
    running = launch("replay", tmp_path / "tapes", "--journal", journal)
    body = json.dumps({"prompt": f"a {KEY}", "api_key": SHORT, "max_tokens": 1}).encode()
    missed = post(f"/v1/{KEY}?key={SHORT}&a={KEY}", body, BEARER, f"Cookie: a={SHORT}", f"X-Debug: {KEY}")
    answers = [ask(running.host, running.port, missed, answer_end).wire]
    answers.append(ask(running.host, running.port, post("/v1", body, BEARER), answer_end).wire)
    hit = post("/v1", b'{"prompt":"a"}', BEARER, f"X-Debug: {KEY}")
    assert ask(running.host, running.port, hit, answer_end).wire.endswith(b"one")
    assert all(answer.startswith(b"HTTP/1.1 404") for answer in answers)
    answers.append(ask(running.host, running.port, get("/_mockllm/journal", host="127.0.0.1"), answer_end).wire)
    assert b'"prompt"' in answers[-1]
    done = running.stop()
    assert journal.read_bytes().count(b"\n") == 3
    for canary in (RAW, SHORT.encode()):
        no_canary(*answers, done.stdout, done.stderr, tmp_path / "out", of=canary)


def test_t9_what_is_recorded_on_a_miss(tmp_path: Path, launch: Launch) -> None:
    echo = b"HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n" + RAW
    body = json.dumps({"prompt": KEY, "api_key": SHORT}).encode()
    (tmp_path / "tapes").mkdir()
    with RawServer([[Send(echo)]]) as server:
        options = ("--on-miss", "record", "--upstream", server.url)
        running = launch("replay", tmp_path / "tapes", *options)
        asked = post("/v1", body, BEARER)
        assert ask(running.host, running.port, asked, answer_end).wire == echo
        running.wait_for("complete")
        done = running.stop()
        assert server.requests[0].endswith(body), "the real server gets it all"
    assert load(tmp_path / "tapes")
    for canary in (RAW, SHORT.encode()):
        no_canary(tmp_path / "tapes", done.stdout, done.stderr, of=canary)


def test_t9_what_is_made_of_a_cassette_written_by_hand(tmp_path: Path) -> None:
    """Somebody wrote a key into a cassette: what is made of it has it no more."""
    asked = request(f"/v1?key={KEY}", headers=[["Authorization", f"Bearer {KEY}"]], json={"api_key": SHORT})
    source = write(tmp_path / "in.jsonl", f"# {KEY}", asked, *plain_answer(f"<{KEY}>"))
    (tmp_path / "out").mkdir()
    done = cli("apply", source, "--fault", "ttfb:add=5ms", "-o", tmp_path / "out" / "bent.jsonl")
    assert done.status == 0, done.stderr
    for canary in (RAW, SHORT.encode()):
        no_canary(tmp_path / "out", done.stdout, done.stderr, of=canary)


def traced(what: str, data: bytes) -> str:
    """One record of `curl --trace-time --trace`."""
    lines = [f"12:00:00.000001 {what}, {len(data)} bytes (0x{len(data):x})"]
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:04x}: {part.hex(' '):<47} {shown}")
    return "\n".join(lines) + "\n"


def test_t9_what_is_imported_from_curl(tmp_path: Path) -> None:
    asked = get(f"/v1?key={SHORT}&a={KEY}", BEARER, f"Cookie: a={SHORT}")
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: b=shrt-canary\r\nX: %b\r\nContent-Length: %d\r\n\r\n" % (RAW, len(RAW) + 2)
    text = traced("=> Send header", asked) + "".join(
        traced("<= Recv header", line + b"\n") for line in head.removesuffix(b"\n").split(b"\n")
    )
    text += traced("<= Recv data", b"<" + RAW[:5]) + traced("<= Recv data", RAW[5:] + b">")
    (tmp_path / "trace.txt").write_text(text)
    (tmp_path / "out").mkdir()
    done = cli("import", tmp_path / "trace.txt", "-o", tmp_path / "out" / "made.jsonl")
    assert done.status == 0, done.stderr
    (tape,) = load(tmp_path / "out")
    assert b"".join(segment.data for segment in tape.response.segments) == b"<" + STARS + b">"
    for canary in (RAW, SHORT.encode()):
        no_canary(tmp_path / "out", done.stdout, done.stderr, of=canary)


def test_a_key_in_a_fault_a_session_or_a_refusal_is_said_to_nobody(tmp_path: Path) -> None:
    key = "sk-CANARY2-7f3kzqXw8Lp2mN00"
    write(tmp_path / "a.jsonl", request("/json", json=1), *plain_answer("one"))
    kept: list[str] = []
    with replaying(tmp_path, journal=Journal(kept.append)) as replay:
        told = b""
        for headers in (
            [f"mockllm-fault: comment:text={key}"],
            [f"mockllm-session: {key}"],
            [f"mockllm-session: {key}/+"],
            [f"mockllm-fault: {key}"],
        ):
            asked = post("/json", b"1", f"Authorization: Bearer {key}", *headers)
            told += ask(replay.host, replay.port, asked, answer_end).wire
        replay.log.wait(4)
    everything = told.decode() + "".join([*kept, *replay.log.lines, *replay.said.lines])
    assert "had no effect" in everything
    assert key not in everything
