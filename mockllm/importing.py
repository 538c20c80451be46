"""`mockllm import`: a capture from a file or stdin becomes a cassette file.

It reads the capture and hands the cassette to `files`; what a capture means is for core's importers.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from mockllm import files
from mockllm.core.errors import MockllmError, UsageError
from mockllm.core.importers import KNOWN_SECRETS, Given, Imported, read_capture
from mockllm.core.redaction import Redaction
from mockllm.core.tape import dump

STDIN = "-"


def import_capture(
    source: str,
    output: Path,
    given: Given,
    read_stdin: Callable[[], bytes],
    redaction: Redaction = KNOWN_SECRETS,
) -> tuple[Imported, Path]:
    """Read the capture `source` (a path, or "-" for what `read_stdin` gives) and write it to a new cassette file.

    That is `output`, or one named after the source in it where it is a folder. Gives what was imported, whose notes
    say what the capture could not tell, and the file. Raises UsageError for options that make no sense and where the
    file is there already, MockllmError for a capture that cannot be read and a file that cannot be written.
    """
    path = output / f"{_stem(source)}{files.SUFFIX}" if output.is_dir() else output
    if path.exists():
        raise UsageError(f"{path} exists; import overwrites nothing, give another -o")
    imported = read_capture(_bytes(source, read_stdin), "stdin" if source == STDIN else source, given, redaction)
    files.write_new(path, b"".join(map(dump, imported.exchanges)))
    return imported, path


def said(imported: Imported, path: Path) -> list[str]:
    """What a person is told of an import, line by line."""
    count = len(imported.exchanges)
    return [*imported.notes, f"{imported.kind}: {count} exchange{'s' * (count != 1)} written to {path}"]


def _stem(source: str) -> str:
    return "imported" if source == STDIN else Path(source).stem


def _bytes(source: str, read_stdin: Callable[[], bytes]) -> bytes:
    if source == STDIN:
        return read_stdin()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise MockllmError(f"cannot read {source}: {os.strerror(error.errno or errno.EIO).lower()}") from None
