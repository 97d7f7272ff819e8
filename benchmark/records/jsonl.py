"""An append-only file of JSON lines, safe against crashes and concurrent writers.

Lines are written and synced under a lock. A process killed in mid-line leaves a torn tail, which the next
writer removes: only the lines being written at that time can be lost. `pack` moves the lines into a gzip file
beside it, `FILE.gz`, whose lines are read first.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path

from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.files import write_atomically
from fedsub.datasets.lock import locked

_REMEMBERED = 2**15
"""Bytes kept from before the read position, more than a line has. They show whether a file grew or was
replaced."""

LARGEST = 2**30
"""Bytes of the largest file that is read as a whole: a packed one may come from a stranger's bundle."""


class JsonLines:
    """One file; every complete line is passed to `take` once, in order.

    `take` gets each line that is not blank and returns whether it could use it. `forget` is called before a
    new, cut or replaced file is read from its start. Operations raise OSError as the file system does.
    """

    def __init__(self, path: Path, take: Callable[[bytes], bool], forget: Callable[[], None]) -> None:
        self.path = path
        self.packed = path.with_name(f"{path.name}.gz")
        self.unreadable: list[int] = []
        """Numbers of the complete lines that `take` could not use; they stay in the file and are skipped."""
        self.line = 0
        """Number, from 1 and packed lines first, of the line that was read last."""
        self._take = take
        self._forget = forget
        self._read_to = 0
        self._before = b""
        """The last bytes read, up to `_read_to`; at most `_REMEMBERED`."""
        self._files: tuple[int, ...] = ()
        """Identity of the file and of the packed one that were read."""

    def refresh(self) -> None:
        """Read what was written since the last read; a missing file is not created."""
        try:
            stream = FileIO(self.path)
        except (FileNotFoundError, NotADirectoryError):
            stream = FileIO(os.devnull)
        with stream:
            self._refresh(stream)

    @contextmanager
    def locked(self) -> Iterator[Callable[[Iterable[str]], None]]:
        """Lock the file and read it to its end; yields the function that appends lines.

        The function writes all lines at once and syncs them; if that fails, the file is unchanged.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(Path(f"{self.path}.lock")), FileIO(self.path, "a+") as stream:
            tail = self._refresh(stream)
            if parse_line(tail) is not None:
                # It lacks only its line end.
                self._append(stream, [""])
            elif tail:
                stream.truncate(self._read_to)
            yield partial(self._append, stream)

    def pack(self) -> None:
        """Move all lines into the packed file, under the lock. No process may append meanwhile."""
        if lines := read_lines(self.path):
            # A process killed before the last step has left the lines in both files: the later ones count.
            every = dict.fromkeys(reversed([*read_lines(self.packed), *lines]))
            write_lines(self.packed, reversed(every))
        self.path.unlink()

    def _append(self, stream: FileIO, lines: Iterable[str]) -> None:
        end = stream.seek(0, os.SEEK_END)
        try:
            _write(stream.fileno(), "".join(f"{line}\n" for line in lines).encode())
            os.fsync(stream.fileno())
        except OSError:
            stream.truncate(end)
            raise
        self._refresh(stream)

    def _refresh(self, stream: FileIO) -> bytes:
        """Read what was written since the last read; returns what follows the last line end."""
        found = os.fstat(stream.fileno())
        files = (found.st_dev, found.st_ino, *state_of(self.packed))
        # A new file may reuse the inode of the file that it replaced, so the bytes are compared too.
        stream.seek(self._read_to - len(self._before))
        before = stream.read(len(self._before))
        if (files, before) != (self._files, self._before):
            self._forget()
            self._files, self._before = files, b""
            self._read_to = self.line = 0
            self.unreadable = []
            self._feed(read_lines(self.packed))
        # The tail may be torn, or another process may still be writing it.
        stream.seek(self._read_to)
        content = stream.readall()
        *complete, tail = content.split(b"\n")
        self._read_to += len(content) - len(tail)
        content = content[-_REMEMBERED - len(tail) : len(content) - len(tail)]
        self._before = (self._before + content)[-_REMEMBERED:]
        self._feed(complete)
        if parse_line(tail) is not None:
            # A line without its line end is already valid; it is read again once the line end is there.
            self.line += 1
            self._take(tail)
            self.line -= 1
        return tail

    def _feed(self, lines: list[bytes]) -> None:
        for line in lines:
            self.line += 1
            if line.strip() and not self._take(line):
                self.unreadable.append(self.line)


def read_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file, packed or not; none if it is missing. Raises OSError."""
    if not path.exists():
        return []
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
        if path.suffix == ".gz" and not path.stat().st_size:
            raise EOFError("it is empty")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OSError(f"{path} is damaged ({error}): get it again from a backup") from error
    if len(content) > LARGEST:
        raise OSError(f"{path} unpacks to more than {LARGEST / 2**30:g} GiB: split it")
    *lines, tail = content.split(b"\n")
    return lines if parse_line(tail) is None else [*lines, tail]


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file of lines atomically, packed if its name ends in .gz."""
    content = b"".join(line + b"\n" for line in lines)
    write_atomically(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def state_of(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced; empty if it is missing."""
    found = path.stat() if path.exists() else None
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
