"""Where a capture is read from, where its cassette goes, and what is said of it."""

from pathlib import Path

import pytest

from mockllm import files
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.importers import Given
from mockllm.importing import import_capture, said

CAPTURE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def no_stdin() -> bytes:
    raise AssertionError("stdin was read")


def test_from_a_file_to_a_file(tmp_path: Path) -> None:
    capture, output = tmp_path / "capture.txt", tmp_path / "new" / "bug.jsonl"
    capture.write_bytes(CAPTURE)
    imported, path = import_capture(str(capture), output, Given(), no_stdin)
    assert path == output
    [exchange] = files.read_all(output)
    assert exchange == imported.exchanges[0]
    assert exchange.response.wire == CAPTURE
    assert output.stat().st_mode & 0o777 == 0o600
    assert said(imported, path) == [*imported.notes, f"a raw response: 1 exchange written to {output}"]


def test_from_stdin_into_a_folder(tmp_path: Path) -> None:
    imported, path = import_capture("-", tmp_path, Given(path="/x"), lambda: CAPTURE * 2)
    assert path == tmp_path / "imported.jsonl"
    assert [exchange.response.wire for exchange in files.read_all(path)] == [CAPTURE] * 2
    assert said(imported, path)[-1] == f"a raw response: 2 exchanges written to {path}"
    capture = tmp_path / "a.trace"
    capture.write_bytes(CAPTURE)
    assert import_capture(str(capture), tmp_path, Given(), no_stdin)[1] == tmp_path / "a.jsonl"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "bug.jsonl"
    output.write_text("mine")
    with pytest.raises(UsageError, match=r"bug\.jsonl exists; import overwrites nothing, give another -o$"):
        import_capture("-", output, Given(), no_stdin)
    assert output.read_text() == "mine"


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(MockllmError, match=r"^cannot read .*missing: no such file or directory$"):
        import_capture(str(tmp_path / "missing"), tmp_path / "x.jsonl", Given(), no_stdin)
    with pytest.raises(MockllmError, match=r"^stdin: is empty$"):
        import_capture("-", tmp_path / "x.jsonl", Given(), lambda: b"")
    (tmp_path / "file").touch()
    with pytest.raises(MockllmError, match=r"^cannot write .*x\.jsonl: "):
        import_capture("-", tmp_path / "file" / "x.jsonl", Given(), lambda: CAPTURE)
    assert not list(tmp_path.glob("*.jsonl"))
