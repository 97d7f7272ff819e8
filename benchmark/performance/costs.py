"""What the cells on record cost, by table and graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from benchmark.campaign import FIRST_SEEDS
from benchmark.performance.measurements import machine_of
from benchmark.protocol import load_protocol, names
from benchmark.record import OK
from benchmark.records import Records

HOW_COUNTED = (
    "Set-up, training and evaluation of the cells on record, in minutes of one core: of the first three "
    "seeds on each graph, and of all. Reading and dividing the graph comes on top: at most 1.2 s a cell."
)


class Cost(NamedTuple):
    """What one cell on record took."""

    table: str
    graph: str
    seed: int
    machine: str
    seconds: float
    """Of one core."""


def costs_of(runs: Records) -> Iterator[Cost]:
    """What every cell that succeeded cost."""
    for name in names():
        for record in runs.store(name).records():
            if record.status == OK:
                machine = machine_of({"made": record.environment})
                seconds = sum(record.core_seconds.values())
                yield Cost(name, record.cell.dataset.text, record.cell.seed, machine, seconds)


def by_graph(costs: Iterable[Cost]) -> Iterator[tuple[tuple[str, str], str, float]]:
    """Table and graph of the first three seeds, and each table with all of them."""
    for table, found in groupby(costs, key=attrgetter("table")):
        own = [*found]
        published = load_protocol(table).own_table
        title = f"{published} ({table})" if published else table
        for cost in own:
            if cost.seed < FIRST_SEEDS:
                yield (title, cost.graph), cost.machine, cost.seconds
        yield from (((title, "all, every seed"), cost.machine, cost.seconds) for cost in own)


def told(seconds: list[float]) -> str:
    """How many cells, and their minutes."""
    return f"{len(seconds):,} cells: {sum(seconds) / 60:.1f} min"
