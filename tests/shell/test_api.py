"""The Python API as a program uses it: replay, record and load."""

import asyncio
import doctest
import json
import logging
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

import mockllm
from mockllm import loading
from mockllm.core.errors import CassetteError, MockllmError, UsageError
from mockllm.wishes import Wishes
from tests.peers.client import RawClient, get
from tests.shell.tapes import CHUNKED_HEAD, LAST, head, plain, request, write

api = import_module("mockllm.api")


@pytest.fixture
def tapes(tmp_path: Path) -> Path:
    folder = tmp_path / "tapes"
    write(folder / "a.jsonl", request("/a", "GET"), *plain("one"), request("/a", "GET"), *plain("two"))
    write(folder / "b.jsonl", request("/b", json={"x": 1}), *plain("three"))
    stream = [[1, "data", f"data: {number}\n\n"] for number in range(3)]
    write(folder / "c.jsonl", request("/c", "GET"), CHUNKED_HEAD, *stream, LAST, [0, "end", "complete"])
    return folder


# --- the package


@pytest.mark.parametrize("module", [api, loading], ids=lambda module: module.__name__)
def test_the_examples_run(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert tried
    assert not failed


def test_importing_the_package_loads_nothing() -> None:
    code = (
        "import sys, mockllm; print([name for name in sys.modules if name.startswith(('mockllm.', 'httpx', 'asyn'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=30, check=True)
    assert done.stdout == "[]\n"


def test_every_name_of_the_api_is_in_the_package() -> None:
    assert set(api.__all__) <= set(dir(mockllm))
    for name in api.__all__:
        assert getattr(mockllm, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="'mockllm' has no attribute 'nothing'"):
        _ = mockllm.nothing  # type: ignore[attr-defined]


def test_modules_of_the_same_name_do_not_hide_the_functions() -> None:
    code = "import mockllm.replay, mockllm.record; from mockllm.replay import Replay; mockllm.replay(), mockllm.record"
    subprocess.run([sys.executable, "-c", code], timeout=30, check=True)
    code = "import mockllm; mockllm.replay(); import mockllm.replay, mockllm.record; mockllm.replay(), mockllm.load"
    subprocess.run([sys.executable, "-c", code], timeout=30, check=True)


# --- replay


def test_what_was_asked_is_in_the_journal(tapes: Path) -> None:
    with mockllm.replay(tapes, speed=0) as server:
        assert httpx.get(f"{server.base_url}/x?key=secret").status_code == 404
        texts = [httpx.get(f"{server.base_url}/a", headers={"authorization": "Bearer secret"}).text for _ in range(3)]
        assert httpx.post(f"{server.base_url}/b", json={"x": 1}).text == "three"
        entries = server.journal
        assert server.unused == [f"{tapes / 'c.jsonl'}:1"]
    assert texts == ["one", "two", "two"]
    assert [entry.match for entry in entries] == ["miss", "exact", "exact", "repeat", "exact"]
    last = entries[-1]
    assert (last.method, last.target, last.path, last.status, last.json) == ("POST", "/b", "/b", 200, {"x": 1})
    assert (last.ended, last.stream_status, last.miss, last.unmet) == (True, "complete", False, None)
    assert last.recording == f"{tapes / 'b.jsonl'}:1"
    assert "secret" not in f"{entries}", "credentials are masked"
    assert server.journal == entries, "it is there after the end"


def test_a_miss_does_not_raise_until_it_is_asserted(tapes: Path) -> None:
    with mockllm.replay(tapes) as server:
        server.assert_no_misses()
        assert httpx.post(f"{server.base_url}/b", json={"x": 2}).status_code == 404
    (miss,) = server.misses
    assert miss.miss
    assert miss.unmet is not None
    with pytest.raises(AssertionError, match=r"1 requests .*\n1\. POST /b: 404, no recording .* is 2, recorded 1"):
        server.assert_no_misses()


def test_a_request_that_is_refused_counts_as_one(tapes: Path) -> None:
    with mockllm.replay(tapes) as server:
        assert httpx.get(f"{server.base_url}/~nonsense/a").status_code == 400
    (miss,) = server.misses
    assert "unknown fault" in str(miss)


def test_faults_come_and_go(tapes: Path) -> None:
    with mockllm.replay(tapes, faults="status:code=500", exhausted="repeat") as server:
        url = f"{server.base_url}/a"
        assert httpx.get(url).status_code == 500
        server.faults("status:code=429")
        assert httpx.get(url).status_code == 429
        server.faults("none")
        assert httpx.get(url).status_code == 200
        server.faults(None)
        assert httpx.get(url).status_code == 500
        with pytest.raises(UsageError, match="unknown fault"):
            server.faults("nonsense")


def test_sessions_do_not_disturb_each_other(tapes: Path) -> None:
    with mockllm.replay(tapes) as server:
        one, other = server.session("one"), server.session("other")
        one.faults("status:code=429")
        assert [httpx.get(f"{session.base_url}/a").status_code for session in (one, other)] == [429, 200]
        assert httpx.get(f"{other.base_url}/a").text == "two"
        assert httpx.get(f"{server.base_url}/a").text == "one"
        assert httpx.get(f"{server.base_url}/a", headers={"mockllm-session": "third"}).text == "one"
        assert [entry.session for entry in other.journal] == ["other", "other"]
        assert len(server.journal) == 5
        other.reset()
        assert other.journal == []
        assert httpx.get(f"{other.base_url}/a").text == "one"
        assert one.openai_base_url == f"{server.base_url}/~session=one/v1"
        assert f"{one}" == f"<a replay at {one.base_url}>"
        server.reset()
        assert server.journal == []
        with pytest.raises(UsageError, match="a name is"):
            server.session("no name")


def test_programs_find_it_in_their_environment(tapes: Path) -> None:
    with mockllm.replay(tapes) as server:
        assert server.environment == {
            "MOCKLLM_BASE_URL": server.base_url,
            "OPENAI_BASE_URL": f"{server.base_url}/v1",
            "ANTHROPIC_BASE_URL": server.base_url,
            "OLLAMA_HOST": server.base_url,
        }


def test_wait_for_requests(tapes: Path) -> None:
    with mockllm.replay(tapes) as server:
        asking = threading.Thread(target=lambda: [httpx.get(f"{server.base_url}/{path}") for path in "aax"])
        asking.start()
        assert [entry.path for entry in server.wait(2, path="/a")] == ["/a", "/a"]
        assert [entry.path for entry in server.wait(miss=True)] == ["/x"]
        asking.join()
        with pytest.raises(TimeoutError, match=r"3 of 4 requests came within 0\.01 s"):
            server.wait(4, timeout_s=0.01)
        assert len(server.wait(3, ended=None)) == 3
    assert len(server.wait(3)) == 3
    with pytest.raises(TimeoutError):
        server.wait(4)


def test_wait_for_a_client_that_leaves(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request("/a", "GET"), CHUNKED_HEAD, [0, "data", "x"], [0, "end", "hang"])
    with mockllm.replay(tmp_path) as server:
        url = httpx.URL(server.base_url)
        client = RawClient(url.host, url.port or 0)
        client.send(get("/a"))
        (entry,) = server.wait(ended=None)
        client.read(20)
        client.leave()
        (entry,) = server.wait()
    assert entry.stream_status == "client_gone"
    assert "the client left after" in str(entry)


def test_a_wait_ends_with_the_server(tapes: Path) -> None:
    serving = mockllm.replay(tapes)
    server = serving.start()
    closing = threading.Timer(0.05, serving.close)
    closing.start()
    with pytest.raises(TimeoutError, match="0 of 1"):
        server.wait(timeout_s=60)
    closing.join()


def test_async_code(tapes: Path) -> None:
    async def main() -> list[str]:
        async with mockllm.replay(tapes, speed=0) as server, httpx.AsyncClient() as client:
            answers = await asyncio.gather(*(client.get(f"{server.base_url}/c") for _ in range(5)))
            entries = await server.wait_async(5)
            assert {entry.events_sent for entry in entries} == {3}
            with pytest.raises(TimeoutError):
                await server.wait_async(6, timeout_s=0)
        with pytest.raises(TimeoutError):
            await server.wait_async(6)
        return [answer.text for answer in answers]

    assert asyncio.run(main()) == ["data: 0\n\ndata: 1\n\ndata: 2\n\n"] * 5


def test_the_options_are_those_of_the_command(tapes: Path, tmp_path: Path) -> None:
    write(tapes / "d.jsonl", request("/d?day=1", json={"id": 7, "x": 1}), *plain("four"))
    journal = tmp_path / "journal.jsonl"
    with mockllm.replay(
        tapes,
        match="method,path,query,body",
        ignore=["/id"],
        ignore_query=["day"],
        exhausted="error",
        max_gap="1s",
        on_client="hang",
        cors=True,
        journal=journal,
        speed=10,
    ) as server:
        assert httpx.post(f"{server.base_url}/d?day=2", json={"id": 8, "x": 1}).text == "four"
        assert httpx.post(f"{server.base_url}/d?day=2", json={"id": 8, "x": 1}).status_code == 404
        answer = httpx.get(f"{server.base_url}/a", headers={"origin": "http://a.test"})
        assert answer.headers["access-control-allow-origin"] == "*"
    assert [json.loads(line)["match"] for line in journal.read_text().splitlines()] == ["exact", "exhausted", "exact"]
    assert len(server.misses) == 1


def test_without_paths_the_shipped_recordings_answer() -> None:
    with mockllm.replay(speed=0) as server:
        answer = httpx.post(
            f"{server.openai_base_url}/chat/completions",
            json={"stream": True, "messages": [{"role": "user", "content": "hi"}]},
        )
    assert "[DONE]" in answer.text
    assert server.journal[0].match == "closest"
    assert "(the closest)" in str(server.journal[0])
    with pytest.raises(UsageError, match=r"no cassettes of 'none' are shipped, only of .*mlx_lm\.server"):
        mockllm.shipped("none")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"faults": "nonsense"}, "unknown fault 'nonsense'"),
        ({"speed": float("nan")}, "speed=nan; expected a number"),
        ({"speed": -1}, "speed=-1"),
        ({"max_gap": "2"}, "max_gap='2'; expected a duration"),
        ({"match": "methud"}, "did you mean method"),
        ({"ignore": ["x"]}, "x"),
        ({"redact": ["\udcff"]}, "a name to redact is not UTF-8"),
        ({"on_miss": "maybe"}, "on_miss='maybe'; expected 'error' or 'closest' or"),
        ({"on_miss": "record"}, "on_miss='record' needs an upstream"),
        ({"upstream": "http://127.0.0.1:1"}, "only with on_miss"),
        ({"exhausted": "no"}, "exhausted='no'"),
        ({"on_client": "no"}, "on_client='no'"),
        ({"journal": "/nowhere/at/all"}, "cannot write"),
    ],
)
def test_wrong_options_are_said_at_once(options: dict[str, Any], said: str, tapes: Path) -> None:
    with pytest.raises(MockllmError) as caught:
        mockllm.replay(tapes, **options)
    assert said in str(caught.value)


def test_what_cannot_be_played_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        mockllm.replay(tmp_path / "nothing.jsonl")
    with pytest.raises(CassetteError):
        mockllm.replay(write(tmp_path / "bad.jsonl", "nonsense"))


def test_a_miss_may_be_asked_and_recorded(tapes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mockllm")
    new = tmp_path / "new"
    with mockllm.replay(tapes) as real:
        with mockllm.replay(new, on_miss="record", upstream=real.base_url) as server:
            assert [httpx.get(f"{server.base_url}/a").text for _ in range(2)] == ["one", "one"]
        with mockllm.replay(new, on_miss="forward", upstream=real.base_url) as server:
            assert httpx.get(f"{server.base_url}/c").status_code == 200
    assert [entry.path for entry in mockllm.load(new)] == ["/a"]
    assert "GET /a 200" in caplog.text
    one = write(tmp_path / "one.jsonl", request(), *plain(""))
    with pytest.raises(UsageError, match="needs a folder"):
        mockllm.replay(one, on_miss="record", upstream="http://127.0.0.1:1")


def test_what_is_masked_on_tape_does_not_count(tmp_path: Path, tapes: Path) -> None:
    masked: Any = {"redact": ["x-tenant"], "redact_json": ["/user"]}
    body = {"user": "jane", "x": 1}
    write(tapes / "d.jsonl", request("/d", body="any"), *plain("four"))
    with mockllm.replay(tapes) as real, mockllm.record(real.base_url, to=tmp_path / "to", **masked) as server:
        httpx.post(f"{server.base_url}/d", json=body, headers={"x-tenant": "acme-secret"})
    text = next((tmp_path / "to").iterdir()).read_text()
    assert "jane" not in text
    assert "acme-secret" not in text
    with mockllm.replay(tmp_path / "to", **masked) as server:
        assert httpx.post(f"{server.base_url}/d", json=body | {"user": "joe"}).text == "four"


def test_it_is_ready_in_a_moment(tapes: Path) -> None:
    with mockllm.replay(tapes):
        pass  # imports are done
    took = []
    for _ in range(5):
        began = time.perf_counter()
        with mockllm.replay(tapes):
            took.append(time.perf_counter() - began)
    assert min(took) < 0.5, "it takes some milliseconds; a loaded machine has a hundred times as much"


# --- record


def test_record(tapes: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    with mockllm.replay(tapes, speed=0) as real:
        mounts = {"/other": real.base_url}
        with mockllm.record(real.base_url, to=to, mounts=mounts, drain="1s", idle_timeout="10s") as server:
            assert httpx.get(f"{server.base_url}/c").text.count("data") == 3
            assert httpx.get(f"{server.base_url}/other/a").text == "one"
            assert server.environment["OPENAI_BASE_URL"] == server.openai_base_url
            assert f"{server}" == f"<a recorder at {server.base_url} into {to}>"
    assert (server.count, server.failed) == (2, False)
    assert [(entry.target, entry.status, len(entry.events)) for entry in server.cassette] == [
        ("/c", 200, 3),
        ("/other/a", 200, 0),
    ]
    assert httpx.URL(real.base_url).port != httpx.URL(server.base_url).port


def test_record_asks_for_a_coding(tmp_path: Path, tapes: Path) -> None:
    with mockllm.replay(tapes) as real:
        with mockllm.record(real.base_url, to=tmp_path / "to", accept_encoding="identity") as server:
            httpx.get(f"{server.base_url}/a")
        (asked,) = real.journal
    assert ["Accept-Encoding", "identity"] in asked.request["headers"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "name the server to record"),
        ({"upstream": "ftp://x"}, "its scheme is neither"),
        ({"mounts": {"x": "http://x"}}, "mount 'x' is no path"),
        ({"upstream": "http://x", "drain": "5"}, "drain='5'"),
    ],
)
def test_wrong_options_of_record(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        mockllm.record(**options, to=tmp_path)
    assert said in str(caught.value)


# --- load


def test_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    events = [
        [2, "data", 'event: x\ndata: {"choices":[{"delta":{"content":"a"}}]}\nid: 7\n\n'],
        [0, "data", "data: -\n\n"],
    ]
    lines = [CHUNKED_HEAD, *events, LAST, [0, "end", "complete"]]
    write(tmp_path / "a.jsonl", request("/a?b=c", json={"x": [1]}), *lines, request("/b", "GET"), *plain('{"y":2}'))
    write(tmp_path / "b.jsonl", request("/c", "GET"), [0, "end", "fin"], '{"mockllm"')
    (tmp_path / "b.jsonl").write_text((tmp_path / "b.jsonl").read_text().rstrip("\n"))
    cassette = mockllm.load(tmp_path)
    assert "unfinished last line" in caplog.text
    first, second, third = cassette
    assert (len(cassette), cassette[1], cassette.path) == (3, second, tmp_path)
    assert (first.method, first.target, first.path, first.asked) == ("POST", "/a?b=c", "/a", {"x": [1]})
    assert (first.status, first.text, first.end, first.json) == (200, "a", "complete", None)
    assert [(event.name, event.id, event.at_us) for event in first.events] == [("x", "7", 2000), ("", None, 2000)]
    assert [event.json for event in first.events] == [{"choices": [{"delta": {"content": "a"}}]}, None]
    assert (first.ttft_us, first.duration_us, first.usage) == (2000, 2000, {})
    assert first.headers[0] == ("Content-Type", "text/event-stream")
    assert first.body.endswith(b"data: -\n\n")
    assert first.meta == {}
    assert (second.json, second.asked, second.events) == ({"y": 2}, None, ())
    assert (third.status, third.headers, third.body, third.end) == (None, (), b"", "fin")
    assert repr(second) == f"<GET /b: 200, 0 events, complete, from {second.source}>"
    assert second.exchange.request.target == b"/b"


def test_load_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        mockllm.load(tmp_path)


# --- entries


def test_how_an_entry_is_told(tapes: Path) -> None:
    write(tapes / "e.jsonl", request("/e", "GET"), head(Content_Length="9"), [0, "data", "x"], [0, "end", "fin"])
    with mockllm.replay(tapes, faults="bom+crlf:skip=9") as server:
        httpx.get(f"{server.base_url}/c")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{server.base_url}/e")
    whole, cut = map(str, server.journal)
    assert whole.startswith(
        f"1. GET /c: 200, {tapes / 'c.jsonl'}:1, fault bom applied, fault crlf:skip=9 was not its turn"
    )
    assert "3 events" in whole
    assert "complete after" in whole
    assert "fault bom had no effect (the body is no stream of events)" in cut
    assert "cut after" in cut


def test_an_entry_that_is_not_decided_yet(tapes: Path) -> None:
    with mockllm.replay(tapes) as server:
        httpx.get(f"{server.base_url}/a")
    document = server._app.journal.entries(api.Filter())[0].to_json()
    open_one = api.entry_of(
        document | {"match": None, "recording": None, "status": None, "duration_ms": None, "bytes_sent": 0}
    )
    assert str(open_one) == "1. GET /a: no status yet, not decided yet, still going on"
    assert open_one.unmet is None
    reset = api.entry_of(document | {"left_after_ms": 1.5, "stream_status": "reset_by_client"})
    assert str(reset).endswith("the client left after 1.5 ms with a reset")
    odd = api.entry_of(document | {"match": "refused", "request": {"method": "GET", "target": {"base64": "/w=="}}})
    assert odd.unmet == "GET /w== was answered by nothing"


def test_wishes_have_the_defaults_of_the_command() -> None:
    from mockllm.cli.replay import replay

    defaults = {option.name: option.default for option in replay.params}
    wishes = Wishes()
    for name in ("speed", "match", "exhausted", "on_client"):
        assert getattr(wishes, name) == defaults[name]
