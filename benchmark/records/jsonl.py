"""An append-only file of JSON lines, safe against crashes and concurrent writers.

Lines are written and synced under a lock. A process killed in mid-line leaves a torn tail, which the next
writer removes: only the lines being written at that time can be lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.lock import locked

_REMEMBERED = 2**15
"""Bytes kept from before the read position, more than a line has. They show whether a file grew or was
replaced."""


class JsonLines:
    """One file; every complete line is passed to `take` once, in order.

    `take` gets each line that is not blank and returns whether it could use it. `forget` is called before a
    cut or replaced file is read again from its start. Operations raise OSError as the file system does.
    """

    def __init__(
        self, path: Path, take: Callable[[bytes], bool], forget: Callable[[], None] = lambda: None
    ) -> None:
        self.path = path
        self.unreadable: list[int] = []
        """Numbers of the complete lines that `take` could not use; they stay in the file and are skipped."""
        self.line = 0
        """Number, from 1, of the line that was passed to `take` last."""
        self._complete = 0
        """Number of complete lines read."""
        self._take = take
        self._forget = forget
        self._read_to = 0
        self._before = b""
        """The last bytes read, up to `_read_to`; at most `_REMEMBERED`."""
        self._identity: tuple[int, int] | None = None

    def refresh(self) -> None:
        """Read what was written since the last read; a missing file is not created."""
        if self.path.parent.is_dir() and self.path.exists():
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                self._refresh(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def locked(self) -> Iterator[Callable[[Iterable[str]], None]]:
        """Lock the file and read it to its end; yields the function that appends lines.

        The function writes all lines at once and syncs them; if that fails, the file is unchanged.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(Path(f"{self.path}.lock")):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                _repair_tail(descriptor)
                self._refresh(descriptor)
                yield lambda lines: self._append(descriptor, lines)
            finally:
                os.close(descriptor)

    def _append(self, descriptor: int, lines: Iterable[str]) -> None:
        end = os.fstat(descriptor).st_size
        try:
            _write(descriptor, "".join(f"{line}\n" for line in lines).encode())
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
        self._refresh(descriptor)

    def _refresh(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        size, identity = found.st_size, (found.st_dev, found.st_ino)
        # A new file may reuse the inode of the file that it replaced, so the bytes are compared too.
        before = _read(descriptor, self._read_to - len(self._before), self._read_to)
        if identity != self._identity or before != self._before:
            if self._identity is not None:
                self._forget()
            self._identity, self._before = identity, b""
            self._read_to = self._complete = 0
            self.unreadable = []
        # The tail may be torn, or another process may still be writing it.
        content = _read(descriptor, self._read_to, size)
        *complete, tail = content.split(b"\n")
        self._read_to += len(content) - len(tail)
        content = content[-_REMEMBERED - len(tail) : len(content) - len(tail)]
        self._before = (self._before + content)[-_REMEMBERED:]
        for number, line in enumerate(complete, self._complete + 1):
            self.line = number
            if line.strip() and not self._take(line):
                self.unreadable.append(number)
        self._complete += len(complete)
        if parse_line(tail) is not None:
            # A line without its line end is already valid; it is read again once the line end is there.
            self.line = self._complete + 1
            self._take(tail)


def _repair_tail(descriptor: int) -> None:
    """Add the line end to a last line that lacks only that; remove a torn last line."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    content = _read(descriptor, 0, size)
    tail = content[content.rfind(b"\n") + 1 :]
    if parse_line(tail) is None:
        os.ftruncate(descriptor, size - len(tail))
    else:
        _write(descriptor, b"\n")


def _read(descriptor: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
