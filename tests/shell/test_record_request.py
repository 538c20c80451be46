"""What a recorder asks the real server: the client's own request, byte for byte but for what concerns one hop only."""

import threading
from pathlib import Path
from typing import Any

import pytest

from mockllm import taping
from mockllm.core.response import End, Then
from tests.peers.client import RawClient, ask, get, post
from tests.peers.common import Ended
from tests.peers.framing import answer_end, chunked_end, head_end
from tests.peers.script import Fin, ReadRest, Rst, Script, Send, Until, Wait
from tests.peers.server import RawServer
from tests.shell.serving import recording, replaying, wait_until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!"


def ok(_request: bytes) -> Script:
    return [Send(OK)]


def passed_on(request: bytes, folder: Path, **options: Any) -> bytes:
    """What the real server gets for a request that ends within it."""
    with RawServer(ok) as server, recording(server.url, folder, **options) as recorder:
        assert ask(recorder.host, recorder.port, request, answer_end).wire == OK
        (arrived,) = server.requests
        return arrived.replace(f"{server.host}:{server.port}".encode(), b"HOST")


def test_it_is_the_clients_own_request(tmp_path: Path) -> None:
    before = b"POST /v1//chat/../x%2F~?b=2&a=%7E&&key=k HTTP/1.1\r\n"
    kept = (
        b"X-B: 1\r\nx-b: 2\r\naccept: */*\r\nX-B: \r\nConnection: keep-alive, Upgrade\r\nACCEPT-encoding: gzip, br\r\n"
        b"Authorization: Bearer k\r\nCookie: a=b\r\nUser-Agent: \xc3\xa9 \xe9\r\nTE: trailers\r\nContent-Length: 2\r\n"
    )
    dropped = (
        b"Expect: 200-ok\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\nProxy-Connection: x\r\n"
        b"proxy-authorization: Basic x\r\nMockllm-Fault: cut\r\nmockllm-x: 1\r\n"
    )
    arrived = passed_on(before + b"hOST: mock\r\n" + dropped + kept + b"\r\n{}", tmp_path)
    assert arrived == before + b"hOST: HOST\r\n" + kept + b"\r\n{}"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS", "PROPFIND"])
def test_any_method_in_the_clients_own_version(method: str, version: str, tmp_path: Path) -> None:
    asked = get("/x", "A: 1", method=method, version=version, host="mock")
    with RawServer([[Send(b"HTTP/1.1 204 No Content\r\n\r\n")]]) as server:
        with recording(server.url, tmp_path) as recorder:
            assert ask(recorder.host, recorder.port, asked, 27).wire == b"HTTP/1.1 204 No Content\r\n\r\n"
            assert server.requests == [asked.replace(b"mock", server.url.removeprefix("http://").encode())]
            (tape,) = recorder.tapes()
    assert (tape.request.method, tape.request.headers) == (method, ((b"Host", b"mock"), (b"A", b"1")))


def test_without_host_none_is_added(tmp_path: Path) -> None:
    assert passed_on(b"GET / HTTP/1.0\r\n\r\n", tmp_path) == b"GET / HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (("A: 1", "Accept-Encoding: gzip", "B: 2"), ("A: 1", "Accept-Encoding: identity", "B: 2")),
        (("accept-encoding: br", "A: 1", "Accept-Encoding: gzip"), ("accept-encoding: identity", "A: 1")),
        (("A: 1",), ("A: 1", "Accept-Encoding: identity")),
    ],
)
def test_accept_encoding_on_demand(headers: tuple[str, ...], expected: tuple[str, ...], tmp_path: Path) -> None:
    arrived = passed_on(get("/", *headers), tmp_path, accept_encoding=b"identity")
    assert arrived == get("/", *expected, host="HOST")


@pytest.mark.parametrize(
    ("target", "arrived"),
    [
        ("/v1/x?y=/a//b", "/base/v1/x?y=/a//b"),
        ("/", "/base/"),
        ("//v1", "/base//v1"),
        ("http://mock:1/v1/x?y", "/base/v1/x?y"),
        ("http://mock", "/base/"),
        ("http://mock?y", "/base/?y"),
        ("/a/v1/x", "/other/v1/x"),
        ("/a", "/other/"),
        ("/a?y", "/other/?y"),
        ("http://mock/a/x", "/other/x"),
        ("/ab", "/base/ab"),
        ("/A/x", "/base/A/x"),
        ("/a/b/c", "/third/c"),
    ],
)
def test_mounts_and_the_upstreams_path(target: str, arrived: str, tmp_path: Path) -> None:
    with RawServer(ok) as server:
        mounts = [(b"/a", f"{server.url}/other"), (b"/a/b", f"{server.url}/third/")]
        with recording(f"{server.url}/base/", tmp_path, mounts=mounts) as recorder:
            assert ask(recorder.host, recorder.port, get(target), answer_end).wire == OK
            (tape,) = recorder.tapes()
        assert server.requests[0].split(b" ")[1].decode() == arrived
        assert tape.request.target == target.encode(), "the tape keeps the client's"
        assert tape.meta["upstream"] == f"{server.url}{arrived[: arrived.index('/', 1)]}"


def test_options_about_the_server_itself(tmp_path: Path) -> None:
    with RawServer(ok) as server, recording(f"{server.url}/base", tmp_path) as recorder:
        assert ask(recorder.host, recorder.port, get("*", method="OPTIONS"), answer_end).wire == OK
        assert server.requests[0].startswith(b"OPTIONS * HTTP/1.1\r\n")


def test_no_upstream_for_a_path(tmp_path: Path) -> None:
    with RawServer([]) as server, recording(server.url, tmp_path, mounts=[(b"/a", server.url)]) as recorder:
        recorder.recorder._mounts = [mount for mount in recorder.recorder._mounts if mount.prefix]
        answer = ask(recorder.host, recorder.port, get("/b"), answer_end)
        assert answer.wire.startswith(b"HTTP/1.1 404 ")
        assert b"only at /a" in answer.wire
        assert server.connections == []


@pytest.mark.parametrize(
    ("request_bytes", "said"),
    [
        (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", b"reverse proxy"),
        (get("/x", "Connection: Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Version: 13"), b"WebSocket"),
    ],
)
def test_what_is_no_request_for_a_recorder(request_bytes: bytes, said: bytes, tmp_path: Path) -> None:
    with RawServer([]) as server, recording(server.url, tmp_path) as recorder:
        answer = ask(recorder.host, recorder.port, request_bytes, answer_end)
        assert answer.wire.startswith(b"HTTP/1.1 501 ")
        assert said in answer.wire
        assert b'"type": "mockllm_unsupported"' in answer.wire
        assert server.connections == []
    assert list(tmp_path.iterdir()) == []


# --- uploads


@pytest.mark.parametrize("chunked", [False, True])
def test_an_upload_is_passed_on_as_it_comes(chunked: bool, tmp_path: Path) -> None:
    asked = post("/x", b"a" * 10_000, "Expect: 100-continue")
    first, rest = asked[: len(asked) - 5000], asked[-5000:]
    if chunked:
        first = get("/x", "Transfer-Encoding: chunked", method="POST") + b"1388;x=y\r\n" + b"a" * 5000 + b"\r\n"
        rest = b"1388\r\n" + b"a" * 5000 + b"\r\n0\r\nTrailer: 1\r\n\r\n"
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(first)
            wait_for_bytes(server, 5000)
            assert server.requests == []
            client.send(rest)
            answer = client.read(lambda data: data.endswith(b"ok"))
        (tape,) = recorder.tapes()
        (arrived,) = server.requests
    assert answer.wire == (OK if chunked else b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    head = arrived[: head_end(arrived)]
    assert (b"Transfer-Encoding: chunked" in head) is chunked
    assert unframed(arrived) == tape.request.body == b"a" * 10_000
    assert not tape.request.early
    assert tape.response.wire == OK


def wait_for_bytes(server: RawServer, count: int) -> None:
    """Until the real server has so many bytes of its first connection."""
    connection = server.connection()
    wait_until(lambda: len(connection.received) >= count)


def unframed(request: bytes) -> bytes:
    """The body of a request, out of its chunks."""
    start = head_end(request)
    assert start is not None
    if b"chunked" not in request[:start]:
        return request[start:]
    body, at = b"", start
    assert chunked_end(request, start) == len(request)
    while size := int(request[at : request.index(b"\r\n", at)].partition(b";")[0], 16):
        at = request.index(b"\r\n", at) + 2
        body, at = body + request[at : at + size], at + size + 2
    return body


def test_a_server_that_does_not_read_holds_the_client_back(tmp_path: Path) -> None:
    body, go = b"a" * 40_000_000, threading.Event()
    with RawServer([[Until(go), ReadRest(), Send(OK)]], early=True) as server:
        with recording(server.url, tmp_path) as recorder, RawClient(recorder.host, recorder.port) as client:
            sent = threading.Event()

            def send() -> None:
                client.send(post("/x", body))
                sent.set()

            sender = threading.Thread(target=send)
            sender.start()
            server.connection()
            assert not sent.wait(0.5), "40 MB are somewhere on the way"
            go.set()
            assert sent.wait(20)
            sender.join()
            assert client.read(answer_end).wire == OK
            (tape,) = recorder.tapes()
    assert tape.request.body == body
    assert not tape.request.early


def test_a_body_too_large_to_keep_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taping, "MAX_BODY", 1000)
    asked = post("/x", b"a" * 4000)
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            for count in (2000, 4000):
                client.send(asked[:-2000] if count == 2000 else asked[-2000:])
                wait_for_bytes(server, count)
            assert client.read(answer_end).wire == OK
        recorder.log.wait(1)
        assert unframed(server.requests[0]) == b"a" * 4000
    assert b'"body":"any"' in next(tmp_path.glob("*.jsonl")).read_bytes()


# --- answers that come before the request is whole


@pytest.mark.parametrize("ending", [Fin(), Rst()], ids=["fin", "rst"])
def test_a_refusal_before_the_body_was_sent(ending: Fin | Rst, tmp_path: Path) -> None:
    asked = post("/x", b"a" * 5000)
    seen = threading.Event()
    steps: Script = [Send(TOO_LARGE), Until(seen), ending]
    with RawServer([steps], early=True) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(asked[:-4000])
            answer = client.read(len(TOO_LARGE))
            assert answer.wire == TOO_LARGE
            seen.set()
            # a server that closes with unread bytes resets
            assert client.read().end in (Ended.RST, Ended.FIN)
        (tape,) = recorder.tapes()
    assert (tape.request.early, tape.request.cut) == (True, True)
    assert asked.startswith(asked[:-5000] + (tape.request.body or b"x"))
    assert tape.response.end is End.COMPLETE
    assert tape.response.then is not Then.OPEN
    with replaying(tmp_path) as replay:
        again = ask(replay.host, replay.port, asked)
    assert again.wire == TOO_LARGE


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_while_the_request_is_still_coming(chunked: bool, tmp_path: Path) -> None:
    """Both directions at once: a piece up, a piece down."""
    if chunked:
        asked = [get("/x", "Transfer-Encoding: chunked", method="POST"), b"3\r\none\r\n", b"3\r\ntwo\r\n0\r\n\r\n"]
    else:
        whole = post("/x", b"onetwo")
        asked = [whole[:-6], whole[-6:-3], whole[-3:]]
    head, last = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\nyes\r\n0\r\n\r\n"
    go = threading.Event()
    script: Script = [Send(head), Until(go), Send(b"1\r\n.\r\n"), ReadRest(), Send(last)]
    with RawServer([script], early=True) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(asked[0])
            assert client.read(len(head)).wire == head
            client.send(asked[1])
            go.set()
            assert client.read(6).wire == b"1\r\n.\r\n"
            client.send(asked[2])
            assert client.read(len(last)).wire == last
            (tape,) = recorder.tapes()
        assert unframed(server.requests[0]) == b"onetwo"
    assert (tape.request.early, tape.request.cut, tape.request.body) == (True, False, b"onetwo")
    assert (tape.response.wire, tape.response.end) == (head + b"1\r\n.\r\n" + last, End.COMPLETE)
    with replaying(tmp_path) as replay:
        again = ask(replay.host, replay.port, b"".join(asked), len(tape.response.wire))
    assert again.wire == tape.response.wire


def test_an_early_answer_is_complete_when_the_request_is(tmp_path: Path) -> None:
    """The next request on the connection comes after the whole body of the first."""
    asked, second = post("/x", b"a" * 100), get("/y")
    with RawServer(ok, early=True) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(asked[:-60])
            assert client.read(len(OK)).wire == OK
            # longer than the recorder watches what the server does then
            assert client.read(for_ms=80).end is Ended.TIMEOUT
            client.send(asked[-60:] + second)
            assert client.read(len(OK)).wire == OK
        early, other = recorder.tapes(2)
    assert (early.request.body, early.request.early, early.request.cut) == (b"a" * 100, True, False)
    assert (early.response.wire, early.response.then) == (OK, Then.OPEN)
    assert (other.request.target, other.request.early) == (b"/y", False)


def test_a_server_that_dies_during_the_upload(tmp_path: Path) -> None:
    asked = post("/x", b"a" * 5000)
    with RawServer([[Wait(10), Rst()]], early=True) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(asked[:-4000])
            answer = client.read()
        (tape,) = recorder.tapes()
    assert (answer.wire, answer.end) == (b"", Ended.RST)
    assert (tape.response.end, tape.request.early, tape.request.cut) == (End.RST, True, True)
    assert recorder.recorder.ends == {End.RST: 1}


def test_a_client_that_leaves_during_its_upload(tmp_path: Path) -> None:
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        with RawClient(recorder.host, recorder.port) as client:
            client.send(post("/x", b"a" * 5000)[:-4000])
            wait_for_bytes(server, 1000)
        (tape,) = recorder.tapes()
        assert server.connection(closed=True).requests == []
    assert (tape.response.end, tape.request.early, tape.request.cut) == (End.CLIENT, True, True)
    assert tape.request.body == b"a" * 1000
