"""Seconds that cells take, by what earlier ones took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from benchmark.cell import Cell
from benchmark.record import OK, Record

UNKNOWN_SECONDS = 10.0
"""Of a cell when no record says what any cell takes."""


class Estimate:
    """Seconds that a cell takes, by what earlier ones took to set up and for a round."""

    def __init__(self, records: Iterable[Record]) -> None:
        """From the successes among `records`, which are read when the first cell is asked for."""
        self._records = records

    def seconds(self, cell: Cell) -> float:
        """Set-up, training and evaluation, alone on a core: the medians of the cells most like it."""
        for like in _likes(cell):
            if like in self._medians:
                setup, a_round = self._medians[like]
                return setup + a_round * cell.schedule.rounds
        return UNKNOWN_SECONDS

    @cached_property
    def _medians(self) -> Mapping[tuple[object, ...], tuple[float, float]]:
        found: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
        for record in self._records:
            if record.status == OK:
                setup = record.core_seconds.get("setup", 0.0)
                a_round = (sum(record.core_seconds.values()) - setup) / record.rounds
                for like in _likes(record.cell):
                    found[like].append((setup, a_round))
        return {
            like: (statistics.median(setups), statistics.median(rounds))
            for like, (setups, rounds) in ((like, zip(*taken, strict=True)) for like, taken in found.items())
        }


def _likes(cell: Cell) -> list[tuple[object, ...]]:
    """What a cell's time is told by, the nearest first; at last all cells there are."""
    graph, task, method = cell.dataset.text, cell.task.text, cell.method
    exact = (graph, task, method, cell.clients, cell.architecture.backbone)
    return [exact, (graph, task, method), (graph, method), (method,), ()]


def duration(seconds: float) -> str:
    """How long that is, in the unit in which it is read at once: `45 s`, `12 min`, `3.2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
