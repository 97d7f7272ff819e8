"""Scheduler: claims, runs, stores and reports cells."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle

from fedsub.benchmark.execution import checkpoints
from fedsub.benchmark.execution.artifacts import Saving
from fedsub.benchmark.execution.callbacks import Callback, Round
from fedsub.benchmark.execution.engines import InProcess, ProcessPool, RunCell, SlurmEngine, create_engine
from fedsub.benchmark.execution.engines.base import Wanted
from fedsub.benchmark.execution.engines.process import to_pool
from fedsub.benchmark.execution.flower import loopback
from fedsub.benchmark.execution.leases import Leases, holder, leased
from fedsub.benchmark.execution.logs import keep_log, logged
from fedsub.benchmark.execution.progress import GridProgress, console_for, expected_seconds
from fedsub.benchmark.execution.runner import Hooks, attempt, debugged, ended, failed, users_graphs
from fedsub.benchmark.machine import describe_device
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import FAILED, OK, Record
from fedsub.benchmark.records.search import kept
from fedsub.benchmark.records.store import StoreError, keep_elsewhere
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import UserObjects, user_objects

PAUSE = 1.0
"""Seconds between two passes while other processes hold all cells."""
TELL_AFTER = 10
"""Number of such pauses before a line says which cells are waited for."""


def run_cells(
    request: Request,
    cells: Sequence[Cell],
    records: Records,
    work: RunCell | None,
    objects: UserObjects,
    callbacks: Sequence[Callback],
    until: float,
    inform: Callable[[str], None],
    quiet: bool,
    wanted: Wanted | None,
) -> list[Record]:
    """Run the cells and store their records; returns the records of those that failed.

    The arguments are those of `execute`. `callbacks` are called after every round in this process.
    """
    for device, kernel in dict.fromkeys((cell.device, cell.kernel) for cell in cells):
        if device != "cpu" and not request.is_elsewhere:
            inform(describe_device(device, kernel))
    for line in users_graphs(cells):
        inform(line)
    engine, is_flower = create_engine(request, len(cells), records.peak_memory), request.engine == "flower"
    is_here, results = isinstance(engine, InProcess), request.results.resolve()
    hooks: Hooks = {}
    if request.save:
        hooks["save"] = Saving(results, request.save)
    if request.checkpoint and not is_flower:
        begun = {path.stem for path in checkpoints.path_of(results, "").parent.glob("*.pt")}
        if count := sum(cell.key in begun for cell in cells):
            inform(f"{count} of these cells continue from checkpoints, unless code, data or versions changed")
        if work is None:
            hooks["checkpoint"] = partial(checkpoints.checkpoint_of, results, request.checkpoint)
    console = console_for(sys.stderr.isatty(), stderr=True)
    console.quiet = quiet
    failures: list[Record] = []
    with (
        Leases(request.results) as leases,
        GridProgress(expected_seconds(cells, records), console, wanted is not None) as progress,
    ):
        # A federation's rounds are over when its processes end.
        tells = isinstance(engine, (InProcess, ProcessPool)) and not is_flower and progress.is_seen
        told = [*callbacks, *([progress.round] if tells else [])]
        if told and is_here:
            hooks["callbacks"] = told
        elif told and isinstance(engine, ProcessPool):
            engine, hooks["callbacks"] = replace(engine, on_round=partial(_tell, told)), [to_pool]
        if is_flower:
            hooks["apart"] = loopback.run
        how: Any = work or (debugged if request.pdb else attempt)
        run: Any = partial(how, **hooks)
        if not is_here:
            run = partial(logged, WithObjects(objects, run) if objects else run, results)
        if isinstance(engine, SlurmEngine):
            run = partial(leased, run, results, holder())
        for ready in _passes(cells, records, leases, request.rerun, until, wanted):
            with closing(engine.map(run, ready, failed)) as done:
                for made in done:
                    record = keep(records, made, request)
                    leases.give_back(made.key)
                    progress.finished(record)
                    if record.status == FAILED:
                        failures.append(record)
                    if is_here:
                        keep_log(results, record)
    return failures


def _passes(
    cells: Sequence[Cell], records: Records, leases: Leases, rerun: bool, until: float, wanted: Wanted | None
) -> Iterator[Iterator[Cell]]:
    """Yield passes over the cells that no process is running or has finished, until none is left.

    A pass leaves out the cells that others hold at that time. `rerun` yields finished cells too. No cell is
    yielded after the time `until`, of `time.monotonic`, nor a cell that is not `wanted` when its turn comes.
    """
    waiting = {cell.key: cell for cell in cells}
    before = {key: records.runs(cell) for key, cell in waiting.items()}

    def claimed() -> Iterator[Cell]:
        for cell in [*waiting.values()]:
            if time.monotonic() >= until:
                return
            if leases.claim(cell.key):
                del waiting[cell.key]
                # Another process may have finished it between the plan and the claim.
                records.refresh()
                # A record that another process made since this run began is kept, also a failure.
                is_new = records.runs(cell) > before[cell.key]
                is_left = not is_new and (rerun or not records.done(cell))
                if is_left and (wanted is None or wanted(cell, records)):
                    yield cell
                else:
                    leases.give_back(cell.key)

    left, pauses = 0, 0
    while waiting and time.monotonic() < until:
        if len(waiting) == left:
            # The last pass found none.
            time.sleep(PAUSE)
            pauses += 1
            if pauses == TELL_AFTER:
                first = next(iter(waiting.values())).title
                print(f"waiting for {left} cells that other processes run, such as {first}", file=sys.stderr)
        left = len(waiting)
        yield claimed()


def _tell(callbacks: Sequence[Callback], done: Round) -> Record | None:
    """Call the callbacks with a round of a worker process; returns the record of its cell if one raises."""
    try:
        for callback in callbacks:
            callback(done)
    except Exception as error:
        return ended(done.cell, error)
    return None


@dataclass(frozen=True)
class WithObjects:
    """Runs cells in other processes, with the objects that a program passed."""

    objects: UserObjects
    work: RunCell

    def __call__(self, cell: Cell) -> Record:
        """Return the cell's record."""
        with user_objects(self.objects):
            return self.work(cell)

    def __getstate__(self) -> dict[str, Any]:
        return {"objects": cloudpickle.dumps(dict(self.objects)), "work": self.work}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpickling is safe: the bytes come from the process that started this one.
        vars(self).update(state, objects=cloudpickle.loads(state["objects"]))


def keep(records: Records, record: Record, request: Request) -> Record:
    """Append the record; returns it, or a failure if the record cannot be stored. After a success, remove the
    checkpoint. If the file cannot be written, write the record elsewhere and raise a StoreError that says
    where."""
    try:
        records.append(kept(record), replace=request.rerun)
    except StoreError as error:
        try:
            refuge = keep_elsewhere(request.results, record)
        except OSError:
            print(record.to_json(), file=sys.stderr)
            raise error from None
        raise StoreError(
            f"{error} (this record is kept in {refuge}; `records add` brings it back)"
        ) from error
    except UserError as error:
        if record.status == FAILED:
            # Not even the failure can be stored: it is only reported, and its cell runs again next time.
            return record
        return keep(records, failed(record.cell, f"its record cannot be stored: {error}"), request)
    if record.status == OK:
        checkpoints.forget(request.results, record.key)
    return record
