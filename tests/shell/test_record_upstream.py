"""The way to the real server: what a client is told where there is none, https, and proxies as httpx uses them."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from mockllm.core.response import End
from tests.peers.client import RawClient, ask, get, post
from tests.peers.forwarder import Forwarder
from tests.peers.framing import answer_end
from tests.peers.script import Fin, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import recording, without_proxies

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

NO_TLS: Script = [Send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Fin()]


def ok(_request: bytes) -> Script:
    return [Send(OK)]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    found = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(found)
    return found


@contextmanager
def trusting(authority: trustme.CA, **environment: str) -> Iterator[None]:
    with authority.cert_pem.tempfile() as path, without_proxies(SSL_CERT_FILE=path, **environment):
        yield


@contextmanager
def closed_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_every_reason_is_told_and_nothing_is_on_tape(tmp_path: Path) -> None:
    with closed_port() as closed, silent_port() as silent, RawServer([], greeting=NO_TLS) as plain:
        ways = {
            "dns": "http://nothing.invalid",
            "refused": f"http://127.0.0.1:{closed}",
            "timeout": f"https://127.0.0.1:{silent}",
            "tls": plain.url.replace("http", "https"),
        }
        mounts = [(f"/{reason}".encode(), url) for reason, url in ways.items()]
        with recording(plain.url, tmp_path, mounts=mounts, connect_timeout_s=0.5) as recorder:
            for count, reason in enumerate(ways, 1):
                asked = post(f"/{reason}/v1?key=secret", b"a" * 200_000)
                answer = ask(recorder.host, recorder.port, asked, answer_end)
                head, _, body = answer.wire.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 502 ")
                assert b"mockllm-error: upstream" in head
                assert b"x-should-retry: false" in head
                error = json.loads(body)["error"]
                assert (error["type"], error["code"]) == ("mockllm_upstream", reason)
                assert ("nothing.invalid" if reason == "dns" else "127.0.0.1") in error["message"]
                line = recorder.log.wait(count)[-1]
                assert f"POST /{reason}/v1?key=[redacted] 502, nothing on tape: " in line
                assert error["message"] in line
            assert list(tmp_path.iterdir()) == []
            assert recorder.recorder.ends == {}
            assert not recorder.recorder.failed


def test_a_connection_goes_on_after_a_502(tmp_path: Path) -> None:
    with closed_port() as closed, RawServer(ok) as server:
        with recording(server.url, tmp_path, mounts=[(b"/no", f"http://127.0.0.1:{closed}")]) as recorder:
            with RawClient(recorder.host, recorder.port) as client:
                for path, status in (("/no/x", b"502"), ("/x", b"200"), ("/no/x", b"502"), ("/y", b"200")):
                    client.send(get(path))
                    assert client.read(answer_end).wire.startswith(b"HTTP/1.1 " + status)
                assert len(recorder.tapes(4)) == 2


def test_a_server_behind_https(authority: trustme.CA, tmp_path: Path) -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"a" * 300_000
    with RawServer([[Send(large)], [Send(OK), Fin()]]) as server:
        with Forwarder(server.port, tls=context(authority, "localhost")) as tls, trusting(authority):
            with recording(f"https://localhost:{tls.port}/v1", tmp_path) as recorder:
                with RawClient(recorder.host, recorder.port) as client:
                    client.send(post("/x", b"{}"))
                    assert client.read(answer_end).wire == large
                    client.send(get("/y"))
                    assert client.read().wire == OK
                one, two = recorder.tapes(2)
        assert server.requests[0] == post("/v1/x", b"{}", host=f"localhost:{tls.port}")
    assert (one.response.wire, one.response.end) == (large, End.COMPLETE)
    assert (two.response.wire, two.response.end) == (OK, End.COMPLETE)
    assert one.meta["upstream"] == f"https://localhost:{tls.port}/v1"


def test_a_certificate_of_an_unknown_authority(authority: trustme.CA, tmp_path: Path) -> None:
    with RawServer([]) as server, Forwarder(server.port, tls=context(authority, "localhost")) as tls:
        with recording(f"https://localhost:{tls.port}", tmp_path) as recorder:
            answer = ask(recorder.host, recorder.port, get("/"), answer_end)
        assert answer.wire.startswith(b"HTTP/1.1 502 ")
        assert b"SSL_CERT_FILE" in answer.wire
        assert server.connections == []


def test_through_a_proxy_for_http(tmp_path: Path) -> None:
    with RawServer(ok) as proxy, without_proxies(), recording("http://nothing.invalid:81/v1", tmp_path) as recorder:
        with without_proxies(HTTP_PROXY=f"http://me:hunter2@127.0.0.1:{proxy.port}"):
            for count, (method, target) in enumerate([("GET", "/x?y"), ("OPTIONS", "*")], 1):
                assert ask(recorder.host, recorder.port, get(target, method=method), answer_end).wire == OK
                recorder.log.wait(count)
    one, two = proxy.requests
    assert one == (
        b"GET http://nothing.invalid:81/v1/x?y HTTP/1.1\r\nHost: nothing.invalid:81\r\n"
        b"Proxy-Authorization: Basic bWU6aHVudGVyMg==\r\n\r\n"
    )
    assert two.startswith(b"OPTIONS http://nothing.invalid:81 HTTP/1.1\r\n"), "RFC 9112 §3.2.4"
    for path in tmp_path.iterdir():
        assert not any(secret in path.read_bytes() for secret in (b"hunter2", b"bWU6aHVudGVyMg"))


def test_through_a_proxy_for_https(authority: trustme.CA, tmp_path: Path) -> None:
    with RawServer(ok) as server:
        with Forwarder(server.port, tls=context(authority, "nothing.invalid"), proxy=True) as proxy:
            with trusting(authority), recording("https://nothing.invalid", tmp_path) as recorder:
                with trusting(authority, HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}"):
                    assert ask(recorder.host, recorder.port, get("/x"), answer_end).wire == OK
                (tape,) = recorder.tapes()
        assert proxy.connects[0].startswith(b"CONNECT nothing.invalid:443 HTTP/1.1\r\n")
        assert server.requests == [get("/x", host="nothing.invalid")]
    assert tape.response.wire == OK


def test_a_proxy_that_refuses(tmp_path: Path) -> None:
    with Forwarder(1, proxy=True, refusal=b"HTTP/1.1 407 No\r\n\r\n") as proxy:
        with recording("https://nothing.invalid", tmp_path) as recorder:
            with without_proxies(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}"):
                answer = ask(recorder.host, recorder.port, get("/x"), answer_end)
    assert answer.wire.startswith(b"HTTP/1.1 502 ")
    assert b'"code": "proxy"' in answer.wire
    assert list(tmp_path.iterdir()) == []


def test_no_proxy_for_this_host(tmp_path: Path) -> None:
    with RawServer(ok) as server, recording(server.url, tmp_path) as recorder:
        with without_proxies(HTTP_PROXY="http://127.0.0.1:1", NO_PROXY="127.0.0.1"):
            assert ask(recorder.host, recorder.port, get("/x"), answer_end).wire == OK
