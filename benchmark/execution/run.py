"""Execution of a request: plan, run the cells without a result, store and collect records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fedsub.benchmark.execution.callbacks.base import Callback
from fedsub.benchmark.execution.engines.base import RunCell
from fedsub.benchmark.execution.progress import counted
from fedsub.benchmark.execution.queue import Wanted
from fedsub.benchmark.machine import describe_device
from fedsub.benchmark.records.folder import Records, distinct
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.spec.catalog import remembering
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import Plan, Skip, make_plan
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import UserObjects, user_objects

if TYPE_CHECKING:
    from fedsub.benchmark.execution.artifacts import Saving


@dataclass(frozen=True)
class Done:
    """Result of a request."""

    plan: Plan
    records: Mapping[str, Record]
    """Key of a cell → its record; cells without one are left out."""
    failures: Sequence[Record]
    """The cells that failed in this run, stored or not."""
    missing: Sequence[Skip]
    """Unavailable graphs of cells that did not run."""
    stored: Records
    """All records of the results folder."""


def execute(
    request: Request,
    work: RunCell | None = None,
    *,
    objects: UserObjects | None = None,
    digests: Mapping[tuple[str, str], str] | None = None,
    callbacks: Sequence[Callback] = (),
    until: float = math.inf,
    warn: Callable[[str], None],
    inform: Callable[[str], None],
    quiet: bool = False,
    after: Callable[[Plan, Records], None] = lambda plan, records: None,
    plan: Plan | None = None,
    wanted: Wanted | None = None,
) -> Done:
    """Run the cells of a request that have no result, store their records, and collect the records of all.

    `objects` are the parts that a program passes and `digests` hash their content (`NamedFiles`).
    No cell begins after the time `until`, of `time.monotonic`.
    `warn` receives warnings, `inform` other messages; `quiet` shows no progress.
    `after` is called at the end, also of an interrupted run. `work` runs one cell in place of the runner.
    `plan` replaces the cells that the request names. A cell that is not `wanted` when its turn comes is left
    out. Raises UserError if nothing can run.
    """
    with user_objects(objects or {}):
        if plan is None:
            with remembering():
                plan = make_plan(request, digests)
        records = Records(request.results)
        waiting = [cell for cell in plan.cells if request.rerun or not records.done(cell)]
        ready, missing = _available(request, waiting)
        if missing and not ready and len(waiting) == len(plan.cells):
            raise UserError("; ".join(f"{skip.what}: {skip.reason}" for skip in missing))
        for skip in (*plan.skipped, *missing):
            warn(f"skipped {skip.what}: {skip.reason}")
        chosen = distinct(ready)
        records.check_writable(chosen)
        inform(counted(plan.cells, waiting, chosen))
        for sentence in records.warnings():
            warn(sentence)
        _warn_unsaved(request, plan, records, warn)
        failures: Sequence[Record] = ()
        try:
            if chosen:
                from fedsub.benchmark.execution.availability import users_graphs
                from fedsub.benchmark.execution.scheduler import run_cells

                for device, kernel in dict.fromkeys((cell.device, cell.kernel) for cell in chosen):
                    if device != "cpu":
                        inform(describe_device(device, kernel))
                for line in users_graphs(chosen):
                    inform(line)
                work = work or _runner(request)
                if request.save:
                    work = partial(cast(Any, work), save=_saving(request))
                if objects:
                    work = WithObjects(objects, work)
                failures = run_cells(request, chosen, records, work, callbacks, until, quiet, wanted)
        finally:
            records.refresh()
            after(plan, records)
    cells = distinct(plan.cells)
    found = {cell.key: record for cell in cells if (record := records.get(cell)) is not None}
    return Done(plan, found, failures, missing, records)


# Modules that need torch are imported only to run a cell, so that a finished table is shown without torch.


def _available(request: Request, waiting: list[Cell]) -> tuple[list[Cell], list[Skip]]:
    """Return the cells with an available graph, and the missing graphs."""
    if not waiting:
        return [], []
    from fedsub.benchmark.execution.availability import keep_available

    return keep_available(waiting, download=not request.all)


def _runner(request: Request) -> RunCell:
    """Return the function that runs one cell for this request."""
    from fedsub.benchmark.execution.runner import attempt, debugged

    if request.engine == "flower":
        from fedsub.benchmark.execution.flower.work import federated

        return federated

    work = debugged if request.pdb else attempt
    if not request.checkpoint:
        return work
    from fedsub.benchmark.execution.checkpoints import Checkpoints

    checkpoints = Checkpoints(request.results.resolve(), request.checkpoint)
    return partial(cast(Any, work), checkpoints=checkpoints)


def _saving(request: Request) -> Saving:
    """Return what saves the requested files."""
    from fedsub.benchmark.execution.artifacts import Saving

    return Saving(request.results.resolve(), request.save)


def _warn_unsaved(request: Request, plan: Plan, records: Records, warn: Callable[[str], None]) -> None:
    """Report files requested by `save` that no run of this request will write."""
    if request.save and not request.rerun:
        saving = _saving(request)
        known = [record for cell in plan.cells if (record := records.get(cell)) is not None]
        if count := sum(record.status == OK and saving.lacks(record) for record in known):
            kinds = ", ".join(saving.kinds)
            warn(f"{count} finished cell{'s' * (count != 1)} lack files of {kinds}: make them with --rerun")


@dataclass(frozen=True)
class WithObjects:
    """Runs one cell in another process, with the objects that the program passed."""

    objects: UserObjects
    work: Callable[..., Record]

    def __call__(self, cell: Cell, **beside: Any) -> Record:
        """Return the cell's record."""
        with user_objects(self.objects):
            return self.work(cell, **beside)

    def __reduce__(self) -> tuple[Callable[..., WithObjects], tuple[Any, ...]]:
        import cloudpickle

        return _unpacked, (cloudpickle.dumps(dict(self.objects)), self.work)


def _unpacked(objects: bytes, work: Callable[..., Record]) -> WithObjects:
    import cloudpickle

    # Unpickling is safe: the bytes come from the process that started this one.
    return WithObjects(cloudpickle.loads(objects), work)
