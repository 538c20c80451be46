"""The pytest plugin, in test-suites made for it: what passes, what fails, what is recorded, and what a report says."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mockllm
from mockllm import pytest_plugin, testing  # noqa: F401 - here, so that the suites inside need not import it again
from mockllm.core.faults.sets import BENIGN
from tests.shell.tapes import CHUNKED_HEAD, LAST, plain, request, write

pytest_plugins = "pytester"

HEADER = """
import http.client, pytest, urllib.error, urllib.request
def get(url): return urllib.request.urlopen(url).read().decode()
def swallow(url):
    try: return get(url)
    except (OSError, http.client.HTTPException): return "nothing"
"""
EVENTS = [[1, "data", f"data: {number}\n\n"] for number in range(3)]


@pytest.fixture(autouse=True)
def here(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # Hypothesis alone takes a second to begin
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider -p no:hypothesispytest")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Path:
    """Where the suite's cassettes are: `a.jsonl` says one, then two to /a, `s.jsonl` streams three events at /s."""
    folder = pytester.path / "cassettes"
    write(folder / "a.jsonl", request("/a", "GET"), *plain("one"), request("/a", "GET"), *plain("two"))
    write(folder / "s.jsonl", request("/s", "GET"), CHUNKED_HEAD, *EVENTS, LAST, [0, "end", "complete"])
    return folder


@pytest.fixture
def upstream(suite: Path) -> Iterator[mockllm.ReplayServer]:
    """The real server."""
    with mockllm.replay(suite) as server:
        yield server


def run(pytester: pytest.Pytester, code: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(test_x=HEADER + code)
    return pytester.runpytest_inprocess(*args)


def record(pytester: pytest.Pytester, code: str, upstream: mockllm.ReplayServer, *args: str) -> pytest.RunResult:
    return run(pytester, code, "--mockllm=record", f"--mockllm-upstream={upstream.base_url}", *args)


def bodies(path: Path) -> list[str]:
    return [one.body.decode() for one in mockllm.load(path)]


# --- replay


def test_a_cassette_by_mark_and_one_by_place(pytester: pytest.Pytester, suite: Path) -> None:
    write(suite / "test_x" / "test_place" / "000001-get.jsonl", request("/v1/p", "GET"), *plain("placed"))
    write(suite / "test_x" / "TestIt.test_place-7" / "000001-get.jsonl", request("/p", "GET"), *plain("in a class"))
    result = run(
        pytester,
        """
        @pytest.mark.mockllm("cassettes/a.jsonl", speed=0)
        def test_mark(mockllm):
            assert [get(mockllm.base_url + "/a") for _ in range(3)] == ["one", "two", "two"]
            assert [entry.match for entry in mockllm.journal] == ["exact", "exact", "repeat"]
        def test_place(mockllm, mockllm_fault):
            assert get(mockllm.openai_base_url + "/p") == "placed"
            assert mockllm_fault == "none"
        class TestIt:
            @pytest.mark.parametrize("number", [7])
            def test_place(self, mockllm, number):
                assert get(mockllm.base_url + "/p") == "in a class"
        def test_nothing_is_asked(mockllm):
            pass
        """.replace("\n        ", "\n"),
    )
    result.assert_outcomes(passed=4)


def test_each_test_begins_at_the_beginning(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/a.jsonl")
@pytest.mark.parametrize("number", range(4))
def test_a(mockllm, number):
    assert get(mockllm.base_url + "/a") == "one"
    assert len(mockllm.journal) == 1
    ports.add(mockllm.base_url.split("/")[2])
    assert len(ports) == 1, "one server for all"
ports = set()
"""
    run(pytester, code).assert_outcomes(passed=4)


def test_marks_add_to_each_other(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
pytestmark = pytest.mark.mockllm("cassettes/s.jsonl", speed=0, match="method", faults="crlf")
def test_module(mockllm):
    assert "\\r\\n" in get(mockllm.base_url + "/other")
@pytest.mark.mockllm(faults="none")
def test_function(mockllm):
    assert "\\r\\n" not in get(mockllm.base_url + "/other")
@pytest.mark.mockllm("cassettes/a.jsonl", faults="status:code=418")
def test_path(mockllm):
    assert swallow(mockllm.base_url + "/other") == "nothing"
    assert mockllm.journal[0].status == 418
"""
    run(pytester, code).assert_outcomes(passed=3)


def test_a_miss_fails_a_test_that_swallows_it(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/a.jsonl", exhausted="error")
def test_miss(mockllm):
    assert swallow(mockllm.base_url + "/b") == "nothing"
@pytest.mark.mockllm("cassettes/a.jsonl", exhausted="error")
def test_exhausted(mockllm):
    assert [swallow(mockllm.base_url + "/a") for _ in range(3)] == ["one", "two", "nothing"]
@pytest.mark.mockllm("cassettes/a.jsonl")
def test_nonsense(mockllm):
    assert swallow(mockllm.base_url + "/~nonsense/a") == "nothing"
def test_nothing_recorded(mockllm):
    assert swallow(mockllm.base_url + "/b") == "nothing"
"""
    result = run(pytester, code)
    result.assert_outcomes(passed=4, errors=4)
    result.stdout.re_match_lines(
        [
            r"_+ ERROR at teardown of test_miss _+",
            r"1\. GET /b: 404, no recording answers GET /b; the nearest is .*a\.jsonl:1, but path: \"/b\", recorded",
            r"to record: pytest --mockllm=record --mockllm-upstream URL 'test_x\.py::test_miss'",
            r".*all recordings of GET /a were played",
            r".*unknown fault 'nonsense'",
            r".*no recording answers GET /b; there are no recordings",
        ]
    )


def test_a_miss_among_many_requests_is_not_forgotten(
    pytester: pytest.Pytester, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
@pytest.mark.mockllm("cassettes/a.jsonl")
def test_miss(mockllm):
    swallow(mockllm.base_url + "/b")
    get(mockllm.base_url + "/a")
    mockllm.reset()
"""
    result = run(pytester, code)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*requests were answered by no recording, so many that the journal has forgotten*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('"cassettes/none.jsonl"', "*none.jsonl does not exist*"),
        ('"cassettes/a.jsonl", faults="nonsense"', "*unknown fault 'nonsense'*"),
        ('"cassettes/a.jsonl", sped=0', "*the mark mockllm takes other options*sped*"),
        ('"cassettes/a.jsonl", on_miss="record", upstream="http://x"', "*is for servers: tests take --mockllm=record*"),
    ],
)
def test_a_wrong_mark(mark: str, said: str, pytester: pytest.Pytester, suite: Path) -> None:
    result = run(pytester, f"@pytest.mark.mockllm({mark})\ndef test_a(mockllm): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])


def test_a_failure_shows_the_journal(pytester: pytest.Pytester, suite: Path) -> None:
    write(suite / "hang.jsonl", request("/h", "GET"), CHUNKED_HEAD, *EVENTS, [0, "end", "hang"])
    code = """
@pytest.mark.mockllm("cassettes/hang.jsonl")
def test_leaves(mockllm):
    with urllib.request.urlopen(mockllm.base_url + "/h") as answer:
        answer.readline()
    mockllm.wait()
    assert False
def test_asks_nothing(mockllm):
    assert False
"""
    result = run(pytester, code)
    result.assert_outcomes(failed=2)
    result.stdout.re_match_lines(
        [r"-+ mockllm journal -+", r"1\. GET /h: 200, .*hang\.jsonl:1, [123] events, .* the client left after .*"]
    )
    result.stdout.fnmatch_lines(["*no request came*"])


def test_unused_recordings_on_request(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/a.jsonl")
def test_a(mockllm): assert get(mockllm.base_url + "/a") == "one"
"""
    run(pytester, code).assert_outcomes(passed=1)
    result = run(pytester, code, "--mockllm-fail-unused")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*a.jsonl:5 was never asked for"])


def test_what_comes_too_late_or_without_a_test(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
seen = []
@pytest.mark.mockllm("cassettes/a.jsonl")
def test_first(mockllm):
    seen.append(mockllm.base_url)
    server = mockllm.base_url.partition("/~")[0]
    assert get(server + "/a") == "one", "no test is named: the one that runs now"
    assert get(mockllm.base_url + "/~session=own/a") == "one"
    assert get(mockllm.session("own").base_url + "/a") == "two"
    assert '"misses":0' in get(mockllm.base_url + "/_mockllm/health")
    assert [entry.session for entry in mockllm.journal] == ["default", "own", "own"]
@pytest.mark.mockllm("cassettes/a.jsonl")
def test_second(mockllm):
    assert swallow(seen[0] + "/a") == "nothing"
    assert mockllm.journal == []
def test_none():
    with pytest.raises(urllib.error.HTTPError) as caught: get(seen[0].partition("/~")[0] + "/a")
    assert "no test uses the fixture" in caught.value.read().decode()
    with pytest.raises(urllib.error.HTTPError) as caught: get(seen[0] + "?x")
    assert "test_first-1 is over" in caught.value.read().decode()
"""
    run(pytester, code).assert_outcomes(passed=3)


# --- faults


def test_a_run_for_each_benign_fault(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/s.jsonl")
@pytest.mark.mockllm_faults("benign", without=["multiline", "join", "split"])
@pytest.mark.parametrize("word", ["x"])
def test_it(mockllm, mockllm_fault, word):
    text = get(mockllm.base_url + "/s")
    assert "data" in text
    assert mockllm.journal[0].faults[0]["fault"] == mockllm_fault
"""
    result = run(pytester, code, "-v")
    expected = [spec for spec in BENIGN if spec.partition(":")[0] not in ("multiline", "join", "split")]
    result.assert_outcomes(passed=len(expected))
    result.stdout.fnmatch_lines([f"*::test_it[[]x-{spec}[]] PASSED*" for spec in expected])


def test_a_fault_without_effect_proves_nothing(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/a.jsonl")
@pytest.mark.mockllm_faults("bom", "status:code=429", without="status")
def test_it(mockllm):
    assert get(mockllm.base_url + "/a") == "one"
@pytest.mark.mockllm_faults("crlf")
def test_nothing(mockllm):
    pass
"""
    result = run(pytester, code, "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*the fault bom had no effect: the body is no stream of events",
            "*the fault crlf had no effect: nothing was played that it could bend",
        ]
    )


def test_the_faults_of_a_run_come_after_the_marks(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/s.jsonl", faults="crlf")
@pytest.mark.mockllm_faults("cut:at=1ev", "crlf+bom")
def test_it(mockllm):
    text = swallow(mockllm.base_url + "/s")
    assert [fault["fault"] for fault in mockllm.journal[0].faults][0] == "crlf"
"""
    run(pytester, code).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            '@pytest.mark.mockllm_faults("benine")\ndef test_it(mockllm): pass',
            "mockllm_faults takes a set (benign) or faults: *unknown fault 'benine'*",
        ),
        ('@pytest.mark.mockllm_faults("crlf")\ndef test_it(): pass', "*is for tests that use the fixture mockllm"),
    ],
)
def test_wrong_faults(code: str, said: str, pytester: pytest.Pytester) -> None:
    result = run(pytester, code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])


# --- record, auto, off


ONE = """
def test_it(mockllm):
    assert get(mockllm.base_url + "/a") == "{}"
"""


def test_record_anew(pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer) -> None:
    place = suite / "test_x" / "test_it"
    write(place / "000001-get-old.jsonl", request("/old", "GET"), *plain("old"))
    result = record(pytester, ONE.format("one"), upstream)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["mockllm: record"])
    assert bodies(place) == ["one"]
    assert [path.name for path in place.iterdir()] == ["000001-get-a.jsonl"]
    run(pytester, ONE.format("one")).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "code",
    [
        ONE.format("something else"),
        ONE.format("one") + "    pytest.skip()",
        "@pytest.mark.xfail\n" + ONE.format("something else"),
        "@pytest.fixture\ndef late():\n    yield\n    assert False\n"
        + ONE.format("one").replace("test_it(", "test_it(late, "),
    ],
    ids=["failed", "skipped", "expected to fail", "failed at teardown"],
)
def test_a_test_that_is_no_good_keeps_the_old_cassette(
    code: str, pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer
) -> None:
    place = suite / "test_x" / "test_it"
    write(place / "000001-get-old.jsonl", request("/old", "GET"), *plain("old"))
    record(pytester, code, upstream)
    assert bodies(place) == ["old"]
    assert [entry.path for entry in upstream.journal] == ["/a"]


def test_a_server_that_is_not_there_fails_a_test_that_swallows_it(pytester: pytest.Pytester) -> None:
    code = 'def test_it(mockllm): assert swallow(mockllm.base_url + "/a") == "nothing"'
    result = run(pytester, code, "--mockllm=record", "--mockllm-upstream=http://127.0.0.1:1")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["GET /a was not recorded: *127.0.0.1:1 refused the connection*"])
    assert not (pytester.path / "cassettes").exists()


def test_a_shared_cassette_loses_nothing(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer
) -> None:
    shared = write(suite / "shared.jsonl", request("/a", "GET"), *plain("old"), request("/kept", "GET"), *plain("kept"))
    code = """
pytestmark = pytest.mark.mockllm("cassettes/shared.jsonl")
def test_a(mockllm): assert get(mockllm.base_url + "/a") == "one"
def test_s(mockllm): assert "data: 2" in get(mockllm.base_url + "/s")
"""
    record(pytester, code, upstream).assert_outcomes(passed=2)
    assert bodies(shared) == ["kept", "one", "data: 0\n\ndata: 1\n\ndata: 2\n\n"]


def test_parameters_have_cassettes_of_their_own(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer
) -> None:
    code = """
@pytest.mark.parametrize("path", ["/a", "/s", pytest.param("/a", id="b" * 90)])
def test_it(mockllm, path): get(mockllm.base_url + path)
"""
    record(pytester, code, upstream).assert_outcomes(passed=3)
    names = sorted(path.name for path in (suite / "test_x").iterdir())
    assert [name.rpartition("-")[0] for name in names] == ["test_it-a", "test_it-" + "b" * 72, "test_it-s"]
    run(pytester, code).assert_outcomes(passed=3)


def test_the_fault_of_a_run_is_not_in_the_place(pytester: pytest.Pytester, suite: Path) -> None:
    for name in ("test_it-none", "TestOuter.TestInner.test_it"):
        lines = [CHUNKED_HEAD, *EVENTS, LAST, [0, "end", "complete"]]
        write(suite / "test_x" / name / "000001-get-s.jsonl", request("/s", "GET"), *lines)
    code = """
@pytest.mark.mockllm_faults("crlf", "ids")
@pytest.mark.parametrize("word", ["none"])
def test_it(mockllm, word): assert "data" in get(mockllm.base_url + "/s")
class TestOuter:
    class TestInner:
        @pytest.mark.mockllm_faults("crlf", "ids")
        def test_it(self, mockllm): assert "data" in get(mockllm.base_url + "/s")
"""
    run(pytester, code).assert_outcomes(passed=4)
    code = """
@pytest.mark.parametrize("word", ["none"])
def test_it(mockllm, word): assert "data" in get(mockllm.base_url + "/s")
"""
    run(pytester, code).assert_outcomes(passed=1)


def test_what_is_recorded_is_not_bent(pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer) -> None:
    code = """
@pytest.mark.mockllm_faults("benign")
def test_it(mockllm): assert "data: 2" in get(mockllm.base_url + "/s")
"""
    result = record(pytester, code, upstream, "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_it[[]none[]] PASSED*"])
    assert bodies(suite / "test_x" / "test_it") == ["data: 0\n\ndata: 1\n\ndata: 2\n\n"]


def test_a_client_that_leaves_early_gets_a_whole_tape(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer
) -> None:
    done = [[1, "data", "data: [DONE]\n\n"], [200, "wire", "0\r\n\r\n"], [0, "end", "complete"]]
    write(suite / "d.jsonl", request("/d", "GET"), CHUNKED_HEAD, *done)
    code = """
def test_it(mockllm):
    with urllib.request.urlopen(mockllm.base_url + "/d") as answer: assert b"DONE" in answer.readline()
"""
    record(pytester, code, upstream).assert_outcomes(passed=1)
    (tape,) = mockllm.load(suite / "test_x" / "test_it")
    assert (tape.end, tape.body) == ("complete", b"data: [DONE]\n\n")


def test_a_tape_that_does_not_come_to_its_end(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "SETTLE_S", 0.05)
    write(suite / "h.jsonl", request("/h", "GET"), CHUNKED_HEAD, *EVENTS, [0, "end", "hang"])
    code = """
def test_it(mockllm):
    kept.append(urllib.request.urlopen(mockllm.base_url + "/h"))
    kept[0].readline()
kept = []
"""
    record(pytester, code, upstream).assert_outcomes(passed=1)
    (tape,) = mockllm.load(suite / "test_x" / "test_it")
    assert tape.end == "client"
    assert tape.exchange.end_meta["by"] == "recorder"
    monkeypatch.setattr(testing, "STOP_S", 0)
    monkeypatch.setattr(testing.Recorder, "stop", lambda _: None)
    result = record(pytester, code, upstream)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["an exchange did not come to its end"])


def test_a_tape_that_cannot_be_written(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing.Folder, "create", lambda _self, _number, _name, failed: failed("the disk is full"))
    result = record(pytester, ONE.format("one"), upstream)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["a tape could not be written"])


def test_a_cassette_that_cannot_be_renewed(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer
) -> None:
    (suite / "test_x").write_text("in the way")
    result = record(pytester, ONE.format("one"), upstream)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["cannot renew *"])


def test_auto_records_what_is_missing(pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer) -> None:
    code = """
def test_it(mockllm):
    assert get(mockllm.base_url + "/b") == "mine"
    assert get(mockllm.base_url + "/a") == "one"
@pytest.mark.mockllm_faults("crlf")
def test_bent(mockllm):
    assert "data: 2" in get(mockllm.base_url + "/s")
"""
    place = suite / "test_x" / "test_it"
    write(place / "000001-get-b.jsonl", request("/b", "GET"), *plain("mine"))
    auto = ["--mockllm=auto", f"--mockllm-upstream={upstream.base_url}", "-rs"]
    result = run(pytester, code, *auto)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*the fault crlf had no effect: nothing was played*"])
    assert bodies(place) == ["mine", "one"]
    asked = len(upstream.journal)
    run(pytester, code, *auto).assert_outcomes(passed=2)
    assert len(upstream.journal) == asked, "now all is there"
    run(pytester, code, "--mockllm=auto").assert_outcomes(passed=2)


def test_off(pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer) -> None:
    code = f"""
@pytest.mark.mockllm_faults("crlf")
def test_it(mockllm):
    assert mockllm.base_url == "{upstream.base_url}"
    assert get(mockllm.base_url + "/a") == "one"
    assert mockllm.journal == []
"""
    run(pytester, code, "--mockllm=off", f"--mockllm-upstream={upstream.base_url}").assert_outcomes(passed=1)


def test_a_mark_may_name_the_server(pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer) -> None:
    code = f'@pytest.mark.mockllm(upstream="{upstream.base_url}")\n' + ONE.format("one").lstrip()
    run(pytester, code, "--mockllm=record").assert_outcomes(passed=1)
    assert bodies(suite / "test_x" / "test_it") == ["one"]


@pytest.mark.parametrize("mode", ["record", "off"])
def test_the_server_must_be_named(mode: str, pytester: pytest.Pytester) -> None:
    result = run(pytester, ONE, f"--mockllm={mode}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"--mockllm={mode} needs the real server: --mockllm-upstream URL"])


def test_what_is_recorded_has_one_place(pytester: pytest.Pytester, upstream: mockllm.ReplayServer) -> None:
    result = record(pytester, '@pytest.mark.mockllm("a.jsonl", "b.jsonl")' + ONE.format("one"), upstream)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["to be recorded a test names one cassette, not several"])


def test_ci_only_replays(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = record(pytester, 'def test_it(mockllm): swallow(mockllm.base_url + "/a")', upstream)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["mockllm: replay, since CI is set (--mockllm=record is not heeded)"])
    assert upstream.journal == []
    monkeypatch.setenv("CI", "false")
    record(pytester, ONE.format("one"), upstream).assert_outcomes(passed=1)


# --- the rest


def test_several_workers(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
@pytest.mark.mockllm("cassettes/a.jsonl", speed=0)
@pytest.mark.parametrize("number", range(20))
def test_a(mockllm, number):
    assert [get(mockllm.base_url + "/a") for _ in range(3)] == ["one", "two", "two"]
@pytest.mark.mockllm("cassettes/a.jsonl")
def test_miss(mockllm): swallow(mockllm.base_url + "/b")
def test_fails(mockllm): assert False
"""
    pytester.makepyfile(test_x=HEADER + code)
    result = pytester.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=21, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*no recording answers GET /b*", "*mockllm journal*"])


def test_workers_that_record_one_cassette(
    pytester: pytest.Pytester, suite: Path, upstream: mockllm.ReplayServer
) -> None:
    code = """
@pytest.mark.mockllm("cassettes/new.jsonl", match="method,path,query")
@pytest.mark.parametrize("number", range(6))
def test_a(mockllm, number): assert "data" in get(mockllm.base_url + f"/s{number}")
"""
    for number in range(6):
        write(suite / f"s{number}.jsonl", request(f"/s{number}", "GET"), *plain(f"data {number}"))
    pytester.makepyfile(test_x=HEADER + code)
    result = pytester.runpytest_subprocess("-n2", "--mockllm=record", f"--mockllm-upstream={upstream.base_url}")
    result.assert_outcomes(passed=6)
    assert sorted(bodies(suite / "new.jsonl")) == [f"data {number}" for number in range(6)]


def test_marks_are_registered(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.mockllm(*", "@pytest.mark.mockllm_faults(*"])


def test_a_run_that_does_not_use_it_pays_next_to_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        def test_it():
            assert "mockllm.pytest_plugin" in sys.modules
            assert {name for name in sys.modules if name.startswith("mockllm.")} == {"mockllm.pytest_plugin"}
            assert not {"httpx", "uvicorn", "starlette", "asyncio.runners"} & set(sys.modules) - before
        before = set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
    code = "import time, pytest; a = time.perf_counter(); import mockllm.pytest_plugin; print(time.perf_counter() - a)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    assert float(done.stdout) < 0.25, "it takes a few milliseconds; a loaded machine has many times as much"


def test_many_tests_leave_nothing_open(pytester: pytest.Pytester, suite: Path) -> None:
    code = """
import os
@pytest.mark.mockllm("cassettes/a.jsonl", speed=0)
@pytest.mark.parametrize("number", range(30))
def test_a(mockllm, number):
    get(mockllm.base_url + "/a")
    mockllm.wait()
    counts.append(len(os.listdir("/dev/fd")))
    assert counts[-1] <= counts[0] + 5
counts = []
"""
    run(pytester, code).assert_outcomes(passed=30)
