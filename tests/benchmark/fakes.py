"""Cells and runs that cost nothing; top-level functions, so that worker processes can import them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmark.arguments import parse
from benchmark.cell import Cell
from benchmark.record import Record, Result
from benchmark.runner import failed

CURVE: dict[str, list[float | None]] = {"round": [1, 2], "validation": [40.0, 50.0], "test": [42.0, 51.0]}
COMMIT = "0123456789abcdef"
ENVIRONMENT = {"cpu": "test", "machine": "m", "threads": 1, "torch": "2", "dgl": "1"}


def make_cell(**settings: Any) -> Cell:
    """A cell of a table that does not exist; settings by the names under which they are stored."""
    values: dict[str, Any] = {
        "protocol": "toy",
        "dataset": "cora",
        "partition": "metis",
        "clients": 5,
        "method": "fedavg",
        "seed": 0,
    }
    return Cell.from_dict({**values, **settings})


def make_record(
    cell: Cell,
    accuracy: float | None = 50.0,
    environment: Mapping[str, Any] = ENVIRONMENT,
    commit: str = COMMIT,
    **results: Any,
) -> Record:
    """A success of `cell`; failures come from `benchmark.runner`."""
    values: dict[str, Any] = {
        "metrics": {"accuracy": accuracy},
        "seconds": {"setup": 1.0, "train": 2.0, "evaluate": 1.0},
        "bytes": {"up": 2e6, "down": 1e6, "once": 0.0},
        "curve": CURVE,
    }
    return Record(cell, Result(**{**values, **results}), dict(environment), commit)


def quick_run(cell: Cell) -> Record:
    """A record at once; `seconds` says which process made it."""
    return make_record(cell, 50.0 + cell.seed, extras={"process": os.getpid()})


def slow_run(cell: Cell) -> Record:
    """A record after a fifth of a second."""
    time.sleep(0.2)
    return quick_run(cell)


def logged_run(cell: Cell) -> Record:
    """As `slow_run`; writes down first in the file named by FAKE_LOG which process runs which seed."""
    with open(os.environ["FAKE_LOG"], "a") as file:
        file.write(f"{os.getpid()} {cell.seed}\n")
    return slow_run(cell)


def endless_run(cell: Cell) -> Record:
    """Seed 1 does not end."""
    while cell.seed == 1:
        time.sleep(1)
    return quick_run(cell)


def deadly_run(cell: Cell) -> Record:
    """Seed 1 kills its process as the kernel does when memory runs out."""
    if cell.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return quick_run(cell)


def thread_run(cell: Cell) -> Record:
    """A record that reports the thread limits it ran under."""
    import torch

    threads = {"torch": torch.get_num_threads(), "variable": os.environ.get("OMP_NUM_THREADS")}
    return make_record(cell, extras=threads)


def signal_run(cell: Cell) -> Record:
    """A record that reports whether its process was started without interrupts."""
    held = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return make_record(cell, extras={"held": held})


def failing_run(cell: Cell) -> Record:
    """Seed 1 fails while the file named by FAKE_FAILS exists."""
    if cell.seed == 1 and Path(os.environ["FAKE_FAILS"]).exists():
        return failed(cell, "it was told to fail")
    return quick_run(cell)


if __name__ == "__main__":
    from benchmark.cli import main

    sys.exit(main(parse(sys.argv[2:]), globals()[sys.argv[1]]))
