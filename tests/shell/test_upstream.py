"""upstream.py against raw peers: what arrives, when it ends and how, and what is said when there is no way through."""

import asyncio
import base64
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import uvloop
from httpx._utils import URLPattern, get_environment_proxies
from hypothesis import given, settings
from hypothesis import strategies as st

from mockllm import upstream as module
from mockllm.core.errors import UpstreamError, UsageError
from mockllm.core.response import End
from mockllm.target import Proxy, Target, parse_target, proxy_for
from mockllm.upstream import Upstream, connect

HOST = "127.0.0.1"
GUARD_S = 40  # only a hang takes this long
HANG_S = 0.5  # how long the tests of time-outs wait

pytestmark = pytest.mark.filterwarnings("error")  # a socket that nobody closed is a failure

Script = Callable[[socket.socket], None]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        async def guarded() -> Any:
            async with asyncio.timeout(GUARD_S):
                return await main

        with asyncio.Runner(loop_factory=request.param) as loop:
            return loop.run(guarded())

    return runner


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme.upper()}_PROXY", raising=False)


@contextmanager
def listening(host: str = HOST, backlog: int = 5) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=backlog) as listener:
        yield listener


@contextmanager
def serving(script: Script, host: str = HOST, connections: int = 1) -> Iterator[int]:
    """A server in a thread that runs the script for each connection; what the script raises fails the test."""
    failures: list[BaseException] = []

    def work(listener: socket.socket) -> None:
        try:
            for _ in range(connections):
                connection, _ = listener.accept()
                connection.settimeout(GUARD_S)
                connection.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
                )  # else a reset takes back the last bytes
                with connection:
                    script(connection)
        except BaseException as error:
            failures.append(error)

    with listening(host) as listener:
        listener.settimeout(GUARD_S)
        thread = threading.Thread(target=work, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(GUARD_S)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        piece = connection.recv(65536)
        if not piece:
            raise AssertionError(f"closed after {data!r}")
        data += piece
    return data


def read_to_end(connection: socket.socket) -> bytes:
    data = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


def clock_us() -> int:
    return time.perf_counter_ns() // 1000


class Owner:
    """What a recorder does with an Upstream: keeps the reads and the ending."""

    def __init__(self, upstream: Upstream) -> None:
        self.reads: list[tuple[int, bytes]] = []
        self.ends: list[tuple[int, End]] = []
        self.ended = asyncio.Event()
        self.came = asyncio.Event()
        self.upstream = upstream
        upstream.on_read = self._read
        upstream.on_end = self._end

    def _read(self, at_us: int, data: bytes) -> None:
        self.reads.append((at_us, data))
        self.came.set()

    def _end(self, at_us: int, how: End) -> None:
        assert self.upstream.closed
        self.ends.append((at_us, how))
        self.ended.set()

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    async def until(self, size: int) -> None:
        while sum(len(data) for _, data in self.reads) < size:
            self.came.clear()
            await self.came.wait()

    async def how(self) -> End:
        await self.ended.wait()
        await asyncio.sleep(0)  # a second ending would come now
        assert len(self.ends) == 1
        times = [at for at, _ in self.reads] + [self.ends[0][0]]
        assert times == sorted(times)
        return self.ends[0][1]


async def attach(port: int, scheme: str = "http", host: str = HOST) -> Owner:
    target = Target(scheme, host, port)
    return Owner(await connect(target, connect_timeout_s=GUARD_S, clock=clock_us))


async def failure(target: Target, connect_timeout_s: float | None = GUARD_S) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await connect(target, connect_timeout_s=connect_timeout_s, clock=clock_us)
    assert "\n" not in str(caught.value)
    assert f"{target.host}:{target.port}" in str(caught.value)
    return caught.value


# --- targets


@pytest.mark.parametrize(
    ("url", "target", "shown", "authority"),
    [
        ("http://mac:8080", Target("http", "mac", 8080), "http://mac:8080", b"mac:8080"),
        ("http://mac", Target("http", "mac", 80), "http://mac", b"mac"),
        ("http://mac:/", Target("http", "mac", 80), "http://mac", b"mac"),
        ("http://mac:443", Target("http", "mac", 443), "http://mac:443", b"mac:443"),
        ("HTTPS://API.Example.com:443/v1/", Target("https", "api.example.com", 443, b"/v1"), None, b"api.example.com"),
        ("http://[::1]:8080/a//b/", Target("http", "::1", 8080, b"/a//b"), None, b"[::1]:8080"),
        ("https://[0:0:0:0:0:0:0:1]", Target("https", "::1", 443), "https://[::1]", b"[::1]"),
        ("http://my_server:1/%7Ea/b c/é", Target("http", "my_server", 1, b"/%7Ea/b%20c/%C3%A9"), None, b"my_server:1"),
        ("http://bücher.example", Target("http", "xn--bcher-kva.example", 80), None, b"xn--bcher-kva.example"),
    ],
)
def test_a_url_becomes_a_target(url: str, target: Target, shown: str | None, authority: bytes) -> None:
    assert parse_target(url) == target
    assert target.authority == authority
    assert shown is None or str(target) == shown
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("localhost:8080", "no scheme"),
        ("127.0.0.1:8080/v1", "no scheme"),
        ("", "no scheme"),
        ("ftp://host", "neither http:// nor https://"),
        ("http://", "no host"),
        ("http://:8080", "no host"),
        ("http://host:port", "port"),
        ("http://host:0", "port"),
        ("http://host:65536", "port"),
        ("http://host/v1?", "query or fragment"),
        ("http://host/v1?key=hunter2", "query or fragment"),
        ("http://host/#hunter2", "query or fragment"),
        ("http://me:hunter2@host", "let the client send Authorization"),
        ("http://hunter2@host:port", "let the client send Authorization"),
        ("http://me:hunter2/x@host", "port"),
        ("http://me:hunter2@:8080", "let the client send Authorization"),
        ("me:hunter2@host", "no scheme"),
        ("http://[::1", "upstream"),
        ("http://[fe80::1%25eth0]", "looked up"),
        ("http://[1:2]", "upstream"),
        ("http://a b", "looked up"),
        ("http://a..b", "looked up"),
        ("http://" + "a" * 64, "looked up"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason(url: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url)
    message = str(caught.value)
    assert what in message
    assert "http://127.0.0.1:8080" in message
    assert "hunter2" not in message
    assert "\n" not in message


@settings(deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="htps:/@[]#?%.:0a1é\n ", max_size=30).map("http://".__add__))
def test_any_text_is_a_target_or_a_usage_error(url: str) -> None:
    try:
        target = parse_target(url)
    except UsageError:
        return
    assert parse_target(str(target)) == target
    assert not target.path.endswith(b"/")
    assert target.path[:1] in (b"", b"/")
    assert 0 < target.port < 65536


# --- which proxy


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def httpx_proxy(url: str) -> str | None:
    """What httpx would go through, found the way its client does."""
    patterns = sorted((URLPattern(key), value) for key, value in get_environment_proxies().items())
    return next((value for pattern, value in patterns if pattern.matches(httpx.URL(url))), None)


HOSTS = ["example.com", "www.example.com", "a.www.example.com", "notexample.com", "localhost", "x.localhost", HOST]
HOSTS += ["127.0.0.2", "[::1]", "[2001:db8::1]", "192.168.0.0", "192.168.0.1", "my_server", "com"]
ENTRIES = [
    *HOSTS[:7],
    "127.0.0.2",
    "::1",
    "2001:db8::1",
    "192.168.0.0/16",
    "192.168.0.1",
    "my_server",
    "com",
    "LOCALHOST",
]
PORTS = ["", ":80", ":443", ":8080", ":99999"]


@st.composite
def no_proxy_entries(draw: st.DrawFn) -> str:
    host = draw(st.sampled_from(ENTRIES))
    if "::" in host:
        return host
    before = draw(st.sampled_from(["", "", "", ".", "*.", "http://", "https://", "all://", "http://*.", "https://*"]))
    return draw(st.sampled_from(["", " "])) + before + host + ("" if "/" in host else draw(st.sampled_from(PORTS)))


@settings(deadline=None)
@given(
    st.lists(st.one_of(no_proxy_entries(), no_proxy_entries(), st.sampled_from(["", " "])), max_size=3),
    st.sampled_from(["http", "https"]),
    st.sampled_from(HOSTS),
    st.sampled_from(PORTS[:-1]),
    st.fixed_dictionaries(
        {},
        optional={
            "HTTP_PROXY": st.sampled_from(["http://a:1", "a:1"]),
            "https_proxy": st.sampled_from(["http://b:2", "https://b:2", ""]),
            "ALL_PROXY": st.just("http://c:3"),
        },
    ),
)
def test_the_proxy_is_the_one_that_httpx_takes(
    entries: list[str], scheme: str, host: str, port: str, variables: dict[str, str]
) -> None:
    url = f"{scheme}://{host}{port}"
    with environment({**variables, "NO_PROXY": ",".join(entries)}):
        found, expected = proxy_for(parse_target(url)), httpx_proxy(url)
    assert (str(found) if found else None) == expected


@pytest.mark.parametrize(
    ("no_proxy", "target", "direct"),
    [
        ("example.com", "http://example.com", True),
        ("example.com", "http://www.example.com:8080", True),
        ("example.com", "http://notexample.com", False),
        (".example.com", "http://www.example.com", True),
        (".example.com", "http://example.com", False),
        ("example.com:8080", "http://example.com:8080", True),
        ("example.com:8080", "http://example.com", False),
        ("example.com:80", "http://example.com", False),
        ("http://example.com:80", "http://example.com", True),
        ("https://example.com", "http://example.com", False),
        ("127.0.0.0/8", "http://127.0.0.1", False),
        ("127.0.0.1", "http://127.0.0.1:8080", True),
        ("localhost", "http://x.localhost", False),
        ("::1", "http://[::1]:8080", True),
    ],
)
def test_what_an_entry_of_no_proxy_means(no_proxy: str, target: str, direct: bool) -> None:
    with environment({"ALL_PROXY": "http://p:1", "NO_PROXY": no_proxy}):
        assert (proxy_for(parse_target(target)) is None) is direct
        assert (httpx_proxy(target) is None) is direct


@pytest.mark.parametrize(
    ("no_proxy", "target", "direct"),
    [
        ("*", "http://example.com", True),
        ("other,*", "https://example.com:8443", True),
        ("[::1]:8080", "http://[::1]:8080", True),
        ("[::1]:8080", "http://[::1]:8081", False),
        ("0:0:0:0:0:0:0:1", "http://[::1]", True),
        ("HTTPS://example.com:443", "https://example.com", True),
        ("::1/128", "http://[::1]", True),
        ("a:port,example.com", "http://example.com", True),
        ("http://", "http://example.com", False),
        (":80", "http://example.com", False),
    ],
)
def test_entries_that_httpx_does_not_take(no_proxy: str, target: str, direct: bool) -> None:
    with environment({"ALL_PROXY": "http://p:1", "NO_PROXY": no_proxy}):
        assert (proxy_for(parse_target(target)) is None) is direct


def test_a_proxy_keeps_its_secret() -> None:
    with environment({"HTTP_PROXY": "http://us%40er:hunt%3Aer2@p"}):
        proxy = proxy_for(Target("http", "host", 80))
    assert proxy is not None
    assert proxy == Proxy(
        "http", "p", 80, b"Proxy-Authorization: Basic " + base64.b64encode(b"us@er:hunt:er2") + b"\r\n"
    )
    assert "Basic" not in repr(proxy)
    assert str(proxy) == "http://p:80"
    with environment({"HTTP_PROXY": "http://name@p"}):
        proxy = proxy_for(Target("http", "host", 80))
    assert proxy is not None
    assert base64.b64decode(proxy.authorization.split()[-1]) == b"name:"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("socks5://me:hunter2@p:1080", "SOCKS"),
        ("socks5h://p", "SOCKS"),
        ("ftp://p", "neither an http:// nor an https:// proxy"),
        ("http://me:hunter2/x@p", "port"),
        ("http://me:hunter2@", "no host"),
        ("http://[::1", "proxy's URL"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused(value: str, what: str, run: Run) -> None:
    with environment({"ALL_PROXY": value}):
        with pytest.raises(UsageError, match=what) as caught:
            proxy_for(Target("http", "host", 80))
        assert "ALL_PROXY" in str(caught.value)
        assert "NO_PROXY" in str(caught.value)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(UpstreamError, match=what) as failed:
            run(connect(Target("http", "host", 80), connect_timeout_s=1, clock=clock_us))
    assert failed.value.reason == "proxy"


# --- reads and endings, plain


def test_bytes_both_ways_with_times_and_a_fin(run: Run) -> None:
    go = threading.Event()

    def server(connection: socket.socket) -> None:
        assert read_until(connection, b"bye") == b"hello bye"
        connection.sendall(b"one")
        assert go.wait(GUARD_S)
        connection.sendall(b"two")

    async def main(port: int) -> None:
        before = clock_us()
        owner = await attach(port)
        assert not owner.upstream.absolute_form
        assert owner.upstream.proxy_headers == b""
        assert not owner.upstream.closed
        assert not owner.upstream._transport.is_reading()  # so that what comes early stays small
        owner.upstream.write(b"hello ")
        owner.upstream.write(b"bye")
        await owner.upstream.drain()
        await owner.until(3)
        middle = clock_us()
        go.set()
        assert await owner.how() is End.FIN
        assert [data for _, data in owner.reads] == [b"one", b"two"]
        assert before <= owner.reads[0][0] <= middle <= owner.reads[1][0] <= owner.ends[0][0] <= clock_us()
        owner.upstream.write(b"after the end")
        owner.upstream.pause()
        owner.upstream.resume()
        owner.upstream.abort()
        await owner.upstream.drain()
        assert await owner.how() is End.FIN

    with serving(server) as port:
        run(main(port))


@pytest.mark.parametrize("words", [b"", b"last words" * 1000])
def test_a_reset_is_told_after_what_came_before_it(run: Run, words: bytes) -> None:
    def server(connection: socket.socket) -> None:
        read_until(connection, b"go")
        connection.sendall(words)
        reset(connection)

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"go")
        assert await owner.how() is End.RST
        assert owner.data == words

    with serving(server) as port:
        run(main(port))


def test_an_answer_that_comes_before_a_reset_during_an_upload_is_not_lost(run: Run) -> None:
    def server(connection: socket.socket) -> None:
        connection.recv(10)
        connection.sendall(b"too large" * 2_000)
        connection.close()  # with bytes unread: the kernel makes it a reset

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"x" * 20_000_000)
        owner.upstream.pause()  # so that the write must be the one that fails
        await owner.upstream.drain()
        assert await owner.how() is End.RST
        assert owner.data == b"too large" * 2_000

    with serving(server) as port:
        run(main(port))


def test_a_reset_that_answers_our_write_to_a_closed_server_does_not_hide_its_fin(run: Run) -> None:
    closed = threading.Event()

    def server(connection: socket.socket) -> None:
        read_until(connection, b"go")
        connection.sendall(b"done")
        connection.close()
        closed.set()

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"go")
        owner.upstream.pause()
        assert await asyncio.to_thread(closed.wait, GUARD_S)
        while not owner.upstream.closed:
            owner.upstream.write(b"more")
            await asyncio.sleep(0.01)
        assert await owner.how() is End.FIN
        assert owner.data == b"done"

    with serving(server) as port:
        run(main(port))


def test_a_servers_fin_during_an_upload_ends_it(run: Run) -> None:
    over = threading.Event()

    def server(connection: socket.socket) -> None:
        connection.recv(10)
        connection.sendall(b"enough")
        connection.shutdown(socket.SHUT_WR)
        assert over.wait(GUARD_S)

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"x" * 20_000_000)
        assert await owner.how() is End.FIN
        assert owner.data == b"enough"
        await owner.upstream.drain()
        over.set()

    with serving(server) as port:
        run(main(port))


def test_drain_waits_for_a_server_that_does_not_read(run: Run) -> None:
    go = threading.Event()
    got: list[int] = []

    def server(connection: socket.socket) -> None:
        assert go.wait(GUARD_S)
        left = 20_000_001
        while left:
            left -= len(connection.recv(left))
        got.append(left)

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"x" * 20_000_000)
        waiting = asyncio.create_task(owner.upstream.drain())
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done
        go.set()
        await waiting
        owner.upstream.write(b"y")
        assert await owner.how() is End.FIN

    with serving(server) as port:
        run(main(port))
    assert got == [0]


def test_drain_returns_when_the_owner_aborts(run: Run) -> None:
    over = threading.Event()

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"x" * 20_000_000)
        waiting = asyncio.create_task(owner.upstream.drain())
        await asyncio.sleep(0)
        owner.upstream.abort()
        await waiting
        over.set()

    def server(connection: socket.socket) -> None:
        assert over.wait(GUARD_S)

    with serving(server) as port:
        run(main(port))


SIZE = 60_000_000


def send_as_far_as_possible(connection: socket.socket, stuck: threading.Event) -> int:
    """Sends SIZE bytes; sets `stuck` once nothing moved for a while. How many were sent by then."""
    sent, at_stuck, block = 0, 0, bytes(range(256)) * 1024
    connection.settimeout(0.3)
    while sent < SIZE:
        try:
            sent += connection.send(block[: SIZE - sent])
        except TimeoutError:
            at_stuck = at_stuck or sent
            stuck.set()
    return at_stuck


def test_a_pause_holds_the_server_back_in_bounded_memory(run: Run) -> None:
    stuck = threading.Event()
    at_stuck: list[int] = []

    def server(connection: socket.socket) -> None:
        read_until(connection, b"go")
        at_stuck.append(send_as_far_as_possible(connection, stuck))

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"go")
        await owner.until(1)
        owner.upstream.pause()
        before = len(owner.data)
        await asyncio.to_thread(stuck.wait, GUARD_S)
        assert len(owner.data) == before
        assert max(len(data) for _, data in owner.reads) <= 256 * 1024
        owner.upstream.resume()
        assert await owner.how() is End.FIN
        assert len(owner.data) == SIZE

    with serving(server) as port:
        run(main(port))
    assert at_stuck[0] < SIZE


def test_nothing_comes_after_abort(run: Run) -> None:
    gone = threading.Event()

    def server(connection: socket.socket) -> None:
        read_until(connection, b"go")
        connection.sendall(b"one")
        with suppress(ConnectionError):
            while True:  # a server that only writes notices too
                connection.sendall(b"x" * 1000)
        gone.set()

    async def main(port: int) -> None:
        owner = await attach(port)
        owner.upstream.write(b"go")
        await owner.until(3)
        owner.upstream.abort()
        seen = len(owner.reads)
        assert owner.upstream.closed
        assert await asyncio.to_thread(gone.wait, GUARD_S)
        await asyncio.sleep(0.05)
        assert len(owner.reads) == seen
        assert not owner.ends

    with serving(server) as port:
        run(main(port))


def test_abort_within_a_read_stops_the_reads_after_it(run: Run) -> None:
    async def main(port: int) -> None:
        owner = await attach(port)
        read = owner.upstream.on_read

        def leave(at_us: int, data: bytes) -> None:
            read(at_us, data)
            owner.upstream.abort()

        owner.upstream.on_read = leave
        owner.upstream.write(b"x" * 20_000_000)
        owner.upstream.pause()
        await owner.upstream.drain()
        await asyncio.sleep(0.05)
        assert len(owner.reads) == 1
        assert not owner.ends

    def server(connection: socket.socket) -> None:
        connection.recv(10)
        connection.sendall(b"y" * 600_000)
        connection.close()

    with serving(server) as port:
        run(main(port))


@pytest.mark.parametrize("how", [End.FIN, End.RST])
def test_what_happened_before_the_owner_took_over_is_told_then(run: Run, how: End) -> None:
    connected, closed = threading.Event(), threading.Event()

    def server(connection: socket.socket) -> None:
        if how is End.RST:
            assert connected.wait(GUARD_S)
        connection.sendall(b"greeting")
        if how is End.RST:
            reset(connection)
        else:
            connection.close()
        closed.set()

    async def main(port: int) -> None:
        target = Target("http", HOST, port)
        upstream = await connect(target, connect_timeout_s=GUARD_S, clock=clock_us)
        connected.set()
        assert await asyncio.to_thread(closed.wait, GUARD_S)
        await asyncio.sleep(0.05)
        owner = Owner(upstream)
        owner.upstream.resume()
        assert await owner.how() is how
        assert owner.data == b"greeting"

    with serving(server) as port:
        run(main(port))


class StillTransport(asyncio.Transport):
    """Stands in for a transport where a test calls the protocol itself."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return True


class ScriptedSocket:
    """Hands out what a kernel would still have."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers = list(answers)

    def recv(self, _size: int) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("error", "left", "how"),
    [
        (ConnectionResetError(), [b"a", b"b", BlockingIOError()], End.RST),
        (ConnectionResetError(), [b"a", b"b", b""], End.RST),
        (BrokenPipeError(), [b"a", b"b", b""], End.FIN),
        (BrokenPipeError(), [b"a", b"b", ConnectionResetError()], End.RST),  # as macOS may have it
        (TimeoutError(), [b"ab", BlockingIOError()], End.RST),
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_a_lost_connection_gives_what_the_kernel_still_holds(
    error: OSError, left: list[bytes | OSError], how: End, begun: bool
) -> None:
    async def main() -> None:
        ticks = iter(range(100))
        upstream = Upstream(lambda: next(ticks), ScriptedSocket(*left), (), None)  # type: ignore[arg-type]
        upstream.connection_made(StillTransport())
        owner = Owner(upstream)
        if begun:
            upstream.resume()
            await asyncio.sleep(0)
        upstream.connection_lost(error)
        if not begun:
            assert not owner.reads
            upstream.write(b"request")
        assert await owner.how() is how
        assert owner.data == b"ab"

    asyncio.run(main())


def test_what_came_early_is_not_told_after_abort() -> None:
    async def main() -> None:
        upstream = Upstream(lambda: 1, ScriptedSocket(), (), None)  # type: ignore[arg-type]
        upstream.connection_made(StillTransport())
        owner = Owner(upstream)
        upstream.data_received(b"early")
        upstream.eof_received()
        upstream.resume()
        upstream.abort()
        upstream.connection_lost(None)
        await asyncio.sleep(0)
        assert not owner.reads
        assert not owner.ends

    asyncio.run(main())


def test_small_writes_are_not_held_back(run: Run) -> None:
    async def main(port: int) -> None:
        owner = await attach(port)
        sock = owner.upstream._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        owner.upstream.abort()

    with serving(lambda connection: None) as port:
        run(main(port))


# --- no way through


def test_a_refused_port(run: Run) -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
    error = run(failure(Target("http", HOST, port)))
    assert error.reason == "refused"


def test_a_name_that_does_not_exist(run: Run) -> None:
    error = run(failure(Target("https", "nothing.invalid", 443)))
    assert error.reason == "dns"


def test_an_address_without_a_route(run: Run) -> None:
    error = run(failure(Target("http", "255.255.255.255", 80)))
    assert error.reason == "unreachable"


@contextmanager
def full() -> Iterator[int]:
    """A port that lets a connection hang: its queue is full."""
    with listening(backlog=0) as listener:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        try:
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


def test_a_connection_that_hangs_is_given_up(run: Run) -> None:
    with full() as port:
        error = run(failure(Target("http", HOST, port), HANG_S))
    assert error.reason == "timeout"
    assert "0.5 s" in str(error)
    assert "connecting" in str(error)


def test_a_tls_handshake_that_hangs_is_given_up(run: Run) -> None:
    with listening() as listener:
        error = run(failure(Target("https", HOST, listener.getsockname()[1]), HANG_S))
    assert error.reason == "timeout"
    assert "TLS" in str(error)


def test_a_connect_that_is_cancelled_closes_its_socket(run: Run) -> None:
    seen: list[bytes] = []
    hello = threading.Event()

    def server(connection: socket.socket) -> None:
        seen.append(connection.recv(1))
        hello.set()
        read_to_end(connection)

    async def main(port: int) -> None:
        task = asyncio.create_task(attach(port, "https"))
        await asyncio.to_thread(hello.wait, GUARD_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with serving(server) as port:
        run(main(port))
    assert seen == [b"\x16"]


def test_the_kernels_own_time_out_is_one() -> None:
    reason, text = module._unreached(TimeoutError(110, "Connection timed out"), "host:1")
    assert reason == "timeout"
    assert "host:1" in text


def test_an_error_without_a_number_is_told_in_its_words() -> None:
    reason, text = module._unreached(OSError("odd"), "host:1")
    assert reason == "unreachable"
    assert "odd" in text


# --- several addresses

Addresses = Callable[..., None]


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> Addresses:
    """Gives these addresses to the host `name`."""

    def become(*places: tuple[str, int]) -> None:
        found = [
            (socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
            for host, port in places
        ]

        for loop in (asyncio.BaseEventLoop, uvloop.Loop):
            real = loop.getaddrinfo

            async def getaddrinfo(self: Any, host: Any, *args: Any, real: Any = real, **options: Any) -> Any:
                return found if host == "name" else await real(self, host, *args, **options)

            monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)

    return become


def greet(connection: socket.socket) -> None:
    connection.sendall(b"hi")


def hears_greeting(run: Run, port: int) -> None:
    async def main() -> None:
        owner = await attach(port, host="name")
        owner.upstream.resume()
        assert await owner.how() is End.FIN
        assert owner.data == b"hi"

    run(main())


def has_ipv6() -> bool:
    with suppress(OSError), listening("::1"):
        return True
    return False


@pytest.mark.parametrize(
    "host", [HOST, pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine"))]
)
def test_a_server_on_one_family_only_is_found(run: Run, host: str, addresses: Addresses) -> None:
    with serving(greet, host) as port:
        addresses(("::1", port), (HOST, port))
        hears_greeting(run, port)


def test_an_address_that_hangs_does_not_keep_the_next_from_being_tried(run: Run, addresses: Addresses) -> None:
    with full() as dead, serving(greet) as port:
        addresses((HOST, dead), (HOST, dead), (HOST, port))
        hears_greeting(run, port)


def test_a_slow_address_still_counts_when_the_last_one_refuses(
    run: Run, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEXT_ADDRESS_AFTER_S", 0)
    dial = module._dial
    refused = asyncio.Event()

    async def slow(found: Any) -> socket.socket:
        if found[4][1] != port:
            refused.set()
            raise ConnectionRefusedError
        await refused.wait()
        await asyncio.sleep(0.01)
        return await dial(found)

    monkeypatch.setattr(module, "_dial", slow)
    with serving(greet) as port:
        addresses((HOST, port), (HOST, 1))
        hears_greeting(run, port)


def test_families_are_tried_in_turn(run: Run, addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def dial(found: Any) -> socket.socket:
        tried.append(found[4][0])
        raise ConnectionRefusedError

    monkeypatch.setattr(module, "_dial", dial)
    addresses(("::1", 1), ("::2", 1), ("::3", 1), (HOST, 1))
    assert run(failure(Target("http", "name", 1))).reason == "refused"
    assert tried == ["::1", HOST, "::2", "::3"]


def test_a_refusal_says_more_than_a_missing_route(run: Run, addresses: Addresses) -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
    addresses(("255.255.255.255", port), (HOST, port), ("255.255.255.255", port))
    assert run(failure(Target("http", "name", port))).reason == "refused"


def test_of_two_connections_made_at_once_one_is_closed(
    run: Run, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEXT_ADDRESS_AFTER_S", 0)
    dial = module._dial
    made: list[socket.socket] = []
    both = asyncio.Event()
    ends: list[bytes] = []

    async def together(found: Any) -> socket.socket:
        sock = await dial(found)
        made.append(sock)
        if len(made) == 2:
            both.set()
        await both.wait()
        return sock

    monkeypatch.setattr(module, "_dial", together)

    async def main(port: int) -> None:
        owner = await attach(port, host="name")
        await asyncio.sleep(0)
        assert sorted(sock.fileno() < 0 for sock in made) == [False, True]
        owner.upstream.abort()

    def server(connection: socket.socket) -> None:
        ends.append(connection.recv(1))

    with serving(server, connections=2) as port:
        addresses((HOST, port), (HOST, port))
        run(main(port))
    assert ends == [b"", b""]


# --- TLS


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*(names or (HOST, "::1", "localhost"))).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def over_tls(context: ssl.SSLContext, script: Callable[[ssl.SSLSocket], None]) -> Script:
    def server(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            script(wrapped)

    return server


def close_notify(connection: ssl.SSLSocket) -> None:
    with suppress(OSError):  # the client closes without a word
        connection.unwrap()


def plain_close(connection: ssl.SSLSocket) -> None:
    socket.socket(fileno=connection.detach()).close()


def broken_record(connection: ssl.SSLSocket) -> None:
    with socket.socket(fileno=connection.detach()) as raw:
        raw.sendall(b"no TLS record at all")
        raw.settimeout(GUARD_S)
        read_to_end(raw)


@pytest.mark.parametrize(
    ("end", "how"),
    [(close_notify, End.FIN), (plain_close, End.FIN), (reset, End.RST), (broken_record, End.RST)],
)
@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.usefixtures("trusted")
def test_https_bytes_both_ways_and_how_it_ends(
    run: Run, authority: trustme.CA, end: Callable[[ssl.SSLSocket], None], how: End, pause: bool
) -> None:
    answer = bytes(range(256)) * 80  # it must fit into the client's first window: a reset takes back what does not
    sent = threading.Event()

    def server(connection: ssl.SSLSocket) -> None:
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert read_until(connection, b"bye") == b"hello " * 50_000 + b"bye"
        connection.sendall(answer)
        sent.set()
        end(connection)

    async def main(port: int) -> None:
        owner = await attach(port, "https")
        owner.upstream.write(b"hello " * 50_000 + b"bye")
        if pause:
            owner.upstream.pause()
            await asyncio.to_thread(sent.wait, GUARD_S)
            await asyncio.sleep(0.1)
            owner.upstream.resume()
        assert await owner.how() is how
        assert owner.data == answer

    with serving(over_tls(server_context(authority), server)) as port:
        run(main(port))


@pytest.mark.usefixtures("trusted")
def test_https_a_pause_holds_the_server_back_in_bounded_memory(run: Run, authority: trustme.CA) -> None:
    stuck = threading.Event()
    at_stuck: list[int] = []

    def server(connection: ssl.SSLSocket) -> None:
        read_until(connection, b"go")
        at_stuck.append(send_as_far_as_possible(connection, stuck))

    async def main(port: int) -> None:
        owner = await attach(port, "https")
        owner.upstream.write(b"go")
        await owner.until(1)
        owner.upstream.pause()
        before = len(owner.data)
        await asyncio.to_thread(stuck.wait, GUARD_S)
        assert len(owner.data) == before
        owner.upstream.resume()
        assert await owner.how() is End.FIN
        assert len(owner.data) == SIZE

    with serving(over_tls(server_context(authority), server)) as port:
        run(main(port))
    assert at_stuck[0] < SIZE


@pytest.mark.usefixtures("trusted")
def test_https_an_answer_before_a_reset_during_an_upload_is_not_lost(run: Run, authority: trustme.CA) -> None:
    def server(connection: ssl.SSLSocket) -> None:
        connection.recv(10)
        connection.sendall(b"too large" * 2_000)
        reset(connection)

    async def main(port: int) -> None:
        owner = await attach(port, "https")
        owner.upstream.write(b"x" * 20_000_000)
        owner.upstream.pause()
        await owner.upstream.drain()
        assert await owner.how() is End.RST
        assert owner.data == b"too large" * 2_000

    with serving(over_tls(server_context(authority), server)) as port:
        run(main(port))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.usefixtures("trusted")
def test_bytes_that_come_with_the_end_of_the_handshake_are_kept(
    run: Run, authority: trustme.CA, version: ssl.TLSVersion
) -> None:
    context = server_context(authority)
    context.minimum_version = context.maximum_version = version

    def server(connection: socket.socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
        session.write(b"greeting")
        connection.sendall(outgoing.read())
        read_to_end(connection)

    async def main(port: int) -> None:
        owner = await attach(port, "https")
        await asyncio.sleep(0.05)
        assert not owner.reads
        owner.upstream.resume()
        await owner.until(8)
        assert owner.data == b"greeting"
        owner.upstream.abort()

    with serving(server) as port:
        run(main(port))


@pytest.mark.parametrize(
    ("names", "trust", "what"),
    [
        (("elsewhere.example",), True, "as the certificate names it"),
        ((HOST,), False, "SSL_CERT_FILE"),
    ],
)
def test_a_certificate_that_does_not_fit(
    run: Run, authority: trustme.CA, names: tuple[str, ...], trust: bool, what: str, request: pytest.FixtureRequest
) -> None:
    if trust:
        request.getfixturevalue("trusted")

    def server(connection: socket.socket) -> None:
        with suppress(OSError), server_context(authority, *names).wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    with serving(server) as port:
        error = run(failure(Target("https", HOST, port)))
    assert error.reason == "tls"
    assert "certificate verify failed" in str(error)
    assert what in str(error)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_a_plain_server_behind_https(run: Run, answer: bytes, end: Script) -> None:
    def server(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        end(connection)

    with serving(server) as port:
        error = run(failure(Target("https", HOST, port)))
    assert error.reason == "tls"
    assert "http://" in str(error)


def test_an_expired_certificate_is_not_mended_by_another_authority() -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = 10, "certificate has expired"
    assert "clock" in module._tls_failure(error, "host:443")


# --- proxies


def proxied(monkeypatch: pytest.MonkeyPatch, port: int, scheme: str = "http", userinfo: str = "me:hunter2@") -> None:
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://{userinfo}{HOST}:{port}")


def join(left: socket.socket, right: socket.socket) -> None:
    """Hands bytes over until either side ends; in one thread, since a TLS socket does not bear two."""
    while True:
        waiting = isinstance(left, ssl.SSLSocket) and left.pending()
        for source in [left] if waiting else select.select([left, right], [], [], GUARD_S)[0]:
            data = source.recv(65536)
            if not data:
                return
            (right if source is left else left).sendall(data)


class ForwardProxy:
    """Answers CONNECT with `answer` and joins both sides, whatever name was asked for going to `port`."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.port = port
        self.answer = answer
        self.head = b""

    def __call__(self, connection: socket.socket) -> None:
        self.head = read_until(connection, b"\r\n\r\n")
        connection.sendall(self.answer)
        with socket.create_connection((HOST, self.port)) as onward:
            join(connection, onward)


def test_plain_http_through_a_proxy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:hunter2") + b"\r\n"

    async def main() -> None:
        target = Target("http", "nothing.invalid", 81)
        owner = Owner(await connect(target, connect_timeout_s=GUARD_S, clock=clock_us))
        assert owner.upstream.absolute_form
        assert owner.upstream.proxy_headers == credentials
        owner.upstream.write(b"GET http://%b/ HTTP/1.1\r\n%b\r\n" % (target.authority, owner.upstream.proxy_headers))
        assert await owner.how() is End.FIN
        assert owner.data == b"answer"

    def server(connection: socket.socket) -> None:
        head = read_until(connection, b"\r\n\r\n")
        assert head == b"GET http://nothing.invalid:81/ HTTP/1.1\r\n" + credentials + b"\r\n"
        connection.sendall(b"answer")

    with serving(server) as port:
        proxied(monkeypatch, port)
        run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 Connection established\r\n\r\n",
        b"HTTP/1.0 204\nVia: x\n\n",
    ],
)
@pytest.mark.usefixtures("trusted")
def test_https_through_a_proxy(run: Run, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    async def main() -> None:
        owner = await attach(443, "https", "nothing.invalid")
        assert not owner.upstream.absolute_form
        assert owner.upstream.proxy_headers == b""
        owner.upstream.write(b"hello")
        assert await owner.how() is End.FIN
        assert owner.data == b"HELLO"

    def server(connection: ssl.SSLSocket) -> None:
        connection.sendall(connection.recv(5).upper())

    with serving(over_tls(server_context(authority, "nothing.invalid"), server)) as port:
        proxy = ForwardProxy(port, answer)
        with serving(proxy) as proxy_port:
            proxied(monkeypatch, proxy_port)
            run(main())
    assert proxy.head == (
        b"CONNECT nothing.invalid:443 HTTP/1.1\r\nHost: nothing.invalid:443\r\n"
        b"Proxy-Authorization: Basic " + base64.b64encode(b"me:hunter2") + b"\r\n\r\n"
    )


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.usefixtures("trusted")
def test_a_proxy_that_speaks_tls_itself(
    run: Run, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    answer = bytes(range(256)) * 1000

    async def main() -> None:
        owner = await attach(1234, scheme, "nothing.invalid")
        assert owner.upstream.absolute_form is (scheme == "http")
        owner.upstream.write(b"hello" * 10_000 + b"bye")
        assert await owner.how() is End.FIN
        assert owner.data == answer

    def server(connection: socket.socket) -> None:
        assert read_until(connection, b"bye") == b"hello" * 10_000 + b"bye"
        connection.sendall(answer)

    if scheme == "http":
        with serving(over_tls(server_context(authority), server)) as port:
            proxied(monkeypatch, port, "https")
            run(main())
        return
    inner = over_tls(server_context(authority, "nothing.invalid"), server)
    with serving(inner) as port, serving(over_tls(server_context(authority), ForwardProxy(port))) as proxy_port:
        proxied(monkeypatch, proxy_port, "https")
        run(main())


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (
            b"HTTP/1.1 407 \x1b[31mhunter2\r\nProxy-Authenticate: Basic\r\n\r\n",
            "407 Proxy Authentication Required; give",
        ),
        (b"HTTP/1.1 403 No\r\n\r\n", "403 Forbidden; check that it allows"),
        (b"HTTP/1.1 799 No\r\n\r\n", "799; check"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "did not answer CONNECT"),
        (b"HTTP/1.1 200 OK\r\n", "did not answer CONNECT"),
        (b"", "did not answer CONNECT"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "did not answer CONNECT"),
    ],
)
def test_a_proxy_that_does_not_open_the_way(
    run: Run, monkeypatch: pytest.MonkeyPatch, answer: bytes, what: str
) -> None:
    def server(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        read_to_end(connection)

    with serving(server) as port:
        proxied(monkeypatch, port)
        error = run(failure(Target("https", "nothing.invalid", 443)))
    assert error.reason == "proxy"
    assert what in str(error)
    assert "hunter2" not in str(error)
    assert "\x1b" not in str(error)


def test_bytes_that_come_with_the_proxys_answer_belong_to_the_handshake(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nno TLS record")
        read_to_end(connection)

    with serving(server) as port:
        proxied(monkeypatch, port)
        error = run(failure(Target("https", "nothing.invalid", 443)))
    assert error.reason == "tls"


def test_a_proxy_that_resets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def server(connection: socket.socket) -> None:
        connection.recv(1)
        reset(connection)

    with serving(server) as port:
        proxied(monkeypatch, port)
        error = run(failure(Target("https", "nothing.invalid", 443)))
    assert error.reason == "proxy"
    assert "broke" in str(error)


@pytest.mark.usefixtures("trusted")
def test_a_tls_proxy_that_says_goodbye_instead_of_an_answer(
    run: Run, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(connection: ssl.SSLSocket) -> None:
        read_until(connection, b"\r\n\r\n")
        time.sleep(0.05)  # lets TLS 1.3's tickets, which are no answer, come alone
        connection.sendall(b"HTTP/1.1 20")
        close_notify(connection)

    with serving(over_tls(server_context(authority), server)) as port:
        proxied(monkeypatch, port, "https")
        error = run(failure(Target("https", "nothing.invalid", 443)))
    assert error.reason == "proxy"
    assert "did not answer" in str(error)


def test_a_tls_proxy_with_a_certificate_that_does_not_fit(
    run: Run, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(connection: socket.socket) -> None:
        with suppress(OSError), server_context(authority).wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    with serving(server) as port:
        proxied(monkeypatch, port, "https")
        error = run(failure(Target("http", "nothing.invalid", 80)))
    assert error.reason == "proxy"
    assert f"{HOST}:{port}" in str(error)


def test_a_proxy_that_hangs_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as listener:
        proxied(monkeypatch, listener.getsockname()[1])
        error = run(failure(Target("https", "nothing.invalid", 443), HANG_S))
    assert error.reason == "timeout"
    assert "CONNECT" in str(error)
    assert "hunter2" not in str(error)


def test_a_proxy_that_refuses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
    proxied(monkeypatch, port)
    error = run(failure(Target("http", "nothing.invalid", 80)))
    assert error.reason == "proxy"
    assert f"{HOST}:{port}" in str(error)
    assert "refused" in str(error)
