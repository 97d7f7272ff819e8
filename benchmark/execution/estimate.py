"""Estimates of cells' seconds from earlier records."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import OK
from fedsub.benchmark.records.store import graph_of
from fedsub.benchmark.spec.cell import Cell


def expected_seconds(cells: Sequence[Cell], records: Records) -> dict[str, float]:
    """Return key → core-seconds that a cell is expected to take: its local epochs times the median seconds of
    one, set-up and evaluation included.

    The median is over the successes of its method on its graph, else of all methods on its graph, else on the
    graphs of all cells. Without any, and for a single cell, an epoch counts as a second.
    """
    of_one: dict[tuple[str, ...], list[float]] = defaultdict(list)
    # Reading the records takes long, and the weight of a single cell has no effect.
    for each in {graph_of(cell): cell for cell in cells}.values() if len(cells) > 1 else ():
        for record in records.of_graph(each):
            if record.status == OK:
                seconds = sum(record.core_seconds.values()) / _epochs(record.cell)
                for group in _groups(record.cell):
                    of_one[group].append(seconds)
    median = {group: statistics.median(found) for group, found in of_one.items()}
    return {
        cell.key: _epochs(cell) * next((median[each] for each in _groups(cell) if each in median), 1.0)
        for cell in cells
    }


def _groups(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """Return groups of similar cells, the most similar first."""
    return (cell.dataset.text, cell.method), (cell.dataset.text,), ()


def _epochs(cell: Cell) -> int:
    """Return the total number of local epochs."""
    return cell.schedule.rounds * cell.schedule.local_epochs
