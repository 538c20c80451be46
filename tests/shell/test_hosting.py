"""A server inside a Python program: when it is ready, what is called in its loop, and that it is closed for sure."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import pytest

from mockllm.core.errors import MockllmError, UsageError
from mockllm.hosting import Host, Serving, SharedClock, result
from mockllm.serve import Receive, Scope, Send
from tests.shell.serving import wait_until


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "mockllm-server"]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(threads())
    yield
    gc.collect()
    wait_until(lambda: not set(threads()) - before)


def test_it_answers_until_it_is_closed() -> None:
    host = Host(hello)
    with pytest.raises(UsageError, match="not started"):
        _ = host.base_url
    host.start()
    assert httpx.get(host.base_url).text == "hi"
    host.close()
    host.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(host.base_url)
    with pytest.raises(UsageError, match="started once"):
        host.start()


def test_close_before_the_start_does_nothing() -> None:
    Host(hello).close()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host = Host(hello, port=taken.getsockname()[1])
        with pytest.raises(MockllmError):
            host.start()
        assert host.call(threading.get_ident) == threading.get_ident()


def test_work_is_done_in_the_servers_thread() -> None:
    host = Host(hello)
    here = threading.get_ident()
    assert host.call(threading.get_ident) == here, "nothing runs yet"
    host.start()
    there = host.call(threading.get_ident)
    assert there != here
    assert host.call(lambda: host.call(threading.get_ident)) == there, "from the server's thread at once"
    with pytest.raises(ZeroDivisionError):
        host.call(lambda: 1 // 0)
    host.close()
    assert host.call(threading.get_ident) == here, "nothing runs any more"


def test_work_that_waits() -> None:
    async def soon(value: int) -> int:
        await asyncio.sleep(0)
        return value

    host = Host(hello)
    assert host.begin(lambda: soon(1)) is None
    host.start()
    assert result(host.begin(lambda: soon(2))) == 2
    begun = host.begin(lambda: asyncio.sleep(60, 3))
    host.close()
    assert result(begun) is None, "the server cancelled it"
    assert result(None) is None


def test_on_stop_is_called_in_the_loop() -> None:
    called: list[int] = []
    host = Host(hello, lambda: called.append(threading.get_ident()))
    host.start()
    there = host.call(threading.get_ident)
    host.close()
    assert called == [there]


def serving() -> Serving[str]:
    return Serving(Host(hello), lambda host: host.base_url)


def test_with() -> None:
    with serving() as url:
        assert httpx.get(url).text == "hi"
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_with_is_left_by_an_exception() -> None:
    kept: list[str] = []

    def broken() -> None:
        with serving() as url:
            kept.append(url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    with pytest.raises(httpx.ConnectError):
        httpx.get(kept[0])


def test_async_with() -> None:
    async def main() -> str:
        async with serving() as url, httpx.AsyncClient() as client:
            return (await client.get(url)).text

    assert asyncio.run(main()) == "hi"


def test_start_and_close() -> None:
    one = serving()
    assert httpx.get(one.start()).text == "hi"
    one.close()


def test_the_collector_closes_what_nobody_holds() -> None:
    host = Host(hello)
    host.start()
    gone = weakref.ref(host)
    before = len(threads())
    del host
    gc.collect()
    assert gone() is None
    wait_until(lambda: len(threads()) == before - 1)


def test_the_collector_may_run_in_the_servers_own_thread() -> None:
    host = Host(hello)
    host.start()
    before = len(threads())
    holder: dict[str, Any] = {"host": host}
    holder["cycle"] = holder
    loop = host._place.loop
    assert loop is not None
    done: Future[int] = Future()
    gc.disable()
    try:
        del host, holder
        loop.call_soon_threadsafe(lambda: done.set_result(gc.collect()))
        assert done.result(10) > 0
    finally:
        gc.enable()
    wait_until(lambda: len(threads()) == before - 1)


def test_the_end_of_python_closes_it() -> None:
    code = """
import mockllm
serving = mockllm.replay()
print(serving.start().base_url)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(done.stdout.strip())


def test_a_shared_clock_is_one_for_all_and_leaves_no_file_open() -> None:
    clock = SharedClock()

    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/dev/fd"))

    before = open_files()
    host = Host(hello)
    host.start()
    assert host.call(clock) is host.call(clock)
    assert open_files() > before
    host.close()
    wait_until(lambda: open_files() == before)
