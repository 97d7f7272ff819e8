"""Execution of a request: plan, run the cells without a result, store and collect records."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fedsub.benchmark.execution.callbacks import Callback
from fedsub.benchmark.execution.engines.base import RunCell, Wanted
from fedsub.benchmark.execution.progress import counted
from fedsub.benchmark.records.folder import Records, distinct
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.spec.catalog import remembering
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import Plan, Skip, make_plan
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import UserObjects, user_objects


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
        ready, missing = keep_available(waiting, download=not request.all)
        if missing and not ready and len(waiting) == len(plan.cells):
            raise UserError("; ".join(f"{skip.what}: {skip.reason}" for skip in missing))
        for skip in (*plan.skipped, *missing):
            warn(f"skipped {skip.what}: {skip.reason}")
        chosen = distinct(ready)
        records.check_writable(chosen)
        inform(counted(plan.cells, waiting, chosen, wanted is not None))
        for sentence in records.warnings():
            warn(sentence)
        _warn_unsaved(request, plan, records, warn)
        failures: Sequence[Record] = ()
        try:
            if chosen:
                from fedsub.benchmark.execution.scheduler import run_cells

                failures = run_cells(
                    request, chosen, records, work, objects or {}, callbacks, until, inform, quiet, wanted
                )
        except BaseException:
            # That error may say where a record was kept.
            with suppress(OSError, UserError):
                records.refresh()
                after(plan, records)
            raise
        records.refresh()
        after(plan, records)
    found = {cell.key: record for cell in distinct(plan.cells) if (record := records.get(cell)) is not None}
    return Done(plan, found, failures, missing, records)


# Modules that need torch are imported only to run a cell, so that a finished table is shown without torch.


def keep_available(cells: Sequence[Cell], download: bool) -> tuple[list[Cell], list[Skip]]:
    """Return the cells whose graph is available or, with `download`, was fetched, and the missing graphs with
    reasons."""
    if not cells:
        return [], []
    from fedsub.datasets import registry as graphs

    reasons: dict[str, str] = {}
    for dataset in dict.fromkeys(cell.dataset.text for cell in cells):
        if graphs.is_available(dataset):
            continue
        if not download:
            reasons[dataset] = f"its data is missing: {graphs.how_to_get(dataset)}"
            continue
        try:
            # Fetched before workers start: they would all fetch the same file.
            graphs.load(dataset)
        except UserError as error:
            reasons[dataset] = str(error)
    ready = [cell for cell in cells if cell.dataset.text not in reasons]
    return ready, [Skip(dataset, reason) for dataset, reason in reasons.items()]


def _warn_unsaved(request: Request, plan: Plan, records: Records, warn: Callable[[str], None]) -> None:
    """Report files requested by `save` that no run of this request will write."""
    if request.save and not request.rerun:
        from fedsub.benchmark.execution.artifacts import Saving

        saving = Saving(request.results, request.save)
        known = [record for cell in plan.cells if (record := records.get(cell)) is not None]
        if count := sum(record.status == OK and saving.lacks(record) for record in known):
            kinds = ", ".join(saving.kinds)
            warn(f"{count} finished cell{'s' * (count != 1)} lack files of {kinds}: make them with --rerun")
