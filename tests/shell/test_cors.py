"""What browsers ask before and beside a request: preflights, and the headers that let a page read an answer."""

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mockllm.core.exchange import Request
from mockllm.core.faults.head import head_lines
from mockllm.core.faults.view import view
from mockllm.core.response import End, Response, Segment
from mockllm.cors import is_preflight, preflight_headers, readable
from tests.peers.client import ask, get, post
from tests.peers.framing import answer_end
from tests.peers.script import Send
from tests.peers.server import RawServer
from tests.shell.serving import Replaying, replaying
from tests.shell.tapes import plain, plain_wire, request, write

ASKS = ((b"Origin", b"http://page.example"), (b"Access-Control-Request-Method", b"POST"))
ORIGIN = "Origin: http://page.example"


def preflight(path: str = "/x", *more: str) -> bytes:
    return get(path, ORIGIN, "Access-Control-Request-Method: POST", *more, method="OPTIONS")


def wire_of(replay: Replaying, asked: bytes) -> bytes:
    return ask(replay.host, replay.port, asked, answer_end).wire


def headers_of(wire: bytes) -> dict[str, str]:
    lines = wire.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


# --- what is a preflight, and what is said to it


@pytest.mark.parametrize(
    ("method", "headers", "is_one"),
    [
        ("OPTIONS", ASKS, True),
        ("OPTIONS", tuple((name.lower(), value) for name, value in ASKS), True),
        ("POST", ASKS, False),
        ("OPTIONS", ASKS[:1], False),
        ("OPTIONS", ASKS[1:], False),
    ],
)
def test_what_is_a_preflight(method: str, headers: tuple[tuple[bytes, bytes], ...], is_one: bool) -> None:
    assert is_preflight(Request(method, b"/", headers)) is is_one


def test_a_preflight_gets_all_that_it_asks_for() -> None:
    more = (
        (b"access-control-request-headers", b"authorization,x-y"),
        (b"access-control-request-private-network", b"1"),
    )
    assert dict(preflight_headers(Request("OPTIONS", b"/", ASKS + more))) == {
        b"Access-Control-Allow-Origin": b"http://page.example",
        b"Access-Control-Allow-Methods": b"POST",
        b"Access-Control-Allow-Headers": b"authorization,x-y",
        b"Access-Control-Allow-Private-Network": b"true",
        b"Access-Control-Max-Age": b"600",
        b"Vary": b"Origin",
    }
    assert b"Access-Control-Allow-Headers" not in dict(preflight_headers(Request("OPTIONS", b"/", ASKS)))


# --- headers for recordings without


def response(head_bytes: bytes) -> Response:
    return Response((Segment(0, before=head_bytes), Segment(5, b"body")), End.COMPLETE, 5)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_headers_are_added_where_there_are_none(end: bytes) -> None:
    seen = readable(response(end.join([b"HTTP/1.1 200 OK", b"content-length: 4", b"", b""])))
    assert head_lines(view(seen).parts) == [
        b"HTTP/1.1 200 OK" + end,
        b"content-length: 4" + end,
        b"Access-Control-Allow-Origin: *" + end,
        b"Access-Control-Expose-Headers: *" + end,
        end,
    ]
    assert seen.wire.endswith(b"body")


@pytest.mark.parametrize("value", [b"*", b"http://page.example"])
@pytest.mark.parametrize("name", [b"Access-Control-Allow-Origin", b"access-control-allow-origin"])
def test_what_the_recording_says_is_kept(name: bytes, value: bytes) -> None:
    recorded = response(b"HTTP/1.1 200 OK\r\n%s: %s\r\nContent-Length: 4\r\n\r\n" % (name, value))
    assert readable(recorded) is recorded


def test_an_empty_one_says_nothing() -> None:
    seen = readable(response(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin:\r\nContent-Length: 4\r\n\r\n"))
    assert b"\r\nAccess-Control-Allow-Origin: *\r\nContent-Length" in seen.wire


# --- on sockets


def test_without_cors_a_preflight_is_no_miss_and_nothing_is_added(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    with replaying(tmp_path) as replay:
        refused = wire_of(replay, preflight())
        assert wire_of(replay, post("/x", b"1", ORIGIN)) == plain_wire("one")
        first, second = replay.entries(2)
    assert refused.startswith(b"HTTP/1.1 404 ")
    assert b"no recording answers this preflight; --cors does" in refused
    assert b"access-control" not in refused.lower()
    assert replay.app.misses == 0
    assert [first["match"], first["miss"], first["status"]] == ["preflight", False, 404]
    assert second["match"] == "exact"


def test_with_cors_a_preflight_is_answered_and_answers_can_be_read(tmp_path: Path) -> None:
    own = {"Access_Control_Allow_Origin": "http://own.example"}
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"), request("/own", "GET"), *plain("own", **own))
    with replaying(tmp_path, cors=True) as replay:
        answered = headers_of(wire_of(replay, preflight("/~session=t/nothing", "Access-Control-Request-Headers: x-y")))
        one = headers_of(wire_of(replay, post("/x", b"1", ORIGIN)))
        other = headers_of(wire_of(replay, get("/own", ORIGIN)))
        miss = headers_of(wire_of(replay, get("/nothing", ORIGIN)))
        bad = headers_of(wire_of(replay, get("/x", ORIGIN, "mockllm-fault: nonsense")))
        entry = replay.entries(query="&session=t")[0]
    assert answered["access-control-allow-origin"] == "http://page.example"
    assert answered["access-control-allow-headers"] == "x-y"
    assert [entry["match"], entry["miss"], entry["status"]] == ["preflight", False, 204]
    assert [one[f"access-control-{name}"] for name in ("allow-origin", "expose-headers")] == ["*", "*"]
    assert other["access-control-allow-origin"] == "http://own.example"
    assert "access-control-expose-headers" not in other
    assert miss["access-control-allow-origin"] == bad["access-control-allow-origin"] == "*"
    assert replay.app.misses == 1


def test_a_recorded_preflight_is_played(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/x", "OPTIONS"), *plain("recorded", Access_Control_Allow_Origin="*"))
    for cors in (False, True):
        with replaying(tmp_path, cors=cors) as replay:
            assert wire_of(replay, preflight()).endswith(b"recorded")


@pytest.mark.parametrize("cors", [False, True])
def test_an_exhausted_preflight_is_none_either(cors: bool, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/x", "OPTIONS"), *plain("recorded"))
    with replaying(tmp_path, cors=cors, repeat=False) as replay:
        wires = [wire_of(replay, preflight()) for _ in range(2)]
        assert wires[0].endswith(b"recorded")
        assert wires[1].startswith(b"HTTP/1.1 204 " if cors else b"HTTP/1.1 404 ")
        assert (replay.app.misses, replay.app.exhausted) == (0, 0)


def test_the_real_server_is_asked_what_it_says_to_a_preflight_unless_cors_answers(tmp_path: Path) -> None:
    with RawServer(lambda _: [Send(plain_wire("real"))]) as server:
        with replaying(tmp_path, upstream=server.url) as replay:
            assert wire_of(replay, preflight()) == plain_wire("real")
            assert replay.entries()[0]["match"] == "forwarded"
        with replaying(tmp_path, upstream=server.url, cors=True) as replay:
            assert wire_of(replay, preflight()).startswith(b"HTTP/1.1 204 ")
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", ["refuse", "reset", "cut:at=0us"])
def test_an_answer_without_a_head_is_played_all_the_same(fault: str, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    with replaying(tmp_path, cors=True, closest=True, faults=fault) as replay:
        assert ask(replay.host, replay.port, post("/x", b"2", ORIGIN)).wire == b""
        assert replay.entries()[0]["faults"][0]["effect"] is True


def test_what_is_no_preflight_may_be_a_miss(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    with replaying(tmp_path, cors=True) as replay:
        for headers in ([], [ORIGIN], ["Access-Control-Request-Method: POST"]):
            assert wire_of(replay, get("/x", *headers, method="OPTIONS")).startswith(b"HTTP/1.1 404 ")
        assert replay.app.misses == 3


# --- a real browser

PAGE = """<!doctype html><title>waiting</title><script>
const ask = async () => {
  const headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
  const answer = await fetch("URL/v1/chat", {method: "POST", body: "1", headers})
  return answer.headers.get("mockllm-x") + " " + await answer.text()
}
ask().then(text => document.title = "read: " + text, error => document.title = "refused: " + error)
  .then(() => fetch("/done", {method: "POST", body: document.title}))
</script>"""
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextlib.contextmanager
def page_of(mock_url: str, told: list[str], done: threading.Event) -> Iterator[str]:
    """A page on another origin, which tells what its script could read."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(PAGE.replace("URL", mock_url).encode())

        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer(b"")
            done.set()

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.skipif(browser() is None, reason="no chromium: apt-get install chromium-headless-shell")
@pytest.mark.parametrize("cors", [True, False])
def test_a_browser_reads_it_with_cors_and_does_not_without(cors: bool, tmp_path: Path) -> None:
    write(tmp_path / "tapes" / "a.jsonl", request("/v1/chat", json=1), *plain("one", mockllm_x="shown"))
    told: list[str] = []
    done = threading.Event()
    with replaying(tmp_path / "tapes", cors=cors) as replay, page_of(replay.url, told, done) as url:
        command = [str(browser()), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/b", url]
        with subprocess.Popen(
            [*command[:-1], "--remote-debugging-port=0", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            came = done.wait(40)
            process.terminate()
            process.wait(10)
        assert came, "the page's script never ended"
        matches = [entry["match"] for entry in replay.control("GET", "journal").document]
    assert told == ["read: shown one"] if cors else told[0].startswith("refused: ")
    assert matches == (["preflight", "exact"] if cors else ["preflight"])
