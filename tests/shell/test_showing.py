"""What `mockllm show` prints: a line an exchange, a page for one, objects for programs; and never a raw control."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm import files
from mockllm.core.errors import CassetteError, UsageError
from mockllm.core.tape import dump
from mockllm.showing import WIDTH, _cells, _fitted, _shared, show
from tests import captures
from tests.core.oddity_cases import DONE, HEL, STOP, answer, chunk, delta, stream
from tests.core.test_oddities import captured
from tests.shell.tapes import LAST as LAST_LINE
from tests.shell.tapes import head, plain, request, write

PAGE = """\
POST /v1/chat/completions
{file}:3
200, HTTP/1.0, until the close, text/event-stream
4 events, 804 bytes in 6 reads, first event after 302.5 ms, 60 events/s, 352.9 ms, complete

     time       gap   bytes                    what came
   2.5 ms    2.5 ms     248  ██                HTTP/1.0 200 OK
 152.5 ms  150.0 ms      19  █████████         : keepalive 19/33
 272.5 ms  120.0 ms      19  █████████         : keepalive 33/33
 302.5 ms   30.0 ms     255  ██████            "Vous pouvez"
 327.5 ms   25.0 ms     261  ██████            " noter les faits."
 352.5 ms   25.0 ms     250  ██████            usage 3000/5 [DONE]
 352.9 ms    400 µs                            complete, then closed

text    Vous pouvez noter les faits.
usage   {{"prompt_tokens": 3000, "completion_tokens": 5, "total_tokens": 3005}}
odd     HTTP/1.0, not 1.1
        1 read with several events (2 at most)
        2 comments, such as ": keepalive 19/33"
        no reason why the text stops (finish_reason)
        choices is empty in 1 event (with usage)
        the role is in 2 deltas"""


def shown(*paths: Path, as_json: bool = False) -> str:
    said: list[str] = []
    text = show(paths, said.append, as_json=as_json)
    assert said == []
    return text


def objects(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(*paths, as_json=True).splitlines()]


def cassette(path: Path, *exchanges: Any) -> Path:
    path.write_bytes(b"".join(map(dump, exchanges)))
    return path


def test_the_page_of_the_stream_that_started_it_all() -> None:
    file = files.shipped() / "quirks" / "keepalive-19-33.jsonl"
    page = shown(file).replace(str(file), "FILE")[:10_000]
    assert page == PAGE.format(file="FILE")


def test_a_line_an_exchange(tmp_path: Path) -> None:
    one = cassette(tmp_path / "000001-post-chat.jsonl", stream(HEL, STOP, DONE))
    two = write(tmp_path / "b.jsonl", request(method="GET"), *plain("hi", at=1), request("/y"), [0, "end", "rst"])
    assert shown(one, two).splitlines() == [
        "file             method path                 status events bytes   ttft ev/s duration end",
        "000001-post-chat POST   /v1/chat/completions    200      3   174 2.0 ms 1000   4.0 ms complete",
        "b:1              GET    /x                      200      0     2 1.0 ms    -   1.0 ms complete",
        "b:5              POST   /y                        -      0     0      -    -     0 µs rst",
    ]


@pytest.mark.parametrize("folder", sorted(path.name for path in files.shipped().iterdir() if path.is_dir()))
def test_shipped_cassettes_fit(folder: str) -> None:
    table = shown(files.shipped() / folder).splitlines()
    paths = sorted((files.shipped() / folder).glob("*.jsonl"))
    assert len(table) == 1 + sum(len(files.read_all(path)) for path in paths)
    for line in [*table, *(line for path in paths[:4] for line in shown(path).splitlines())]:
        assert _cells(line) <= WIDTH, line
        assert line.isprintable(), line


def test_long_names_and_paths_are_cut_where_it_hurts_least(tmp_path: Path) -> None:
    name = "000017-post-" + "very-" * 12 + "end.jsonl"
    path = write(tmp_path / name, request("/v1/" + "x" * 70 + "/chat"), *plain("hi"), request(), *plain("hi"))
    first = shown(path).splitlines()[1]
    assert _cells(first) == WIDTH
    assert first.startswith("000017-post-very")
    assert "…nd:1 POST" in first
    assert "/chat " in first
    assert " …xx" in first


def test_objects_have_all_keys(tmp_path: Path) -> None:
    file = cassette(tmp_path / "a.jsonl", stream(HEL, STOP, last=b""), answer())
    keys = (
        "file line method target status http content_type framing events bytes reads ttft_us events_per_s duration_us"
    )
    first, nothing = objects(file)
    assert list(first) == list(nothing) == [*keys.split(), "end", "then", "text", "usage", "odd", "timeline"]
    assert {key: first[key] for key in ("file", "line", "method", "target", "status", "http")} == {
        "file": str(file),
        "line": 1,
        "method": "POST",
        "target": "/v1/chat/completions",
        "status": 200,
        "http": "1.1",
    }
    assert (first["content_type"], first["framing"], first["end"], first["then"]) == (
        "text/event-stream",
        "chunked",
        "fin",
        None,
    )
    assert (first["events"], first["reads"], first["text"], first["usage"]) == (2, 3, "Hel", None)
    assert (first["ttft_us"], first["events_per_s"], first["duration_us"]) == (2000, 1000.0, 3000)
    assert first["odd"] == ["cut: the server closed early, no last chunk", "no [DONE] at the end"]
    assert first["timeline"][1] == {"at_us": 2000, "gap_us": 1000, "bytes": len(chunk(HEL)), "text": '"Hel"'}
    assert (nothing["status"], nothing["framing"], nothing["ttft_us"], nothing["line"]) == (None, None, None, 6)
    [complete] = objects(cassette(tmp_path / "b.jsonl", stream(HEL, STOP, DONE)))
    assert (complete["end"], complete["then"]) == ("complete", "open")


def test_one_exchange_of_a_file_by_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", "# one", request("/1"), *plain("hi"), "# two", request("/2"), *plain("hi"))
    for line, target in ((1, "/1"), (2, "/1"), (5, "/1"), (6, "/2"), (7, "/2"), (99, "/2")):
        assert shown(Path(f"{file}:{line}")).startswith(f"POST {target}\n"), line
    assert len(objects(file, Path(f"{file}:7"))) == 3
    odd_name = write(tmp_path / "b:7", request("/3"), *plain("hi"))
    assert shown(odd_name).startswith("POST /3\n")
    with pytest.raises(UsageError, match=r"missing does not exist"):
        shown(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"missing does not exist"):
        shown(tmp_path / "missing:7")


def test_cassettes_without_an_exchange_and_bad_ones(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.jsonl", "# nothing")
    said: list[str] = []
    assert show([empty, Path(f"{empty}:1")], said.append) == "no exchanges"
    assert show([empty], said.append, as_json=True) == ""
    assert said == [f"{empty}: holds no recording"] * 3
    bad = write(tmp_path / "bad.jsonl", request(), [0, "data", "x"], [0, "end", "complete"])
    with pytest.raises(CassetteError, match=r"bad\.jsonl:2: "):
        shown(bad)


def test_controls_are_escaped_everywhere(tmp_path: Path) -> None:
    evil = "\x1b[31m\u202e\x07"
    file = write(
        tmp_path / "a.jsonl",
        request("/" + evil),
        head(Transfer_Encoding="chunked", Content_Type="text/event-stream;" + evil, X_A=evil),
        [1, "data", ": " + evil + "\n\n"],
        [1, "data", delta(evil).decode()],
        [1, "data", delta(None, evil).decode()],
        [1, "data", "data: " + json.dumps({"error": {"message": evil}, "usage": {evil: 1}}) + "\n\n"],
        [1, "data", "event: " + evil + "\ndata: " + evil + "\n\n"],
        LAST_LINE,
        [0, "end", "complete"],
    )
    page = shown(file)
    assert "\\u001b[31m\\u202e" in page
    assert all(line.isprintable() for line in page.split("\n"))
    two = shown(file, write(tmp_path / "b.jsonl", request("/" + evil), *plain("hi")))
    assert all(line.isprintable() for line in two.split("\n"))
    assert shown(file, as_json=True).isascii()


def test_what_has_no_text_has_no_empty_lines_for_it(tmp_path: Path) -> None:
    page = shown(cassette(tmp_path / "a.jsonl", answer(b"HTTP/1.1 204 No Content\r\n\r\n"))).splitlines()
    assert page[2:] == [
        "204, HTTP/1.1, no body",
        "0 events, 0 bytes in 1 read, 1.0 ms, complete",
        "",
        "     time       gap   bytes                    what came",
        "   1.0 ms    1.0 ms      27  █                 HTTP/1.1 204 No Content",
        "   1.0 ms      0 µs                            complete",
    ]
    assert shown(cassette(tmp_path / "b.jsonl", answer())).splitlines()[2] == "no head"


def test_a_long_text_is_wrapped_and_rows_are_cut(tmp_path: Path) -> None:
    words = "mot " * 60
    page = shown(cassette(tmp_path / "a.jsonl", stream(delta(words), delta("漢字" * 60), STOP, DONE)))
    assert all(_cells(line) <= WIDTH for line in page.splitlines())
    assert sum("mot mot mot" in line for line in page.splitlines()) == 4  # one row, three lines of text
    assert sum(line.endswith("…") for line in page.splitlines()) >= 2


@pytest.mark.parametrize("capture", captures.captures(), ids=str)
def test_every_capture_fits(capture: captures.Capture, tmp_path: Path) -> None:
    page = shown(cassette(tmp_path / "a.jsonl", captured(capture.server, capture.name)))
    assert all(_cells(line) <= WIDTH and line.isprintable() for line in page.split("\n"))


@given(st.text("ab漢\u0301é", max_size=30), st.integers(2, 20), st.data())
def test_cut_texts_fit(text: str, width: int, data: st.DataObject) -> None:
    tail = data.draw(st.integers(0, width - 1))
    found = _fitted(text, width, tail)
    assert _cells(found) <= width
    assert (found == text) == (_cells(text) <= width) or "…" in found


@given(st.integers(0, 80), st.integers(0, 80), st.integers(2, 80))
def test_columns_share_what_room_there_is(one: int, other: int, room: int) -> None:
    first, second = _shared(one, other, room)
    assert 0 <= first <= one
    assert 0 <= second <= other
    assert first + second == min(one + other, room)
