"""What the real curl writes of a raw server's answers, imported, replayed, and read again by the real curl.

The server's bytes are known, so the cassette and the replay can be held against them.
"""

import gzip
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mockllm import files
from mockllm.core.exchange import Exchange
from mockllm.core.http1 import scan
from mockllm.core.importers import Given
from mockllm.core.response import End, Then
from mockllm.importing import import_capture
from tests.peers.script import Fin, Hang, Rst, Script, Send, Wait
from tests.peers.server import RawServer
from tests.shell.serving import replaying

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(CURL is None, reason="no curl")

HEAD = b"HTTP/1.1 200 OK\r\nServer: raw\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OLD_HEAD = b"HTTP/1.0 200 OK\r\nContent-type: text/event-stream\r\n\r\n"
KA = b": keepalive 1/2\n\n"
HEL = 'data: {"choices":[{"delta":{"content":"Hél. \u2028"}}]}\n\n'.encode()
PLAIN = b'data: {"choices":[{"delta":{"content":"Hel."}}]}\n\n'
DONE = b"data: [DONE]\n\n"
GZIPPED = gzip.compress(KA + HEL + DONE, mtime=0)
JSON = b'{"choices":[{"message":{"content":"Hello"}}]}'
BODY = b'{"stream":true,"messages":[{"role":"user","content":"Say hello."}]}'
PATH = "/v1/chat/completions"
GAP = Wait(20)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked(*pieces: bytes) -> list[Any]:
    """A stream in chunks, each in a read of its own, then the last chunk."""
    steps: list[Any] = [Send(HEAD)]
    for piece in pieces:
        steps += [GAP, Send(chunk(piece))]
    return [*steps, GAP, Send(b"0\r\n\r\n")]


def with_length(body: bytes, kind: bytes = b"application/json", lines: bytes = b"") -> list[Any]:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n" % (kind, lines, len(body))
    return [Send(head + body)]


def until_close(*pieces: bytes) -> list[Any]:
    steps: list[Any] = [Send(OLD_HEAD)]
    for piece in pieces:
        steps += [GAP, Send(piece)]
    return [*steps, GAP, Fin()]


def sent_by(script: Script) -> bytes:
    return b"".join(step.data for step in script if isinstance(step, Send))


def curl(url: str, *options: str, count: int = 1) -> subprocess.CompletedProcess[bytes]:
    """Run curl on a URL, `count` times on one connection. Its exit status is the test's to look at."""
    assert CURL
    command = [CURL, "-q", "-sN", "--max-time", "20", *options, *[url + PATH] * count]
    return subprocess.run(command, capture_output=True, timeout=40, check=False)


@dataclass(frozen=True, slots=True)
class Done:
    """An import: the cassette's file, what is in it, what was said; and curl's own output."""

    path: Path
    exchanges: list[Exchange]
    notes: tuple[str, ...]
    printed: bytes

    @property
    def only(self) -> Exchange:
        [exchange] = self.exchanges
        return exchange


@dataclass(slots=True)
class Importer:
    folder: Path

    def __call__(self, answers: Sequence[Script], *options: str, trace: str | None = None, **given: Any) -> Done:
        """Let curl ask a server with these answers, and import what it prints, or (`trace`) the trace it writes."""
        with RawServer(answers) as server:
            file = self.folder / "capture"
            more = [f"--{trace}", str(file)] if trace else []
            done = curl(server.url, *options, *more, count=len(answers))
            if not trace:
                file.write_bytes(done.stdout)
            assert len(server.requests) >= 1
        imported, path = import_capture(str(file), self.folder / "bug.jsonl", Given(**given), bytes)
        return Done(path, files.read_all(path), imported.notes, done.stdout)

    def replayed(self, *options: str, speed: float = 1) -> subprocess.CompletedProcess[bytes]:
        """What curl gets from a replay of the import."""
        with replaying(self.folder / "bug.jsonl", speed=speed) as replay:
            return curl(replay.url, *options)


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return Importer(tmp_path)


POST = ("-H", "Content-Type: application/json", "-H", "Authorization: Bearer sk-secret", "-d", BODY.decode())
ANSWERS = {
    "chunked": chunked(KA, HEL, DONE),
    "odd-chunks": chunked(HEL[:30], HEL[30:] + PLAIN, DONE[:3], DONE[3:]),
    "length": with_length(JSON),
    "until-close": until_close(KA, HEL, DONE),
    "no-content": [Send(b"HTTP/1.1 204 No Content\r\n\r\n")],
    "error": [Send(b"HTTP/1.1 529 Overloaded\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}")],
    "gzip": with_length(GZIPPED, b"text/event-stream", b"Content-Encoding: gzip\r\n"),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    "options", [("-i",), ("-i", "--raw"), ("-i", "--http1.0"), ("-i", "--compressed")], ids=" ".join
)
def test_a_printed_answer_is_replayed_as_it_was_printed(
    importer: Importer, name: str, options: tuple[str, ...]
) -> None:
    done = importer([ANSWERS[name]], *options)
    replayed = importer.replayed(*options, *POST)  # any path, any body: but POST
    printed = done.printed
    if name == "gzip" and "--compressed" in options:  # curl had decoded it, and showed the head as it was
        printed = printed.replace(b"Content-Encoding: gzip\r\n", b"")
        lengths = [b"Content-Length: %d\r\n" % len(body) for body in (GZIPPED, KA + HEL + DONE)]
        printed = printed.replace(*lengths)
        assert lengths[1] in printed
    assert replayed.stdout == printed
    assert replayed.returncode == 0
    assert done.only.response.end is End.COMPLETE
    if "--raw" in options:
        assert done.only.response.wire == sent_by(ANSWERS[name])


def test_events_are_written_one_a_chunk_and_gaps_put_between(importer: Importer) -> None:
    done = importer([chunked(KA + HEL, DONE)], "-i", gap_us=20_000)
    response = done.only.response
    assert response.wire == HEAD + chunk(KA) + chunk(HEL) + chunk(DONE) + b"0\r\n\r\n"
    assert [at for at, _ in response.reads()] == [0, 20_000, 40_000, 60_000]


@pytest.mark.parametrize("framing", ["chunked", "length", "close", "http1.0"])
def test_a_bare_body_is_replayed_in_any_framing(importer: Importer, framing: Any) -> None:
    done = importer([ANSWERS["chunked"]], framing=framing)
    assert done.printed == KA + HEL + DONE
    replayed = importer.replayed("-i", *POST)
    head, _, body = replayed.stdout.partition(b"\r\n\r\n")
    assert body == KA + HEL + DONE
    assert head.startswith(b"HTTP/1.0" if framing == "http1.0" else b"HTTP/1.1")
    assert (b"Transfer-Encoding: chunked" in head) == (framing == "chunked")


def test_several_answers_are_several_exchanges(importer: Importer) -> None:
    done = importer([chunked(HEL, DONE), with_length(JSON), chunked(KA, PLAIN, DONE)], "-i")
    bodies = [HEL + DONE, JSON, KA + PLAIN + DONE]
    assert [scan(one.response).body for one in done.exchanges] == bodies
    with replaying(done.path) as replay:
        assert [curl(replay.url, *POST).stdout for _ in bodies] == bodies


def test_a_stream_that_was_cut_ends_so_again(importer: Importer) -> None:
    done = importer([[Send(HEAD), Send(chunk(HEL)), Fin()]], "-i")
    assert done.only.response.end is End.FIN
    replayed = importer.replayed("-i", *POST)
    assert replayed.stdout == done.printed
    assert replayed.returncode == 18  # CURLE_PARTIAL_FILE, as the first time


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    "options", [(), ("--http1.0",), ("--compressed",), ("--raw",)], ids=lambda options: " ".join(options)
)
def test_a_trace_holds_every_byte(importer: Importer, name: str, options: tuple[str, ...]) -> None:
    done = importer([ANSWERS[name]], *options, *POST, "--trace-time", trace="trace")
    exchange = done.only
    assert exchange.response.wire == sent_by(ANSWERS[name])
    assert exchange.response.end is End.COMPLETE
    assert (exchange.request.method, exchange.request.target, exchange.request.body) == ("POST", PATH.encode(), BODY)
    assert (b"Authorization", b"[redacted]") in exchange.request.headers
    assert b"sk-secret" not in done.path.read_bytes()
    replayed = importer.replayed(*options, *POST, speed=10)
    assert (replayed.stdout, replayed.returncode) == (done.printed, 0)


def test_a_trace_holds_the_reads_and_their_times(importer: Importer) -> None:
    slow = [Wait(80) if isinstance(step, Wait) else step for step in chunked(KA, HEL, DONE)]
    wanted = [HEAD, chunk(KA), chunk(HEL), chunk(DONE), b"0\r\n\r\n"]
    for _ in range(3):  # on a busy machine curl may find two of them in one read
        (importer.folder / "bug.jsonl").unlink(missing_ok=True)
        done = importer([slow], *POST, "--trace-time", trace="trace")
        reads = list(done.only.response.reads())
        if [data for _, data in reads] == wanted:
            break
    assert [data for _, data in reads] == wanted
    assert 200_000 < reads[-1][0] - reads[0][0] < 20_000_000
    assert (done.only.response.then, done.notes) == (Then.OPEN, ())


def test_a_trace_as_text_keeps_what_prints(importer: Importer) -> None:
    done = importer([chunked(KA, PLAIN, DONE)], *POST, "--trace-time", trace="trace-ascii")
    assert scan(done.only.response).body == KA + PLAIN + DONE
    assert done.only.response.wire == sent_by(chunked(KA, PLAIN, DONE))
    assert done.only.request.body == BODY
    assert importer.replayed(*POST, speed=10).stdout == KA + PLAIN + DONE


def test_a_trace_as_text_says_what_it_lost(importer: Importer) -> None:
    done = importer([chunked(HEL, DONE)], *POST, trace="trace-ascii")
    dotted = "".join(char if char.isascii() else "." * len(char.encode()) for char in HEL.decode()).encode()
    assert scan(done.only.response).body == dotted + DONE
    assert any("letters outside ASCII stay dots" in note for note in done.notes)
    assert any("no times" in note for note in done.notes)


@pytest.mark.parametrize(
    ("script", "end", "status"),
    [
        ([Send(HEAD), Send(chunk(HEL)), GAP, Fin()], End.FIN, 18),
        ([Send(HEAD), Send(chunk(HEL)), GAP, Rst()], End.RST, 56),
        ([Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), Fin()], End.FIN, 18),
        ([Fin()], End.FIN, 52),
        ([Rst()], End.RST, 56),
    ],
    ids=["fin", "rst", "short", "nothing", "rst-at-once"],
)
@pytest.mark.parametrize("trace", ["trace", "trace-ascii"])
def test_a_trace_tells_how_it_ended(importer: Importer, script: Any, end: End, status: int, trace: str) -> None:
    done = importer([script], "--trace-time", trace=trace)
    assert done.only.response.end is end
    if trace == "trace":
        assert done.only.response.wire == sent_by(script)
    assert importer.replayed("-i").returncode == status


def test_curls_patience(importer: Importer) -> None:
    done = importer([[Send(HEAD), Send(chunk(HEL)), Hang()]], "-m", "1.5", "--trace-time", trace="trace")
    assert done.only.response.end is End.HANG
    assert 1_000_000 < done.only.response.end_at < 10_000_000


def test_several_requests_on_one_connection_and_a_redirect(importer: Importer) -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: /v1/other\r\nContent-Length: 5\r\n\r\nmoved"
    with RawServer([[Send(moved)], with_length(JSON), chunked(PLAIN, DONE)]) as server:
        trace = importer.folder / "trace"
        curl(server.url, "-L", *POST, "--trace", str(trace), count=2)
        assert len(server.connections) == 1
    imported, path = import_capture(str(trace), importer.folder / "bug.jsonl", Given(), bytes)
    targets = [exchange.request.target for exchange in imported.exchanges]
    assert targets == [PATH.encode(), b"/v1/other", PATH.encode()]
    assert [exchange.request.body for exchange in imported.exchanges] == [BODY] * 3
    with replaying(path) as replay:
        assert curl(replay.url, "-L", *POST).stdout == JSON
        assert curl(replay.url, *POST).stdout == PLAIN + DONE


def test_expect_and_an_upload_in_chunks(importer: Importer) -> None:
    script = [Send(b"HTTP/1.1 100 Continue\r\n\r\n"), GAP, *with_length(JSON)]
    done = importer([script], *POST, "-H", "Expect: 100-continue", "--trace-time", trace="trace")
    assert (done.only.response.wire, done.only.request.body) == (sent_by(with_length(JSON)), BODY)
    assert any(note.startswith("100 Continue left out") for note in done.notes)
    done.path.unlink()
    uploaded = importer([with_length(JSON)], *POST, "-H", "Transfer-Encoding: chunked", trace="trace")
    assert uploaded.only.request.body == BODY
    done.path.unlink()
    printed = importer([script], "-i", *POST, "-H", "Expect: 100-continue")
    assert printed.only.response.wire == sent_by(with_length(JSON))


def test_the_trace_and_the_body_in_one_file(importer: Importer) -> None:
    assert CURL
    with RawServer([chunked(KA, HEL, DONE)]) as server:
        mixed = curl(server.url, *POST, "--trace", "-", "--trace-time").stdout
    imported, _ = import_capture("-", importer.folder / "bug.jsonl", Given(), lambda: mixed)
    assert imported.exchanges[0].response.wire == sent_by(chunked(KA, HEL, DONE))
    assert importer.replayed(*POST, speed=10).stdout == KA + HEL + DONE


def test_a_head_request(importer: Importer) -> None:
    script = [Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")]
    assert importer([script], "-I", trace="trace").only.response.end is End.COMPLETE
    (importer.folder / "bug.jsonl").unlink()
    assert importer([script], "-I", method="HEAD").only.response.end is End.COMPLETE
    assert importer.replayed("-I").stdout == sent_by(script)
