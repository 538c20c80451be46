"""The command line as a user meets it: ready lines, exit codes, errors of one line, and processes that are stopped or
killed. No traceback, ever.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from mockllm import files
from mockllm.cli import main
from mockllm.cli.common import Duration
from mockllm.core.response import End
from tests.conftest import Launch
from tests.peers.client import RawClient, ask, get, post
from tests.peers.command import Finished, cli
from tests.peers.common import Ended
from tests.peers.framing import answer_end
from tests.peers.script import Hang, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import load
from tests.shell.tapes import head, plain, plain_wire, request, write

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = [
    b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
    b": keepalive 1/2\n\n",
    b"data: 1\n\n",
    b"data: 2",
]


def ok(_request: bytes) -> Script:
    return [Send(OK)]


def run(*args: str | Path) -> Result:
    """In this process, for what ends by itself."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


# --- record


def test_record_then_replay(tmp_path: Path, launch: Launch) -> None:
    tapes = tmp_path / "new" / "tapes"
    with RawServer(ok) as server:
        recorder = launch("record", server.url, "-o", tapes)
        assert recorder.ready_line == (
            f"mockllm: recording {server.url} into {tapes}, clients connect to {recorder.base_url}"
        )
        assert ask(recorder.host, recorder.port, get("/v1/models"), answer_end).wire == OK
        recorder.wait_for("complete")
        finished = recorder.stop()
    assert finished.status == 0
    assert finished.stdout == recorder.ready_line + "\n"
    log, summary = finished.stderr.splitlines()
    assert log.startswith("GET /v1/models 200, 40 B, first byte ")
    assert log.endswith(f" complete {tapes}/000001-get-v1-models.jsonl")
    assert summary == f"mockllm: 1 exchange recorded into {tapes}: 1 complete"

    replay = launch("replay", tapes)
    assert replay.ready_line == f"mockllm: playing 1 exchange of 1 file at {replay.base_url}"
    assert ask(replay.host, replay.port, get("/v1/models"), answer_end).wire == OK
    finished = replay.stop(signal.SIGTERM)
    assert (finished.status, finished.stdout) == (0, replay.ready_line + "\n")
    assert f"GET /v1/models {tapes}/000001-get-v1-models.jsonl:1: 40 of 40 B, late by " in finished.stderr


def test_quiet_logs_no_exchange(tmp_path: Path, launch: Launch) -> None:
    with RawServer(ok) as server:
        recorder = launch("record", server.url, "-o", tmp_path / "tapes", "--quiet")
        assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
        assert len(recorder.stop().stderr.splitlines()) == 1


def test_a_recorder_that_is_killed_leaves_what_its_clients_had(tmp_path: Path, launch: Launch) -> None:
    """SIGKILL after each read k, all in one recorder."""

    def stage(asked: bytes) -> Script:
        return [*(Send(data) for data in STREAM[: int(asked.split(b" ")[1][1:])]), Hang()]

    with RawServer(stage) as server:
        recorder = launch("record", server.url, "-o", tmp_path)
        clients = [RawClient(recorder.host, recorder.port) for _ in range(len(STREAM) + 1)]
        for count, client in enumerate(clients):
            client.send(get(f"/{count}"))
        for count, client in enumerate(clients):
            assert client.read(len(b"".join(STREAM[:count]))).end is Ended.OPEN
        recorder.kill()
    assert [client.read().end for client in clients] == [Ended.FIN] * len(clients)
    tapes = {int(tape.request.target[1:]): tape for tape in load(tmp_path)}
    assert sorted(tapes) == [1, 2, 3, 4], "where nothing came, nothing is on disk"
    for count, tape in tapes.items():
        assert tape.response.wire == b"".join(STREAM[:count])
        assert (tape.response.end, tape.end_meta) == (End.CLIENT, {"by": "kill"})
    replay = launch("replay", tmp_path)
    answer = ask(replay.host, replay.port, get("/4"))
    assert (answer.wire, answer.end) == (b"".join(STREAM), Ended.RST)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_recorder_that_is_stopped_in_mid_stream(sig: int, tmp_path: Path, launch: Launch) -> None:
    with RawServer([[Send(STREAM[0]), Send(STREAM[1]), Hang()]]) as server:
        recorder = launch("record", server.url, "-o", tmp_path)
        with RawClient(recorder.host, recorder.port) as client:
            client.send(get("/"))
            client.read(len(STREAM[0] + STREAM[1]))
            began = time.monotonic()
            finished = recorder.stop(sig)
            assert time.monotonic() - began < 3
            assert client.read().end is Ended.RST
    assert finished.status == 0
    assert "client (the recorder was stopped)" in finished.stderr
    assert finished.stderr.endswith(f"mockllm: 1 exchange recorded into {tmp_path}: 1 client\n")
    (tape,) = load(tmp_path)
    assert (tape.response.wire, tape.response.end) == (STREAM[0] + STREAM[1], End.CLIENT)
    assert tape.end_meta == {"by": "recorder"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit(2)")
def test_a_full_disk_is_said_once_and_is_the_exit_status(
    tmp_path: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    # coverage could not write its own file either
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    with RawServer(ok) as server:
        recorder = launch("record", server.url, "-o", tmp_path)
        resource.prlimit(recorder.process.pid, resource.RLIMIT_FSIZE, (40, 40))
        for count in (1, 2):
            assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
            recorder.wait_for("complete", times=count)
        finished = recorder.stop()
    assert finished.status == 1
    assert finished.stderr.count("file too large; clients are served on, but the recording is incomplete") == 1
    assert finished.stderr.endswith("mockllm: the recording is incomplete: some tapes could not be written\n")
    assert load(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path: Path, launch: Launch) -> None:
    (tmp_path / "file").touch()
    with RawServer(ok) as server:
        recorder = launch("record", server.url, "-o", tmp_path / "file" / "tapes")
        recorder.wait_for("clients are served on")
        assert ask(recorder.host, recorder.port, get("/"), answer_end).wire == OK
        assert recorder.stop().status == 1


def test_mounts_and_options(tmp_path: Path, launch: Launch) -> None:
    with RawServer(ok) as one, RawServer(ok) as two:
        options = ["--mount", f"/one={one.url}/v1", "--mount", f"/two/={two.url}", "--accept-encoding", "identity"]
        options += ["--idle-timeout", "5m", "--connect-timeout", "1.5s", "--drain", "250ms", "--host", "localhost"]
        recorder = launch("record", "-o", tmp_path, *options)
        for path in ("/one/x", "/two/y"):
            assert ask(recorder.host, recorder.port, get(path), answer_end).wire == OK
        assert ask(recorder.host, recorder.port, get("/three"), answer_end).wire.startswith(b"HTTP/1.1 404 ")
        assert one.requests[0].startswith(b"GET /v1/x HTTP/1.1\r\n")
        assert two.requests[0].startswith(b"GET /y HTTP/1.1\r\n")
        assert b"\r\nAccept-Encoding: identity\r\n" in one.requests[0]
        health = ask(recorder.host, recorder.port, get("/_mockllm/health"), answer_end).wire
        recorder.wait_for("complete", times=2)
    assert b'"recorded":' in health


# --- replay


def test_a_replay_that_is_stopped_in_mid_stream(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "a.jsonl", request("/", "GET"), head(version="1.0"), [3_600_000, "data", "1"], [0, "end", "fin"])
    replay = launch("replay", tmp_path / "a.jsonl")
    with RawClient(replay.host, replay.port) as client:
        client.send(get("/"))
        client.read(19)
        began = time.monotonic()
        finished = replay.stop()
        assert time.monotonic() - began < 3
    assert finished.status == 0
    assert "Traceback" not in finished.stderr


def test_requests_that_matched_nothing_are_the_exit_status(tmp_path: Path, launch: Launch) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    replay = launch("replay", tmp_path, "--on-miss", "error")
    for _ in range(2):
        assert ask(replay.host, replay.port, get("/"), answer_end).wire.startswith(b"HTTP/1.1 404 ")
    finished = replay.stop()
    assert finished.status == 3
    assert finished.stderr.endswith("mockllm: 2 requests matched no recording\n")


def test_replay_options_reach_the_replay(tmp_path: Path, launch: Launch) -> None:
    gap = [3_600_000, "data", "later"]
    write(tmp_path / "a.jsonl", request(json=1), head(Content_Length="9"), gap, [0, "end", "client"])
    options = ["--speed", "100", "--max-gap", "1s", "--on-miss", "closest", "--on-client", "hang"]
    replay = launch("replay", tmp_path, *options)
    with RawClient(replay.host, replay.port) as client:
        client.send(post("/x", b"2"))
        assert client.read(lambda data: data.endswith(b"later")).end is Ended.OPEN
        assert client.read(for_ms=30).end is Ended.TIMEOUT


def test_without_a_path_the_shipped_cassettes_are_played(launch: Launch) -> None:
    """From a folder outside of the checkout, whatever the prompt."""
    replay = launch("replay", "--speed", "0")
    body = {"messages": [{"role": "user", "content": "anything"}], "stream": True}
    answer = ask(replay.host, replay.port, post("/v1/chat/completions", json.dumps(body).encode()))
    assert answer.wire.startswith(b"HTTP/1.0 200 OK\r\nServer: BaseHTTP")
    assert answer.wire.endswith(b"data: [DONE]\n\n")
    assert "(the closest)" in replay.wait_for("late by")
    assert replay.stop().status == 0


def test_every_shipped_cassette_is_readable() -> None:
    finished = run("check", files.shipped())
    assert finished.exit_code == 0
    assert finished.output.endswith(": all readable\n")


# --- check


def test_check_says_every_file_that_is_wrong(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(), *plain("one"), request(), *plain("two"))
    write(tmp_path / "b.jsonl", request(), head(Content_Length="1"), [0, "data", "ab"], [0, "end", "complete"])
    write(tmp_path / "c.jsonl", "nonsense")
    finished = run("check", tmp_path)
    assert finished.exit_code == 1
    assert finished.stdout == "2 exchanges in 3 files: 2 files cannot be read\n"
    one, two = finished.stderr.splitlines()
    assert one.startswith(f"mockllm: {tmp_path}/b.jsonl:3: found 2 bytes of body")
    assert two.startswith(f"mockllm: {tmp_path}/c.jsonl:1: found ")


def test_check_mends_lengths_and_nothing_else(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", "# mine", request(json={"b": 1.50}), *plain("one")).read_bytes()
    wrong = [head(Content_Length="1"), "# kept", [0, "data", "ab"], [0, "end", "complete"]]
    edited = write(tmp_path / "wrong.jsonl", request(), *wrong, request(), *plain("fine"))
    edited.chmod(0o640)
    assert run("check", edited).exit_code == 1
    finished = run("check", "--fix", tmp_path)
    assert (finished.exit_code, finished.stderr) == (0, f"mockllm: {edited}: lengths rewritten\n")
    assert finished.stdout == "3 exchanges in 2 files: all readable\n"
    assert (tmp_path / "good.jsonl").read_bytes() == good
    assert b'["Content-Length","2"]' in edited.read_bytes()
    assert b"\n# kept\n" in edited.read_bytes()
    assert edited.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.jsonl", "wrong.jsonl"]
    assert run("check", "--fix", tmp_path).stderr == ""


# --- errors


def one_line(finished: Finished | Result, *words: str) -> None:
    """All that is said is one line, with these words."""
    said = finished.stderr
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line and not line.startswith(("Usage:", "Try "))]
    assert len(lines) == 1, said
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("command", [["record", "http://127.0.0.1:1", "-o", "tapes"], ["replay", "tapes"]])
def test_a_taken_port(command: list[str], tmp_path: Path) -> None:
    write(tmp_path / "tapes" / "a.jsonl", request(), *plain("one"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        finished = cli(*command, "--port", port, cwd=tmp_path)
    assert (finished.status, finished.stdout) == (1, "")
    one_line(finished, f"mockllm: port {port} on 127.0.0.1 is in use", "--port 0")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["record", "-o", "tapes"], ["name the server to record"]),
        (["record", "http://127.0.0.1:1"], ["-o"]),
        (["record", "127.0.0.1:8080", "-o", "tapes"], ["no scheme"]),
        (["record", "ftp://x", "-o", "tapes"], ["neither http:// nor https://"]),
        (["record", "http://127.0.0.1:1", "-o", "file"], ["file is a file"]),
        (["record", "-o", "tapes", "--mount", "one=http://x"], ["--mount one=http://x is not /PREFIX=URL"]),
        (["record", "-o", "tapes", "--mount", "/one"], ["/PREFIX=URL"]),
        (["record", "-o", "tapes", "--mount", "/=http://x"], ["/PREFIX=URL"]),
        (["record", "-o", "tapes", "--mount", "/a?b=http://x"], ["/PREFIX=URL"]),
        (["record", "http://x", "-o", "tapes", "--idle-timeout", "5"], ["'5' is no duration", "250ms"]),
        (["record", "http://x", "-o", "tapes", "--drain", "-1s"], ["'-1s' is no duration"]),
        (["record", "http://x", "-o", "tapes", "--idle-timeout", "0s"], ["'0s' is no time to wait"]),
        (["record", "http://x", "-o", "tapes", "--connect-timeout", "0ms"], ["'0ms' is no time to wait"]),
        (["record", "http://x", "-o", "tapes", "--accept-encoding", "a\r\nb: c"], ["--accept-encoding", "identity"]),
        (["record", "http://x", "-o", "tapes", "--host", "0.0.0.0"], ["--allow-remote"]),
        (["record", "http://x", "-o", "tapes", "--redact", "Content-Length"], ["is needed to read the answer"]),
        (["replay", "tape.jsonl", "--redact", ""], ["is no name"]),
        (
            ["record", "-o", "tapes", "--mount", "/a=http://x", "--mount", "/a/=http://y"],
            ["--mount /a/ is there twice"],
        ),
        (["record", "http://x", "-o", "tapes", "--port", "99999"], ["99999"]),
        (["replay", "nowhere"], ["nowhere does not exist"]),
        (["replay", "empty"], ["no cassettes (*.jsonl) in empty"]),
        (["replay", "tape.jsonl", "--server", "mlx_lm.server"], ["--server chooses among the shipped"]),
        (["replay", "--server", "nobody"], ["no cassettes of 'nobody' are shipped, only of ", "mlx_lm.server"]),
        (["replay", "tape.jsonl", "--speed", "-1"], ["-1"]),
        (["replay", "tape.jsonl", "--speed", "nan"], ["nan"]),
        (
            ["replay", "empty", "--on-miss", "record", "--upstream", "http://x", "--host", "0.0.0.0"],
            ["--allow-remote"],
        ),
        (["replay", "tape.jsonl", "--speed", "1e-300"], ["1e-300", "0.5"]),
        (["replay", "tape.jsonl", "--max-gap", "soon"], ["'soon' is no duration"]),
        (["replay", "tape.jsonl", "--on-miss", "ask"], ["ask"]),
        (["check"], ["PATH"]),
        (["check", "nowhere"], ["nowhere does not exist"]),
        (["nonsense"], ["nonsense"]),
    ],
)
def test_usage_errors(args: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    write(tmp_path / "tape.jsonl", request(), *plain("one"))
    finished = run(*args)
    assert (finished.exit_code, finished.stdout) == (2, "")
    one_line(finished, *words)


def test_a_bad_cassette_is_one_line_and_exit_1(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"mockllm":2,"request":{}}')
    finished = cli("replay", path, "--port", "0")
    assert (finished.status, finished.stdout) == (1, "")
    one_line(finished, f"mockllm: {path}:1: found format version 2; expected version 1")


@pytest.mark.parametrize(
    "args", [["--version"], ["--help"], ["record", "-h"], ["replay", "--help"], ["check", "--help"]]
)
def test_help(args: list[str]) -> None:
    finished = run(*args)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert "mockllm" in finished.stdout


def test_nothing_is_shipped_in_a_broken_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "shipped", lambda: tmp_path / "nowhere")
    one_line(run("replay"), "only of none")


@pytest.mark.parametrize(
    ("text", "us"), [("0s", 0), ("250us", 250), ("250ms", 250_000), ("1.5s", 1_500_000), ("2m", 120_000_000)]
)
def test_durations(text: str, us: int) -> None:
    assert Duration().convert(text, None, None) == us


@pytest.mark.parametrize("text", ["", "5", "s", "1h", "-1s", "1e3s", "1,5s", "1 s", "\u0661s", "infs"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_an_ending_is_described_in_words() -> None:
    from mockllm.record import describe
    from mockllm.relay import Verdict

    described: dict[End, str] = {end: describe(Verdict(end, 0)) for end in End}
    assert len(set(described.values())) == len(End)
    assert all(text.startswith(end.value) for end, text in described.items())
    warned: Callable[[str], bool] = lambda text: "WARNING" in text  # noqa: E731
    assert {end for end, text in described.items() if warned(text)} == {End.FIN, End.RST, End.HANG}


@pytest.mark.parametrize("command", ["record", "replay"])
def test_clients_are_served_on_when_nobody_reads_what_is_said(command: str, tmp_path: Path, launch: Launch) -> None:
    """`mockllm replay tapes 2>&1 | head -1`"""
    path = write(tmp_path / "tapes" / "a.jsonl", request("/", "GET"), *plain("one"))
    with RawServer(lambda _: [Send(plain_wire("one"))]) as server:
        args = ["replay", str(path)] if command == "replay" else ["record", server.url, "-o", str(tmp_path / "new")]
        words = [sys.executable, "-m", "mockllm", *args, "--port", "0"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout
            port = int(process.stdout.readline().rpartition(":")[2])
            process.stdout.close()
            for _ in range(3):
                assert ask("127.0.0.1", port, get("/"), answer_end).wire == plain_wire("one")
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0


def test_check_says_what_was_dropped_and_what_holds_nothing(tmp_path: Path) -> None:
    write(tmp_path / "torn.jsonl", request(json=1), head(version="1.0")).open("a").write('[0,"da')
    (tmp_path / "empty.jsonl").write_text("")
    finished = cli("check", tmp_path)
    assert finished.status == 0
    assert finished.stdout == "1 exchange in 2 files: all readable\n"
    assert f"mockllm: {tmp_path}/torn.jsonl:3: dropped an unfinished last line" in finished.stderr
    assert f"mockllm: {tmp_path}/empty.jsonl: holds no recording" in finished.stderr


def test_check_finds_what_looks_like_a_credential(tmp_path: Path) -> None:
    write(
        tmp_path / "a.jsonl",
        request(json=1, headers=[["Authorization", "Bearer sk-0123456789abcdef0123"]]),
        *plain("one"),
    )
    finished = cli("check", tmp_path)
    assert finished.status == 5
    assert "exchange 1: request header Authorization" in finished.stderr
    assert "sk-0123456789abcdef0123" not in finished.stderr


def test_an_output_that_takes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    command = [sys.executable, "-m", "mockllm", "check", str(tmp_path)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert done.stderr == "mockllm: cannot write the output: no space left on device\n"


def test_a_recording_that_cannot_be_read_is_a_failure_in_the_end(tmp_path: Path, launch: Launch) -> None:
    write(
        tmp_path / "a.jsonl",
        request("/x", json=1),
        head(Content_Length="3"),
        [0, "data", "four"],
        [0, "end", "complete"],
    )
    replay = launch("replay", tmp_path)
    assert b" 500 " in ask(replay.host, replay.port, post("/x", b"1"), answer_end).wire
    finished = replay.stop()
    assert finished.status == 1
    assert finished.stderr.endswith("mockllm: 1 request met a recording that cannot be read\n")


def test_the_commands_for_people(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", request(json=1), *plain("one"))
    assert "POST" in cli("show", tmp_path / "a.jsonl").stdout
    assert json.loads(cli("show", "--json", tmp_path).stdout)["status"] == 200
    done = cli("import", "-", "-o", tmp_path / "bug.jsonl", input="data: 1\n\ndata: [DONE]\n\n")
    assert done.status == 0
    assert done.stderr.splitlines()[-1] == f"mockllm: a raw response: 1 exchange written to {tmp_path}/bug.jsonl"
    assert cli("check", tmp_path / "bug.jsonl").status == 0
    wrong = cli("import", "-", "-o", tmp_path / "no.jsonl", input="")
    assert (wrong.status, wrong.stderr.count("\n")) == (1, 1)
