"""Cells and runs that cost nothing, and the command line with them; top-level functions, so that worker
processes can import them."""

import json
import math
import os
import resource
import signal
import struct
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.records import jsonl
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.jsonl import read_lines
from fedsub.benchmark.records.record import Failure, Record, Result
from fedsub.benchmark.records.store import SHARED
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import versions_of

CURVE: dict[str, list[float | None]] = {"round": [1, 2], "validation": [40.0, 50.0], "test": [42.0, 51.0]}
COMMIT = "0123456789abcdef"
ENVIRONMENT = {"cpu": "test", "machine": "m", "threads": 1, "torch": "2", "dgl": "1"}
METRIC = """
from fedsub.methods.tasks.metrics import Score, metric


@metric(task="node-classification")
def share_right(output, items):
    return Score(items.right(output) / items.count, items.count)
"""
"""The file of a user's metric `share_right`."""


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


def make_cells(count: int) -> list[Cell]:
    """Cells that differ in their seeds, from 0."""
    return [make_cell(seed=seed) for seed in range(count)]


def current_cell(**settings: Any) -> Cell:
    """A cell as the plan makes it now: `make_cell` alone gives those of the first versions."""
    cell = make_cell(**settings)
    return replace(cell, versions=versions_of(cell))


def with_settings(cell: Cell, **settings: Any) -> Cell:
    """The cell with settings replaced, by the names under which they are stored."""
    return Cell.from_dict({**cell.to_dict(), **settings})


def make_record(
    cell: Cell,
    accuracy: float | None = 50.0,
    environment: Mapping[str, Any] = ENVIRONMENT,
    commit: str = COMMIT,
    **results: Any,
) -> Record:
    """A success of `cell`; failures come from `benchmark.execution.runner`."""
    values: dict[str, Any] = {
        "metrics": {"accuracy": accuracy},
        "seconds": {"setup": 1.0, "train": 2.0, "evaluate": 1.0},
        "bytes": {"up": 2e6, "down": 1e6, "once": 0.0},
        "curve": CURVE,
    }
    return Record(cell, Result(**{**values, **results}), dict(environment), commit)


def write_method(path: Path, body: str = "pass", above: str = "") -> Path:
    """A method that extends FedAvg, called as its file; `above` stands over its class."""
    path.write_text(
        "from fedsub.methods.core.base import register\nfrom fedsub.methods.fedavg import FedAvg\n"
        f"{above}\n@register({path.stem!r}, title={path.stem.title()!r}, paper='none')\nclass Own(FedAvg):\n"
        + textwrap.indent(textwrap.dedent(body).strip() + "\n", "    ")
    )
    return path


def failed(cell: Cell, error: str, trace: str | None = None) -> Record:
    """As the runner's, which a process that imports this file would need torch for."""
    return Record(cell, Failure(error, trace), dict(ENVIRONMENT), COMMIT)


def comparable(record: Record) -> dict[str, Any]:
    """What two runs of one cell by one commit have in common."""
    measured = ("seconds", "peak_memory_mb", "core_share", "commit")
    values = {name: value for name, value in record.to_dict().items() if name not in measured}
    curve = {name: value for name, value in values["curve"].items() if name not in measured}
    return {**values, "curve": curve}


def wait_until(happened: Callable[[], object], seconds: float, said: str = "") -> None:
    """Return when something has happened; if it has not after so many seconds, fail and say so."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, said
        time.sleep(0.02)


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


def loud_run(cell: Cell) -> Record:
    """Says something in all the ways there are; seed 1 fails."""
    print("on standard output")
    # Of several warnings with one text, Python says the first alone.
    warnings.warn(f"a warning of seed {cell.seed}", stacklevel=1)
    os.system("echo from a child")
    return failed(cell, "it broke", "Traceback: here") if cell.seed == 1 else quick_run(cell)


def disk_filling_run(cell: Cell) -> Record:
    """From here on its process can write to no file; what it printed waits to be written."""
    print("on standard output", end="")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    return quick_run(cell)


def once_deadly_run(cell: Cell) -> Record:
    """As `deadly_run`, and as one that is refused memory for seed 2, but at the first attempt alone."""
    first = Path(os.environ["FAKE_LOG"] + f"-{cell.seed}")
    if cell.seed in (1, 2) and not first.exists():
        first.touch()
        return deadly_run(cell) if cell.seed == 1 else failed(cell, "MemoryError: no more")
    return quick_run(cell)


def deadly_run(cell: Cell) -> Record:
    """Seed 1 kills its process as the kernel does when memory runs out."""
    if cell.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return quick_run(cell)


def endless_run(cell: Cell) -> Record:
    """As `deadly_run`; seed 2 has no end, and seed 4 ends its process without an error."""
    if cell.seed == 2:
        time.sleep(3600)
    if cell.seed == 4:
        os._exit(0)
    return deadly_run(cell)


def torn_serve(channel: Connection, work: RunCell) -> None:
    """Body of a worker process that is killed when half of its answer is sent."""
    channel.recv()
    channel.send(None)
    os.write(channel.fileno(), struct.pack("!i", 1000) + b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def limits_run(cell: Cell) -> Record:
    """A record of the thread limits under which it ran, and whether interrupts were held."""
    import torch

    held = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    threads = {"torch": torch.get_num_threads(), "variable": os.environ.get("OMP_NUM_THREADS")}
    return make_record(cell, extras={**threads, "held": held})


def append_many(folder: Path, start: Barrier) -> None:
    """Fifty records that another appends too and fifty of its own, every line in two parts with a pause."""
    write = jsonl._write

    def slowly(descriptor: int, data: bytes) -> None:
        write(descriptor, data[:100])
        time.sleep(0.001)
        write(descriptor, data[100:])

    jsonl._write = slowly
    store = Records(folder)
    start.wait(600)
    for seed in range(50):
        store.append(make_record(make_cell(seed=seed)))
        store.append(make_record(make_cell(seed=os.getpid() * 100 + seed)))


def failing_run(cell: Cell) -> Record:
    """Seed 1 fails while the file named by FAKE_FAILS exists."""
    if cell.seed == 1 and Path(os.environ["FAKE_FAILS"]).exists():
        return failed(cell, "it was told to fail")
    return quick_run(cell)


def run(folder: Path, *argv: str, work: RunCell = quick_run) -> int:
    """The exit code of the command line on a results folder; cells run as `work` says."""
    from fedsub.benchmark.cli.commands import main

    return main(parse([*argv, "--results", str(folder)]), work)


def stored(folder: Path, protocol: str = "") -> list[dict[str, Any]]:
    """The records of a results folder as they stand in its files, of all tables or of one."""
    found = []
    for path in sorted(path for end in ("", ".gz") for path in (folder / "runs").glob(f"*.jsonl{end}")):
        shared: dict[str, dict[str, Any]] = {}
        for values in map(json.loads, read_lines(path)):
            if "id" in values:
                shared[values.pop("id")] = values
            else:
                parts = [shared[values[name]] for name in SHARED if name in values]
                seed = int(values["key"].partition("-")[2])
                own = {name: each for part in (*parts, values) for name, each in part.items()}
                found.append({**own, "seed": seed})
    return [values for values in found if protocol in ("", values["protocol"])]


if __name__ == "__main__":
    from fedsub.benchmark.cli.commands import main

    sys.exit(main(parse(sys.argv[2:]), globals()[sys.argv[1]]))


def tuned_run(cell: Cell) -> Record:
    """A record at once, the better, the nearer its learning rate is to 0.02; a second for nine rounds."""
    score = 90.0 - abs(math.log(cell.schedule.learning_rate / 0.02)) + cell.seed % 5
    return make_record(
        cell,
        score - 5,
        seconds={"setup": 0.0, "train": cell.schedule.rounds / 9, "evaluate": 0.0},
        core_share=1.0,
        selected_round=1,
        curve={"round": [1], "validation": [score], "test": [score - 5]},
    )
