"""Leases that divide work among processes and machines sharing a results folder.

A lease is a file in `leases/` of the results folder, named after the work. Its holder touches it while it
works. A lease expires if it was not touched for LIFETIME seconds, or if its process ran here and has ended;
the work of a killed process then goes to the next process that claims it. Files are created and taken over
under one lock. Their age is measured by the clock that stamps them, which may be a file server's.
"""

import json
import os
import platform
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil

from fedsub.benchmark.execution.engines.base import RunCell
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.records.search import kept
from fedsub.benchmark.records.store import explained_to_user
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.schema import parse_line
from fedsub.datasets.errors import UserError
from fedsub.datasets.lock import locked

LIFETIME = 120.0
"""Seconds without a touch after which a lease expires."""
HEARTBEAT = 15.0
"""Seconds between touches."""
SUBMITTER = "submitter"
"""Name in a job's lease of the holder from which the job took it over."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS = Path("/proc/self/ns/pid")


class Leases:
    """The leases of this process on a results folder; a context manager that releases all at its end."""

    def __init__(self, results: Path) -> None:
        self._folder = results / "leases"
        self._lock = self._folder / ".lock"
        self._held: set[str] = set()
        self._ended = threading.Event()
        self._touching = threading.Thread(target=self._touch, daemon=True)

    def __enter__(self) -> Self:
        with explained_to_user("write", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._touching.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._touching.join()
        for work in [*self._held]:
            self.give_back(work)

    def claim(self, work: str, of: Mapping[str, Any] | None = None) -> bool:
        """Take the lease on `work`, a valid file name; False if another process holds it.

        A lease is taken over from `of`, a `holder()`, and from a job that took it over from there: a job that
        is submitted again follows one that was lost. Raises StoreError if the folder cannot be written.
        """
        path = self._path(work)
        with explained_to_user("write", path), locked(self._lock):
            found = _read(path)
            follows = of is not None and of in (found, found.get(SUBMITTER))
            if path.exists() and not follows and not self._has_run_out(path, found):
                return False
            # A file made anew follows no symbolic link, whose target would be overwritten.
            path.unlink(missing_ok=True)
            try:
                with path.open("x", encoding="utf-8") as file:
                    json.dump(holder() if of is None else {**holder(), SUBMITTER: of}, file)
            except OSError:
                # On a full disk it stays empty, and would hold the work until it expires.
                path.unlink(missing_ok=True)
                raise
        self._held.add(work)
        return True

    def give_back(self, work: str) -> None:
        """Release the lease if this process holds it."""
        if work not in self._held:
            return
        self._held.remove(work)
        with suppress(OSError), locked(self._lock):
            path = self._path(work)
            # If this process slept too long, another one may have taken the lease over.
            if _read(path).items() >= holder().items():
                path.unlink()

    def _path(self, work: str) -> Path:
        return self._folder / f"{work}.lease"

    def _has_run_out(self, path: Path, held_by: dict[str, Any]) -> bool:
        """Whether a lease with this content has expired; call it under the lock."""
        if held_by.get("machine") == _machine() and not _lives(held_by):
            return True
        now = self._folder / ".now"
        now.touch()
        # The absolute value expires stamps in the future too: a clock was wrong.
        return abs(now.stat().st_mtime - path.lstat().st_mtime) > LIFETIME

    def _touch(self) -> None:
        while not self._ended.wait(HEARTBEAT):
            for work in [*self._held]:
                with suppress(OSError):
                    os.utime(self._path(work), follow_symlinks=False)


def leased(work: RunCell, results: Path, submitter: Mapping[str, Any], cell: Cell) -> Record:
    """Run a cell in a job that may outlive the process that submitted it, whose `holder()` is `submitter`.

    The job takes over the submitter's lease, so that no other process runs the cell. It stores a success.
    `results` is absolute, since a job may start elsewhere. Raises UserError if another process has begun the
    cell meanwhile.
    """
    with Leases(results) as leases:
        if not leases.claim(cell.key, submitter):
            raise UserError("another process is running this cell: repeat the command later")
        record = work(cell)
        # If it cannot be stored here, the submitter reports that.
        with suppress(UserError):
            if record.status == OK:
                Records(results).append(kept(record))
        return record


def holder() -> dict[str, Any]:
    """Return what identifies this process in a lease."""
    return {"machine": _machine(), "process": os.getpid(), "started": _started(os.getpid())}


@cache
def _machine() -> str:
    """Return the identity of the machine or container within which process ids are unique."""
    parts = [platform.node()]
    # Systems other than Linux have only the name.
    with suppress(OSError):
        parts += [_BOOT.read_text().strip(), os.readlink(_NUMBERS)]
    return " ".join(parts)


def _started(process: int) -> float:
    """Return a process's start time in seconds, on Linux since boot: other times of a process change when the
    clock is set. Raises psutil.Error if there is no such process."""
    boot = psutil.boot_time() if psutil.LINUX else 0.0
    return round(psutil.Process(process).create_time() - boot, 2)


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_line(path.read_bytes()) or {}
    except OSError:
        return {}


def _lives(holder: dict[str, Any]) -> bool:
    """Whether the process that wrote `holder` still runs; its start time is compared, as ids are reused."""
    try:
        return bool(_started(int(holder["process"])) == holder["started"])
    except (KeyError, TypeError, ValueError, OverflowError, psutil.Error):
        return False
