"""What the cells on record cost, by table and graph, and by paper."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fedsub.benchmark.analysis.agreement import CANNOT
from fedsub.benchmark.analysis.figures import Entry
from fedsub.benchmark.analysis.measurements import machine_of
from fedsub.benchmark.execution.estimate import Estimate
from fedsub.benchmark.records.folder import Records, run_once
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.spec.plan import QUICK
from fedsub.benchmark.spec.protocol import load_protocol, names
from fedsub.benchmark.studies.campaign import FIRST_SEEDS, Figure, Grids, estimate_of, figures_of, first_steps

HOW_COUNTED = (
    "Set-up, training and evaluation of the cells on record, in minutes of one core: of the first three "
    "seeds on each graph, and of all. Reading and dividing the graph comes on top: at most 1.2 s a cell."
)


FOUR = ("FED-PUB", "FedStruct", "FedSpray", "FedCog")
"""The papers that the project began with."""
AIM = 20
"""Hours of one core within which their figures are to be measured."""
BY_PAPER = (
    "Set-up, training and evaluation of the records behind the printed figures, of the first three seeds, in "
    "hours of one core; a record that answers several figures counts once. How many of the figures on graphs "
    f"at hand are measured stands beside. Aim: all of {', '.join(FOUR)} within {AIM} hours."
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
    """What every cell that succeeded cost, but for those of the quick table, which everybody runs anew."""
    for name in names():
        if name == QUICK:
            continue
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
        measurable, measured = _measurable(entries, own)
        figures = f"{len(measured):,} of {len(measurable):,}"
        for record in _behind(measured):
            machine = machine_of({"made": record.environment})
            yield (title, figures), machine, sum(record.core_seconds.values())


def _measurable(entries: Iterable[Entry], papers: Collection[str]) -> tuple[list[Entry], list[Entry]]:
    """The figures of these papers that can be measured, and those that are."""
    found = [entry for entry in entries if entry.figure.paper in papers and entry.level.word != CANNOT]
    return found, [entry for entry in found if entry.row is not None]


def _behind(entries: Iterable[Entry]) -> list[Record]:
    """The records of the first three seeds behind these figures, each once."""
    found = {
        record.stored_key: record
        for entry in entries
        if entry.row is not None
        for record in entry.row.records
        if record.cell.seed < FIRST_SEEDS
    }
    return [*found.values()]


def total_in_words(entries: Sequence[Entry], grids: Grids, runs: Records) -> str:
    """What all measurable figures cost with three seeds: those on record, and what the campaign reckons for
    the rest; of the four papers beside the aim, and of all. Whichever graphs lie on this machine."""
    figures, estimate = figures_of(grids, here=False), estimate_of(grids, runs)
    measurable, measured = _measurable(entries, FOUR)
    all_papers = {entry.figure.paper for entry in entries}
    (spent, left, cells), whole = (
        _hours(entries, papers, figures, runs, estimate) for papers in (FOUR, all_papers)
    )
    return (
        f"With three seeds the {len(measurable):,} measurable figures of these four take "
        f"{spent + left:.1f} core-hours, {spent:.1f} on record for {len(measured):,} of them and about "
        f"{left:.1f}, as the campaign reckons, for the {cells:,} cells that are left, beside an aim of {AIM}"
        f"; those of all papers take {whole[0] + whole[1]:.1f}, of which {whole[1]:.1f} are left."
    )


def _hours(
    entries: Iterable[Entry],
    papers: Collection[str],
    figures: Iterable[Figure],
    runs: Records,
    estimate: Estimate,
) -> tuple[float, float, int]:
    """Core-hours on record and left for the figures of these papers, and how many cells are left."""
    _, measured = _measurable(entries, papers)
    spent = sum(sum(record.core_seconds.values()) for record in _behind(measured))
    own = (figure for figure in figures if figure.identity[0][0] in papers)
    cells = run_once(cell for step in first_steps(own, runs, estimate) for cell in step.cells)
    return spent / 3600, sum(map(estimate.seconds, cells)) / 3600, len(cells)


def told(seconds: list[float]) -> str:
    """How many cells, and their minutes."""
    return f"{len(seconds):,} cells: {sum(seconds) / 60:.1f} min"


def told_in_hours(seconds: list[float]) -> str:
    """How many cells, and their hours."""
    return f"{len(seconds):,} cells: {sum(seconds) / 3600:.2f} h"
