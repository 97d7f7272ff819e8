"""Log files of failed cells: the worker's output and the traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fedsub.benchmark.execution.engines.base import RunCell
from fedsub.benchmark.records.record import FAILED, OK, Failure, Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.lock import open_unlinked


def log_path(results: Path, key: str) -> Path:
    """Return the path of a cell's log in the results folder."""
    return results / "logs" / f"{key}.log"


def logged(work: RunCell, results: Path, cell: Cell) -> Record:
    """Run a cell in a worker process whose standard output and error go to the cell's log; its record is
    returned even if the log cannot be written. `results` is absolute, since a worker may start elsewhere."""
    path = log_path(results, cell.key)
    record: Record | None = None
    try:
        with _begun(path, cell) as log:
            with _output_to(log):
                record = work(cell)
            _tell_failure(log, record)
    except OSError:
        # `attempt`, the usual `work`, raises none. Without a record the log could not be begun.
        if record is None:
            record = work(cell)
    if record.status == OK:
        with suppress(OSError):
            path.unlink()
    return record


def keep_log(results: Path, record: Record) -> None:
    """Write the log of a failed cell of this process, whose output went to the terminal; remove the log of an
    earlier failure after a success."""
    path = log_path(results, record.cell.key)
    with suppress(OSError):
        if record.status == OK:
            path.unlink(missing_ok=True)
        elif record.status == FAILED:
            with _begun(path, record.cell) as log:
                _tell_failure(log, record)


@contextmanager
def _begun(path: Path, cell: Cell) -> Iterator[TextIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="backslashreplace", opener=open_unlinked) as log:
        log.write(f"{cell.title}\n")
        log.flush()
        yield log


def _tell_failure(log: TextIO, record: Record) -> None:
    if isinstance(record.outcome, Failure):
        log.write(f"{(record.outcome.traceback or str(record.error)).rstrip()}\n")


@contextmanager
def _output_to(log: TextIO) -> Iterator[None]:
    """Redirect output to the log, including output of C libraries and killed processes."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
