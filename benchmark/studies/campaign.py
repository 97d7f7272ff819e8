"""Which cells answer printed figures, and in what order they are best run.

A figure is measured by the cells of one row (`published.precedence`). Every measurable one gets its first
three seeds, those rows first that answer most figures per second; then undecided figures go on to as many
seeds as would decide them, ten at most, in the order of what that costs, and those whose difference lies
too near δ to all ten; last, claims of the papers that are undecided go on to ten seeds where those would
decide a comparison, or the claim.

Runs that shared their core count for no figure in seconds: such cells are run again, once a campaign.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsub.benchmark.analysis.agreement import (
    AGREES,
    CANNOT,
    DIFFERS,
    JUDGED,
    NOT_MEASURED,
    UNDECIDED,
    is_seconds,
)
from fedsub.benchmark.analysis.claims import load_claims
from fedsub.benchmark.analysis.figures import NOT_AT_HAND, Entry, Identity, compared_with, make_entries
from fedsub.benchmark.analysis.metrics import tells_seconds
from fedsub.benchmark.analysis.paired import Comparison
from fedsub.benchmark.analysis.public_code import by_work
from fedsub.benchmark.analysis.public_records import load
from fedsub.benchmark.analysis.published import answered_figures, precedence
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.cli.arguments import Arguments
from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.execution.estimate import Estimate, duration
from fedsub.benchmark.execution.scheduler import run_cells
from fedsub.benchmark.records.folder import Records, run_once
from fedsub.benchmark.records.record import FAILED, Record
from fedsub.benchmark.report.claims import Finding, find
from fedsub.benchmark.report.leaderboard import write_leaderboard
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells, load_protocols
from fedsub.benchmark.spec.protocol import AXES, Protocol, names
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError

FIRST_SEEDS, MOST_SEEDS = 3, 10
TELL_EVERY = 600.0
"""Seconds between two lines on how far the campaign is."""
Grids = Sequence[tuple[Protocol, Sequence[Cell]]]
"""The tables, each with the cells of its grid, of the seed 0."""


@dataclass(frozen=True)
class Figure:
    """A printed figure and the cells, one a row, of the seed 0, that it takes."""

    identity: Identity
    cells: tuple[Cell, ...]
    baseline: tuple[Cell, ...]
    """That of the row which its gain is over, if the grid has one."""
    timed: bool = False
    """Whether it is in seconds, for which a run must have had a core of its own."""


@dataclass(frozen=True)
class Standing:
    """How far the records of a folder are."""

    measurable: int
    measured: int
    decided: int
    entries: Mapping[Identity, Entry]

    def __str__(self) -> str:
        return f"{self.measured} of {self.measurable} measurable figures measured, {self.decided} decided"


@dataclass(frozen=True)
class Step:
    """Cells that are worth running together."""

    cells: tuple[Cell, ...]
    figures: int
    """How many figures they measure, or levels, gains and comparisons of a claim decide if spreads stay what
    they are."""
    seconds: float


def estimate_of(grids: Grids, records: Records) -> Estimate:
    """What cells take by the records of tables with printed figures: what else was run moves no page."""
    tables = {protocol.name for protocol, _ in grids if protocol.published}
    return Estimate(record for record in records.every() if record.cell.protocol in tables)


def figures_of(grids: Grids, here: bool = True) -> list[Figure]:
    """Every printed figure that a cell answers whose graph is at hand where the records in git are made, and
    `here` too if that is asked."""
    found: dict[Identity, tuple[tuple[int, ...], Figure]] = {}
    for protocol, cells in grids:
        rows: dict[tuple[Any, ...], Cell] = {}
        if protocol.published:
            rows = {_place(cell): cell for cell in cells}
        for cell in rows.values():
            if here and not graphs.is_available(cell.dataset):
                continue
            for metric in protocol.scores:
                for figure in answered_figures(protocol, metric, *_place(cell)):
                    if str(figure.place[2]) in NOT_AT_HAND:
                        continue
                    rank = precedence(protocol, figure, cell.data_seed < 0)
                    identity = figure.place, figure.note
                    if identity not in found or found[identity][0] < rank:
                        point = dict(zip(AXES, _place(cell), strict=True))
                        others = (_at(other) for other in compared_with(protocol, point, metric))
                        taken = dict.fromkeys((cell, *(rows[other] for other in others if other in rows)))
                        base = rows.get(_at({**point, "method": figure.baseline}))
                        bases = (base,) if base else ()
                        found[identity] = rank, Figure(identity, tuple(taken), bases, is_seconds(metric))
    return [figure for _, figure in found.values()]


def _place(cell: Cell) -> tuple[str, str, int, str, str]:
    """Its values on `AXES`."""
    backbone = cell.architecture.backbone
    return cell.dataset.text, cell.partition.text, cell.clients, cell.variant, backbone


def _at(point: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(point[axis] for axis in AXES)


def standing(grids: Grids, records: Records, asked: Container[Identity] | None = None) -> Standing:
    """What the records of all tables say of every printed figure, or of those that are `asked` for."""
    entries = {(each.figure.place, each.figure.note): each for each in make_entries(_boards(grids, records))}
    if asked is not None:
        entries = {identity: entry for identity, entry in entries.items() if identity in asked}
    words = Counter(entry.level.word for entry in entries.values())
    measured = sum(words[word] for word in JUDGED)
    return Standing(len(entries) - words[CANNOT], measured, words[AGREES] + words[DIFFERS], entries)


def _boards(grids: Grids, records: Records) -> list[Leaderboard]:
    return [Leaderboard(protocol, records.of_table(protocol.name, cells)) for protocol, cells in grids]


def first_steps(figures: Iterable[Figure], records: Records, estimate: Estimate) -> list[Step]:
    """The first seeds of every figure, those rows first that measure most figures per second."""
    wanted: dict[tuple[str, ...], list[Figure]] = {}
    for figure in figures:
        wanted.setdefault(tuple(cell.key for cell in figure.cells), []).append(figure)
    steps = []
    for group in wanted.values():
        seeds = [replace(cell, seed=seed) for cell in group[0].cells for seed in range(FIRST_SEEDS)]
        timed = any(figure.timed for figure in group)
        steps += _step(seeds, len(group), records, estimate, timed)
    return _in_order(steps)


def further_steps(
    figures: Iterable[Figure], entries: Mapping[Identity, Entry], records: Records, estimate: Estimate
) -> list[Step]:
    """The seeds that would decide levels and gains that are undecided, then all ten of those that seeds
    decide by moving the difference alone; what that costs least first."""
    deciding: list[Step] = []
    moving: list[Step] = []
    for figure in figures:
        entry = entries[figure.identity]
        for verdict, cells in (
            (entry.level, figure.cells),
            (entry.gain, dict.fromkeys((*figure.cells, *figure.baseline))),
        ):
            if verdict is None or verdict.word != UNDECIDED:
                continue
            count = MOST_SEEDS if verdict.may_move else verdict.seeds or 0
            if count <= MOST_SEEDS:
                seeds = [replace(cell, seed=seed) for cell in cells for seed in range(count)]
                steps = moving if verdict.may_move else deciding
                steps += _step(seeds, 1, records, estimate, figure.timed)
    return [*_in_order(deciding), *_in_order(moving)]


def claim_steps(
    grids: Grids, records: Records, estimate: Estimate, asked: Container[str] | None = None
) -> list[Step]:
    """The first seeds of comparisons that do not have them yet, and of claims that are undecided ten seeds of
    each comparison that would be decided by them, and of as many of the others as it takes to decide the
    claim; the cheapest first. All ten at once: to stop at the first look that decides would favour decisions.

    Of claims all of whose tables are among the grids, and of cells on graphs that are at hand; `asked` holds
    the keys of those cells whose comparisons are wanted, if not all.
    """
    rows = {protocol.name: {_place(cell): cell for cell in cells} for protocol, cells in grids}
    claims = [claim for claim in load_claims() if claim.tables <= rows.keys()]
    steps: list[Step] = []
    for finding in find(claims, {board.protocol.name: board.rows for board in _boards(grids, records)}):
        if finding.word not in (UNDECIDED, NOT_MEASURED):
            continue
        compared = {
            place: found
            for place, found in _compared(finding, rows)
            if all(graphs.is_available(cell.dataset) for cell in found.cells)
            and (asked is None or found.cells[0].key in asked)
        }
        ten = {place: found.steps(MOST_SEEDS, records, estimate) for place, found in compared.items()}
        deciding = {place for place, found in compared.items() if found.is_decided_by(MOST_SEEDS)}
        dear = {place: sum(step.seconds for step in each) for place, each in ten.items() if each}
        deciding |= _deciding_claim(finding, deciding, dear)
        for place, found in compared.items():
            if found.lacks_first:
                steps += found.steps(FIRST_SEEDS, records, estimate)
            elif place in deciding:
                steps += ten[place]
    return _in_order(steps)


_Where = tuple[int, int]
"""A comparison of a claim: the number of what is judged (a column, or the average), and of the rival."""


@dataclass(frozen=True)
class _Compared:
    """A comparison of a claim and the cells, of the seed 0, that it takes."""

    comparison: Comparison | None
    cells: tuple[Cell, ...]
    timed: bool
    """See `Figure.timed`."""

    @property
    def lacks_first(self) -> bool:
        """Whether its first seeds are still to be run."""
        return self.comparison is None or self.comparison.seeds < FIRST_SEEDS

    def is_decided_by(self, seeds: int) -> bool:
        """Whether so many would decide it, which now is not, if difference and spread stay what they are."""
        return self.comparison is not None and self.comparison.seeds_needed(seeds) is not None

    def steps(self, seeds: int, records: Records, estimate: Estimate) -> list[Step]:
        """What it lacks of so many."""
        wanted = [replace(cell, seed=seed) for cell in self.cells for seed in range(seeds)]
        return _step(wanted, 1, records, estimate, self.timed)


def _compared(
    finding: Finding, rows: Mapping[str, Mapping[tuple[Any, ...], Cell]]
) -> Iterator[tuple[_Where, _Compared]]:
    """All comparisons of a claim; one of the average takes the cells of every column."""
    for number, measured in enumerate(finding.judged_by):
        for rival, comparison in enumerate(measured.comparisons):
            sides = [side for column in measured.columns for side in (column.ours, column.theirs[rival])]
            cells = tuple(rows[side.table][_at(dict(side.point))] for side in sides if side.value is None)
            timed = any(is_seconds(side.metric) for side in sides)
            if measured.lacking and measured.lacking[rival]:
                # The mean is over fewer columns than the claim is on.
                comparison = None
            yield (number, rival), _Compared(comparison, cells, timed)


def _deciding_claim(
    finding: Finding, planned: Collection[_Where], further: Mapping[_Where, float]
) -> set[_Where]:
    """Which of the `further` comparisons it takes to decide the claim, with ten seeds of each, beside those
    that are `planned`, if differences and spreads stay what they are: those that cost few seconds, which
    `further` tells. None where all together would not decide it."""
    now = {
        (number, rival): comparison
        for number, measured in enumerate(finding.judged_by)
        for rival, comparison in enumerate(measured.comparisons)
    }
    then = {where: comparison and comparison.at(MOST_SEEDS) for where, comparison in now.items()}

    def word(chosen: Collection[_Where]) -> str:
        found: list[list[Comparison | None]] = [[] for _ in finding.judged_by]
        for where, comparison in now.items():
            taken = where in chosen or where in planned
            found[where[0]].append(then[where] if taken else comparison)
        return finding.judged(found)

    chosen = {*further}
    decided = word(chosen)
    if decided in (UNDECIDED, NOT_MEASURED):
        return set()
    for where in sorted(further, key=lambda where: (-further[where], where)):
        if word(chosen - {where}) == decided:
            chosen.remove(where)
    return chosen


def _cells_of_claims(grids: Grids, asked: Container[str]) -> list[Cell]:
    """Those asked for that a claim reads, on graphs that are at hand."""
    read = {table for claim in load_claims() for table in claim.tables}
    cells = [cell for protocol, cells in grids if protocol.name in read for cell in cells]
    return [cell for cell in cells if cell.key in asked and graphs.is_available(cell.dataset)]


def _step(
    cells: Iterable[Cell], figures: int, records: Records, estimate: Estimate, timed: bool = False
) -> list[Step]:
    missing = tuple(cell for cell in cells if not _counts(cell, records, timed))
    return [Step(missing, figures, sum(map(estimate.seconds, missing)))] if missing else []


def _counts(cell: Cell, records: Records, timed: bool) -> bool:
    """Whether a record answers the cell; where a figure is `timed`, with its seconds too."""
    if not timed or not records.done(cell):
        return records.done(cell)
    record = records.get(cell)
    return record is not None and tells_seconds(record)


def _done_by(cell: Cell) -> tuple[Any, ...]:
    """What running the cell does, whatever the table that asks for it."""
    return *cell.work, *cell.further_metrics


def _in_order(steps: Iterable[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: -step.figures / max(step.seconds, 1e-9))


class _Campaign:
    """The cells that are left of what is asked for, as records and failures come in."""

    def __init__(self, arguments: Arguments) -> None:
        """Raises UserError where neither a figure nor a claim is asked for."""
        tables = load_protocols(arguments.table or names())
        self.grids = [(protocol, grid_cells(protocol)) for protocol in tables]
        self.workers = arguments.workers
        self.records = Records(arguments.results)
        self.estimate = Estimate(self.records.every())
        self.asked = {cell.key for protocol, _ in self.grids for cell in grid_cells(protocol, arguments)}
        self.figures = [each for each in figures_of(self.grids) if each.cells[0].key in self.asked]
        if not self.figures and not (arguments.table and _cells_of_claims(self.grids, self.asked)):
            raise UserError(
                "no printed figure on a graph that is at hand answers what is asked for, and no claim: name "
                "less, or another --table, or set FEDSUB_DATA to the folder with the graphs"
            )
        chosen = any(getattr(arguments, axis) for axis in AXES)
        self.counted = {figure.identity for figure in self.figures} if chosen else None
        """The figures that it tells of; None: all of its tables, also those on graphs that are not here."""
        self.failures: dict[tuple[Any, ...], Record] = {}
        """By what was done: a cell of another table that does the same would fail as well."""
        self.again: dict[str, int] = {}
        """Of cells that are run though a record answers them: key → how many records there were before."""
        self.cells = self._left()
        self.told = time.monotonic()

    def _left(self) -> list[Cell]:
        """The first seeds of all figures; where all have them, those that would decide more; then claims."""
        grids, records, estimate = self.grids, self.records, self.estimate
        for find_steps in (
            lambda: first_steps(self.figures, records, estimate),
            lambda: further_steps(self.figures, standing(grids, records).entries, records, estimate),
            lambda: claim_steps(grids, records, estimate, self.asked),
        ):
            steps = find_steps()
            cells = run_once(cell for step in steps for cell in step.cells if not self._was_tried(cell))
            if cells:
                self.again |= {cell.key: self._runs(cell) for cell in cells if records.done(cell)}
                return cells
        return []

    def _was_tried(self, cell: Cell) -> bool:
        """Whether it has failed, or was run here again and shared its core once more."""
        run_again = cell.key in self.again and self._runs(cell) > self.again[cell.key]
        return run_again or _done_by(cell) in self.failures

    def _runs(self, cell: Cell) -> int:
        return self.records.store(cell.protocol).runs(cell.key)

    def run(self, arguments: Arguments, work: RunCell, until: float) -> list[Record]:
        """Run what is left, first that of which there is no record; returns the records that failed."""
        batches: dict[bool, list[Cell]] = {False: [], True: []}
        for cell in self.cells:
            batches[cell.key in self.again].append(cell)
        failed = []
        for again, cells in batches.items():
            given = replace(arguments, rerun=again or arguments.rerun)
            failed += run_cells(given, cells, self.records, work, self.estimate, until, self.tell)
        return failed

    def take(self, failed: Iterable[Record]) -> None:
        """Count what was run here, of which some failed, and elsewhere, and find what is left."""
        self.failures |= {_done_by(record.cell): record for record in failed}
        self.records.refresh()
        # What another process failed to run is left to the next campaign, as what this one did.
        self.failures |= {
            _done_by(cell): record
            for cell in self.cells
            if (record := self.records.get(cell)) is not None and record.status == FAILED
        }
        self.cells = self._left()
        self.say(self.cells)

    def tell(self) -> None:
        """Say now and then how many of the cells are still to be run."""
        if time.monotonic() - self.told >= TELL_EVERY:
            self.records.refresh()
            self.say([cell for cell in self.cells if not self._is_run(cell)])
            self.told = time.monotonic()

    def _is_run(self, cell: Cell) -> bool:
        return self._was_tried(cell) if cell.key in self.again else self.records.done(cell)

    def say(self, cells: Sequence[Cell]) -> None:
        """How far the records are, and how long these cells will take."""
        remaining = duration(sum(map(self.estimate.seconds, cells)) / self.workers)
        counts = standing(self.grids, self.records, self.counted)
        print(
            f"campaign: {counts}; {len(cells)} cells to go, about {remaining} with {self.workers} worker(s)",
            file=sys.stderr,
        )

    def print_order(self) -> None:
        """The cells in the order of running, each with the hours until it is done, about."""
        hours = 0.0
        for cell in self.cells:
            hours += self.estimate.seconds(cell) / 3600 / self.workers
            print(f"{cell.key}  {hours:8.2f} h  {cell.protocol}: {cell.title}")

    def write_leaderboards(self, results: Path) -> None:
        """Of every table that has records."""
        self.records.refresh()
        theirs = by_work(load(results), self.records)
        for protocol, cells in self.grids:
            if found := self.records.of_table(protocol.name, cells):
                write_leaderboard(results, Leaderboard(protocol, found), theirs)


def run_campaign(arguments: Arguments, work: RunCell) -> list[Record]:
    """Run, or with `--dry-run` print, what is left of the campaign; returns the records that failed.

    `--table` takes the figures that those tables answer; `--dataset`, `--partition`, `--clients`, `--method`
    and `--backbone` those of them that such cells answer. Raises UserError as a run does.
    """
    until = time.monotonic() + 3600 * arguments.hours
    campaign = _Campaign(arguments)
    campaign.say(campaign.cells)
    if arguments.dry_run:
        campaign.print_order()
        return []
    try:
        while campaign.cells and time.monotonic() < until:
            campaign.take(campaign.run(arguments, work, until))
    finally:
        campaign.write_leaderboards(arguments.results)
    return list(campaign.failures.values())
