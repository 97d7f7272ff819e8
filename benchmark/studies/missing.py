"""Why a figure that could be measured is not: what its runs would take, or why they would not do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedsub.benchmark.analysis.agreement import NOT_MEASURED, is_seconds
from fedsub.benchmark.analysis.figures import Entry, Identity
from fedsub.benchmark.execution.estimate import Estimate, duration
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.studies.campaign import FIRST_SEEDS, Figure, Grids, estimate_of, figures_of

CANNOT_RUN = "its table lists a cell that its method cannot run"
NO_SCORE = "its cells are on record, and none of them gives this score"
SHARED_CORE = "its cells are on record, and each shared its core with others: such seconds say nothing"


def with_reasons(entries: Iterable[Entry], grids: Grids, records: Records) -> list[Entry]:
    """The entries, where those that are not measured say why; `grids` are of all tables.

    Whether a graph lies on this machine does not count: the page is the same on each.
    """
    figures = {figure.identity: figure for figure in figures_of(grids, here=False)}
    estimate = estimate_of(grids, records)
    return [_with_reason(entry, figures, records, estimate) for entry in entries]


def _with_reason(
    entry: Entry, figures: Mapping[Identity, Figure], records: Records, estimate: Estimate
) -> Entry:
    if entry.level.word != NOT_MEASURED or entry.level.reason:
        return entry
    figure = figures.get((entry.figure.place, entry.figure.note))
    reason = CANNOT_RUN if figure is None else _reason(entry.metric, figure.cells, records, estimate)
    return replace(entry, level=replace(entry.level, reason=reason))


def _reason(metric: str, cells: Sequence[Cell], records: Records, estimate: Estimate) -> str:
    """Of a figure that takes these cells, of the seed 0."""
    lacking = [
        [cell for cell in cells if not records.done(replace(cell, seed=seed))] for seed in range(FIRST_SEEDS)
    ]
    if not all(lacking):
        # All that some seed needs was run.
        return SHARED_CORE if is_seconds(metric) else NO_SCORE
    seconds = sum(estimate.seconds(cell) for missing in lacking for cell in missing)
    return f"not run: about {duration(seconds / FIRST_SEEDS)} a seed"
