"""`mockllm record … --again`: what is sent anew, byte for byte, and what is told of the answers."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mockllm import files
from mockllm.again import Again, Outcome, parse_header, recordings_of, resent
from mockllm.cli import main
from mockllm.core.errors import MockllmError, UpstreamError, UsageError
from mockllm.core.exchange import Request
from mockllm.core.forward import Mount
from mockllm.record import Options
from mockllm.relay import Limits
from mockllm.target import parse_target
from tests.peers.captures import from_capture, load
from tests.peers.client import ask, post
from tests.peers.framing import answer_end
from tests.peers.script import Answers, Fin, Hang, Script, Send
from tests.peers.server import RawServer
from tests.shell.serving import recording, without_proxies
from tests.shell.tapes import head, plain, plain_wire, request, write


def run(*args: str | Path) -> Result:
    """`mockllm record` in this process."""
    with without_proxies():
        return CliRunner().invoke(main, ["record", *map(str, args)])


def again(
    answers: Answers,
    folder: Path,
    *paths: Path,
    given: tuple[tuple[bytes, bytes], ...] = (),
    options: Options | None = None,
    prefix: bytes = b"",
    path: str = "",
) -> tuple[list[Outcome], list[bytes]]:
    """What came of the recordings, and the requests that the server got."""
    with RawServer(answers) as server, without_proxies():
        targets = [parse_target(server.url + path)]
        asking = Again(targets, [Mount(prefix, 0)], files.Folder(folder), options or Options(), given)
        outcomes = list(asking.ask(recordings_of(paths, lambda _: None)))
        return outcomes, server.requests


def ok(_request: bytes) -> Script:
    return [Send(plain_wire("ok"))]


def test_what_a_client_sent_is_sent_again(tmp_path: Path) -> None:
    """Through the recorder first, so that the tape is a real one; its JSON keeps value and order, not spaces."""
    body = b'{"stream":true,"model":"m"}'
    asked = post("/v1/x?a=%20&b", body, "X-Odd:  two ", "authorization: Bearer sk-1", "Accept-Encoding: gzip")
    with RawServer(ok) as server, recording(server.url, tmp_path / "tapes") as recorder:
        ask(recorder.host, recorder.port, asked, answer_end)
        recorder.tapes()
        (first,) = server.requests
    given = ((b"Authorization", b"Bearer sk-2"),)
    outcomes, requests = again(ok, tmp_path / "new", tmp_path / "tapes", given=given)
    assert [(one.unasked, one.drift) for one in outcomes] == [(None, [])]
    (second,) = requests
    host = first.split(b"\r\n")[1]
    assert second.split(b"\r\n")[1].startswith(b"Host: 127.0.0.1:")
    assert second == first.replace(b"authorization: Bearer sk-1", b"Authorization: Bearer sk-2").replace(
        host, second.split(b"\r\n")[1]
    )
    (tape,) = (tmp_path / "new").iterdir()
    assert "sk-2" not in tape.read_text()
    assert "[redacted]" in tape.read_text()


def test_a_header_that_was_given_is_on_no_tape(tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", request("/", "GET"), *plain("ok"))
    outcomes, requests = again(ok, tmp_path / "new", tape, given=((b"X-Own-Auth", b"very-secret-value"),))
    assert outcomes[0].drift == []
    assert b"X-Own-Auth: very-secret-value\r\n" in requests[0]
    assert "very-secret-value" not in next((tmp_path / "new").iterdir()).read_text()


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (request("/?key=[redacted]", "GET"), b"GET / HTTP/1.1\r\nHost: HERE\r\n\r\n"),
        (request("/?a=1&key=[redacted]&b", "GET"), b"GET /?a=1&b HTTP/1.1\r\nHost: HERE\r\n\r\n"),
        (request("/?", "GET"), b"GET /? HTTP/1.1\r\nHost: HERE\r\n\r\n"),
        (
            request("/", "GET", headers=[["Cookie", "[redacted]"], ["host", "there"], ["A", "1"]]),
            b"GET / HTTP/1.1\r\nhost: HERE\r\nA: 1\r\n\r\n",
        ),
        (request(json={"a": 1}), b'POST /x HTTP/1.1\r\nHost: HERE\r\nContent-Length: 7\r\n\r\n{"a":1}'),
        (
            request(text="ab", headers=[["content-length", "77"], ["Host", "x"]]),
            b"POST /x HTTP/1.1\r\ncontent-length: 2\r\nHost: HERE\r\n\r\nab",
        ),
        (
            request(text="ab", headers=[["Transfer-Encoding", "chunked"]]),
            b"POST /x HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        ),
        (
            request(text="", headers=[["Transfer-Encoding", "chunked"]]),
            b"POST /x HTTP/1.1\r\nHost: HERE\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
    ],
)
def test_the_bytes_of_a_request(line: object, sent: bytes, tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", line, *plain("ok"))
    _, (got,) = again(ok, tmp_path / "new", tape)
    place = next(line for line in got.split(b"\r\n") if line.lower().startswith(b"host: "))[6:]
    assert got == sent.replace(b"HERE", place)


def test_given_headers_stand_where_theirs_stood() -> None:
    asked = Request("GET", b"/", ((b"Host", b"x"), (b"A", b"1"), (b"B", b"2"), (b"a", b"3")))
    given = ((b"a", b"4"), (b"A", b"5"), (b"C", b"6"))
    headers = ((b"Host", b"x"), (b"a", b"4"), (b"A", b"5"), (b"B", b"2"), (b"C", b"6"))
    assert resent(asked, given).headers == headers


def test_paths_go_where_a_recorder_would_send_them(tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", request("/mac/v1/x", "GET"), *plain("ok"), request("/y", "GET"), *plain("ok"))
    outcomes, requests = again(ok, tmp_path / "new", tape, prefix=b"/mac", path="/base")
    assert [one.unasked for one in outcomes] == [None, "no upstream is mounted at its path"]
    assert [sent.split(b" ")[1] for sent in requests] == [b"/base/v1/x"]


def test_what_cannot_be_sent_again(tmp_path: Path) -> None:
    cut = [{**request(early=True)}, head(Content_Length="0"), [0, "request", {"text": "a", "cut": True}]]
    tape = write(
        tmp_path / "a.jsonl",
        *[request(body="any"), *plain("ok")],
        *[*cut, [0, "end", "complete"]],
        *[request("/", "CONNECT"), *plain("ok")],
        *[request("/", "GET", headers=[["Upgrade", "websocket"]]), *plain("ok")],
    )
    outcomes, requests = again(ok, tmp_path / "new", tape)
    assert [one.unasked for one in outcomes] == [
        "its body is not on the tape",
        "its body was never finished",
        "it asks for more than an answer",
        "it asks for more than an answer",
    ]
    assert requests == []


def test_the_time_and_the_end_are_taped(tmp_path: Path) -> None:
    """A capture of a real server: its connection is closed after the answer, though it promises to keep it."""
    capture = load("llama-server", "chat-hello")
    tape = files.shipped() / "llama-server" / "chat-hello.jsonl"
    outcomes, _ = again([from_capture(capture)], tmp_path / "new", tape)
    assert outcomes[0].drift == []
    (exchange,) = files.read_all(next((tmp_path / "new").iterdir()))
    assert exchange.response.wire == capture.wire
    assert exchange.response.then.value == "fin"
    assert exchange.response.segments[0].at >= 50_000


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ([Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), Fin()], "ending: was complete, is fin"),
        ([Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), Hang()], "ending: was complete, is hang"),
    ],
)
def test_an_answer_that_is_not_whole(script: Script, line: str, tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", request("/", "GET"), *plain("ok"))
    outcomes, _ = again([script], tmp_path / "new", tape, options=Options(limits=Limits(idle_us=50_000)))
    assert line in outcomes[0].drift


def test_a_tape_that_cannot_be_written(tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", request("/", "GET"), *plain("ok"))
    with RawServer(ok) as server, without_proxies():
        asking = Again([parse_target(server.url)], [Mount(b"", 0)], files.Folder(tmp_path / "new"))
        shutil.rmtree(tmp_path / "new")
        with pytest.raises(MockllmError, match="cannot write to"):
            list(asking.ask(recordings_of([tape], lambda _: None)))


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", request("/", "GET"), *plain("ok"))
    with without_proxies(), pytest.raises(UpstreamError, match="refused"):
        list(
            Again([parse_target("http://127.0.0.1:1")], [Mount(b"", 0)], files.Folder(tmp_path / "new")).ask(
                recordings_of([tape], lambda _: None)
            )
        )


def test_headers_of_the_command_line() -> None:
    assert parse_header("Authorization:Bearer a:b ") == (b"Authorization", b"Bearer a:b")
    for wrong in ("Authorization", ": x", "A B: x", "A: x\r\nB: y", "Ä: x"):
        with pytest.raises(UsageError, match="--header takes a name") as caught:
            parse_header(wrong)
        assert "x" not in str(caught.value).replace("takes", "")


# --- the command


def test_nothing_drifted(tmp_path: Path) -> None:
    write(tmp_path / "tapes" / "a.jsonl", request("/v1/models", "GET"), *plain("ok"))
    with RawServer(ok) as server:
        finished = run(server.url, "--again", tmp_path / "tapes")
    assert (finished.exit_code, finished.stdout) == (
        0,
        f"{tmp_path}/tapes/a.jsonl:1 GET /v1/models: as recorded\n1 exchange, 0 drifted\n",
    )
    assert finished.stderr == "mockllm: asking 1 of 1: GET /v1/models\n"


def test_what_drifted_is_the_exit_status(tmp_path: Path) -> None:
    tape = write(
        tmp_path / "a.jsonl", *[request("/one", "GET"), *plain("ok")], *[request("/two", body="any"), *plain("ok")]
    )
    with RawServer(lambda _: [Send(plain_wire("ok").replace(b"OK\r\n", b"OK\r\nX-New: \x1b\r\n"))]) as server:
        finished = run(server.url, "--again", tape, "--quiet", "-o", tmp_path / "new")
    assert (finished.exit_code, finished.stderr) == (1, "")
    assert finished.stdout.splitlines() == [
        f"{tape}:1 GET /one: drifted",
        '  head: X-New is new: "\\u001b"',
        f"{tape}:5 POST /two: not asked again, its body is not on the tape",
        "2 exchanges, 1 drifted, 1 could not be asked again",
    ]
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_nothing_to_compare_is_no_success(tmp_path: Path) -> None:
    tape = write(tmp_path / "a.jsonl", request("/two", body="any"), *plain("ok"))
    finished = run("http://127.0.0.1:1", "--again", tape)
    assert finished.exit_code == 1
    assert finished.stderr.endswith("mockllm: none of the requests could be sent again, so nothing was compared\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["http://127.0.0.1:1"], "say where the tapes go: -o tapes"),
        (["http://127.0.0.1:1", "-o", "new", "--header", "A: 1"], "--header goes with --again"),
        (["--again", "a.jsonl"], "name the server to record"),
        (["http://127.0.0.1:1", "--again", "nowhere"], "nowhere does not exist"),
        (["http://127.0.0.1:1", "--again", "a.jsonl", "--header", "secret"], "--header takes a name"),
    ],
)
def test_usage(args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", request("/", "GET"), *plain("ok"))
    finished = run(*args)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.stderr.startswith("mockllm: ")
    assert words in finished.stderr
    assert "secret" not in finished.stderr
