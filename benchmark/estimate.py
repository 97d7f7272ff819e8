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
    """Seconds that a cell takes, by what earlier ones took a round."""

    def __init__(self, records: Iterable[Record]) -> None:
        """From the successes among `records`, which are read when the first cell is asked for."""
        self._records = records

    def seconds(self, cell: Cell) -> float:
        """Set-up, training and evaluation together, on one thread: the median of the cells most like it."""
        known = (self._a_round[like] for like in _likes(cell) if like in self._a_round)
        a_round = next(known, None)
        return UNKNOWN_SECONDS if a_round is None else a_round * cell.schedule.rounds

    @cached_property
    def _a_round(self) -> Mapping[tuple[object, ...], float]:
        found: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for record in self._records:
            if record.status == OK:
                a_round = sum(record.seconds.values()) / record.rounds
                for like in _likes(record.cell):
                    found[like].append(a_round)
        return {like: statistics.median(values) for like, values in found.items()}


def _likes(cell: Cell) -> list[tuple[object, ...]]:
    """What a cell's time is told by, the nearest first; at last all cells there are."""
    graph, method = cell.dataset.text, cell.method
    exact = (graph, method, cell.clients, cell.architecture.backbone)
    return [exact, (graph, method), (method,), ()]


def duration(seconds: float) -> str:
    """How long that is, in the unit in which it is read at once: `45 s`, `12 min`, `3.2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
