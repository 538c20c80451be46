"""The only module that opens cassette files: new tapes to write, folders of them to play.

It knows where bytes lie on a disk; what they mean is core's.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mockllm.core import cassette
from mockllm.core.cassette import Place
from mockllm.core.errors import CassetteError, MockllmError, UsageError
from mockllm.core.exchange import Exchange, Request

SUFFIX = ".jsonl"

SETTLED_NS = 2_000_000_000
"""File systems' clocks are coarse: until a change is so old, another may follow with the same time (ns)."""
MAX_STEM = 80
"""A tape's name is at most so long, without its suffix (characters)."""

Stamp = tuple[int, int]
"""What changes when a file does: time of modification (ns) and size (bytes)."""


class TapeFile:
    """One new cassette file. What fails never raises: `failed` is told once, and the file keeps whole lines."""

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        self.path = path
        self._failed = failed
        self._broken = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o600)
        self._size = 0

    def write(self, lines: bytes) -> None:
        """Append whole lines, in one write call where the system takes them in one."""
        if self._broken:
            return
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            self._size += len(lines)
        except OSError as error:
            self._fail(error)
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)

    def clear(self) -> None:
        """Take back all that was written."""
        if self._broken:
            return
        try:
            os.ftruncate(self._file, 0)
            self._size = 0
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Some file systems report only here that they could not keep what was written."""
        try:
            os.close(self._file)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._broken:
            self._failed(f"cannot write {self.path}: {_reason(error)}")
        self._broken = True


class LineFile:
    """A file that lines are added to. A write that fails is said once, and nothing is written after it."""

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        """Raises MockllmError where the file cannot be opened."""
        self._path, self._failed = path, failed
        self._broken = False
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise MockllmError(f"cannot write {path}: {_reason(error)}") from None

    def write(self, line: str) -> None:
        """Add a line."""
        if self._broken:
            return
        try:
            rest = memoryview(line.encode() + b"\n")
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._broken = True
            self._failed(f"cannot write {self._path}: {_reason(error)}; it is incomplete")


class Folder:
    """Where a recorder puts its tapes: one file per exchange, numbered on from what is there, never overwriting.

    `unusable` says why the folder cannot be written to, if it cannot. Raises UsageError where the path is a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unusable: str | None = None
        self._last = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._last = max(map(_number, os.listdir(path)), default=0)
            if not os.access(path, os.W_OK | os.X_OK):
                self.unusable = f"cannot write to {path}: permission denied"
        except OSError as error:
            if path.exists() and not path.is_dir():
                raise UsageError(f"{path} is a file; -o takes a folder, which is made if it is not there") from None
            self.unusable = f"cannot write to {path}: {_reason(error)}"

    def reserve(self) -> int:
        """The number of the next exchange."""
        self._last += 1
        return self._last

    def create(self, number: int, name: str, failed: Callable[[str], None]) -> TapeFile | None:
        """A new file `NUMBER-NAME.jsonl`, a later number where another recorder took this one.

        None where it cannot be made: `failed` is told, then or later, what went wrong.
        """
        while True:
            try:
                stem = f"{number:06d}-{name}"[:MAX_STEM].rstrip("-")
                return TapeFile(self.path / f"{stem}{SUFFIX}", failed)
            except FileExistsError:
                number = self.reserve()
            except OSError as error:
                failed(f"cannot write to {self.path}: {_reason(error)}")
                return None


class Nowhere:
    """Where a recorder that keeps nothing puts its tapes."""

    unusable = None

    def reserve(self) -> int:
        """Tapes that are not kept have no number."""
        return 0

    def create(self, _number: int, _name: str, _failed: Callable[[str], None]) -> None:
        """No file."""


def tape_name(method: str, path: bytes) -> str:
    """What an exchange's file is called after its number: `[a-z0-9-]`, at most 73 characters."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{method} {path.decode(errors='ignore')}".lower()).strip("-")
    return words[:73].rstrip("-") or "exchange"


@dataclass(frozen=True, slots=True)
class Recording:
    """An exchange on disk: its file, its place there, its number in it (counted from 0), and the file's stamp."""

    path: Path
    place: Place
    ordinal: int
    stamp: Stamp

    def __str__(self) -> str:
        return f"{self.path}:{self.place.header_line}"


def find(paths: Iterable[Path], *, missing_ok: bool = False) -> list[Path]:
    """The cassette files that paths name: files as they are, folders searched for *.jsonl; sorted, each once.

    Raises UsageError where a path is not there or a folder has none, unless `missing_ok`.
    """
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            inside = [Path(file.path) for file in _entries(path) if file.name.endswith(SUFFIX) and file.is_file()]
            if not inside and not missing_ok:
                raise UsageError(f"no cassettes (*{SUFFIX}) in {path}; make some with: mockllm record URL -o {path}")
            found.update(inside)
        elif path.exists():
            found.add(path)
        elif not missing_ok:
            raise UsageError(f"{path} does not exist")
    return sorted(found)


def folders(paths: Iterable[Path]) -> list[Path]:
    """The paths, and all folders below them."""
    return [
        found for path in paths for found in (path, *(Path(entry.path) for entry in _entries(path) if _is_dir(entry)))
    ]


def changes(paths: Iterable[Path]) -> dict[Path, int]:
    """For each path a number that is another one when a file has come to that folder or gone from it."""
    return {path: _change(path) for path in paths}


def scan(files: Iterable[Path], warn: Callable[[str], None]) -> Iterator[tuple[Recording, Request]]:
    """Every recording in the files, in order, with its request. Nothing of a body is kept.

    Raises CassetteError for a line that starts wrongly and for a header line that cannot be read. `warn` is told of a
    torn last line, and of a file without a recording.
    """
    for path in files:
        data, found = _read(path)
        for ordinal, place in enumerate(_index(path, data, warn)):
            request = cassette.request_at(data, place, str(path))
            yield Recording(path, place, ordinal, found), request


def read(recording: Recording) -> Exchange:
    """Read one recording, as the file is now. Raises CassetteError, or MockllmError where the file is gone."""
    data, place = _part(recording)
    return cassette.load(data, place, str(recording.path))


def read_request(recording: Recording) -> Request:
    """The request of a recording, as the file is now. Raises CassetteError, or MockllmError where the file is gone."""
    data, place = _part(recording)
    return cassette.request_at(data, place, str(recording.path))


def stamp(path: Path) -> Stamp:
    """The file's stamp. Raises MockllmError."""
    try:
        return _stamp(path.stat())
    except OSError as error:
        raise MockllmError(f"cannot read {path}: {_reason(error)}") from None


def read_all(path: Path, warn: Callable[[str], None] = lambda _: None, *, strict: bool = True) -> list[Exchange]:
    """Every exchange of a file; `warn` is told as by `scan`. Raises CassetteError or MockllmError."""
    data, _ = _read(path)
    places = _index(path, data, warn)
    return [cassette.load(data, place, str(path), strict=strict) for place in places]


def _index(path: Path, data: bytes, warn: Callable[[str], None]) -> tuple[Place, ...]:
    index = cassette.index(data, str(path))
    if index.torn is not None:
        warn(f"{path}:{index.torn}: dropped an unfinished last line (the recorder was killed, or the disk was full)")
    elif not index.places:
        warn(f"{path}: holds no recording")
    return index.places


def write_new(path: Path, data: bytes) -> None:
    """Make a cassette file that only its owner can read, and the folders above it.

    Raises MockllmError, also where there is one.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise MockllmError(f"cannot write {path}: {_reason(error)}") from None


def rewrite(path: Path, data: bytes) -> None:
    """Replace a cassette file's content, atomically, its permissions kept. Raises MockllmError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        beside.write_bytes(data)
        beside.chmod(mode)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise MockllmError(f"cannot write {path}: {_reason(error)}") from None


def shipped() -> Path:
    """The folder of cassettes that come with mockllm: inside the package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "cassettes"
    return inside if inside.is_dir() else package.parent / "cassettes"


def shipped_of(server: str) -> Path:
    """The folder of the shipped cassettes of a server. Raises UsageError where there are none."""
    folder = shipped()
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if server not in names:
        raise UsageError(f"no cassettes of {server!r} are shipped, only of {', '.join(names) or 'none'}")
    return folder / server


def _entries(folder: Path | str) -> Iterator["os.DirEntry[str]"]:
    """What is in a folder, and in those below it; nothing where it cannot be listed."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            yield entry
            if _is_dir(entry):
                yield from _entries(entry.path)


def _is_dir(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False)


def _change(path: Path) -> int:
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return 0
    now = time.time_ns()
    return changed if now - changed > SETTLED_NS else now


def _read(path: Path) -> tuple[bytes, Stamp]:
    try:
        with path.open("rb") as file:
            return file.read(), _stamp(os.fstat(file.fileno()))
    except OSError as error:
        raise MockllmError(f"cannot read {path}: {_reason(error)}") from None


def _part(recording: Recording) -> tuple[bytes, Place]:
    """The bytes of one recording, and its place in them; found again where the file was edited since."""
    path, place = recording.path, recording.place
    try:
        with path.open("rb") as file:
            if _stamp(os.fstat(file.fileno())) == recording.stamp:
                file.seek(place.start)
                size = place.stop - place.start
                return file.read(size), replace(place, start=0, stop=size)
    except OSError as error:
        raise MockllmError(f"cannot read {path}: {_reason(error)}") from None
    data, _ = _read(path)
    places = cassette.index(data, str(path)).places
    if recording.ordinal >= len(places):
        expected = f"{recording.ordinal + 1} or more, as when loaded"
        raise CassetteError(str(path), 1, f"{len(places)} exchanges", expected)
    return data, places[recording.ordinal]


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_mtime_ns, found.st_size


def _number(name: str) -> int:
    match = re.match(r"([0-9]{1,9})-", name)
    return int(match[1]) if match else 0


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO).lower()
