"""What the cells on record cost, by table and graph, and by paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from benchmark.campaign import FIRST_SEEDS
from benchmark.pages.reproduction import Entry
from benchmark.performance.measurements import machine_of
from benchmark.protocol import load_protocol, names
from benchmark.record import OK
from benchmark.records import Records
from benchmark.verdict import CANNOT

HOW_COUNTED = (
    "Set-up, training and evaluation of the cells on record, in minutes of one core: of the first three "
    "seeds on each graph, and of all. Reading and dividing the graph comes on top: at most 1.2 s a cell."
)


FOUR = ("FED-PUB", "FedStruct", "FedSpray", "FedCog")
"""The papers that the project began with."""
BY_PAPER = (
    "Set-up, training and evaluation of the records behind the printed figures, of the first three seeds, in "
    "hours of one core; a record that answers several figures counts once. How many of the figures on graphs "
    f"at hand are measured stands beside. Aim: all of {', '.join(FOUR)} within 20 hours."
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


def by_paper(entries: Sequence[Entry]) -> Iterator[tuple[tuple[str, str], str, float]]:
    """Every paper, the four and all, with its measured and measurable figures; of the first three seeds."""
    papers = dict.fromkeys(entry.figure.paper for entry in entries)
    groups = {**{paper: {paper} for paper in papers}, "these four": {*FOUR}, "all": {*papers}}
    for title, own in groups.items():
        measurable = [entry for entry in entries if entry.figure.paper in own and entry.level.word != CANNOT]
        measured = [entry for entry in measurable if entry.row is not None]
        records = {
            record.stored_key: record
            for entry in measured
            if entry.row is not None
            for record in entry.row.records
            if record.cell.seed < FIRST_SEEDS
        }
        figures = f"{len(measured):,} of {len(measurable):,}"
        for record in records.values():
            machine = machine_of({"made": record.environment})
            yield (title, figures), machine, sum(record.core_seconds.values())


def told(seconds: list[float]) -> str:
    """How many cells, and their minutes."""
    return f"{len(seconds):,} cells: {sum(seconds) / 60:.1f} min"


def told_in_hours(seconds: list[float]) -> str:
    """How many cells, and their hours."""
    return f"{len(seconds):,} cells: {sum(seconds) / 3600:.2f} h"
