"""A search for the settings of a method on a block: its cells, and its state according to their records.

First rung: every trial, a third of the rounds, one draw of the data. Second rung: the best third by
validation, all rounds, two draws; the best mean validation there is chosen. If no trial finished the second
rung, the first rung chooses. No final run uses these draws.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from fedsub.benchmark.records.folder import TRIALS, Records
from fedsub.benchmark.records.record import VALIDATION, Failure, Record, Result
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.request import SEARCH_SEEDS, Request
from fedsub.benchmark.spec.space import trial_cells
from fedsub.datasets.options import Spec

FINAL_SEEDS = (0, 1, 2, 3, 4)
RUNG = 3
"""The first rung runs 1/RUNG of the rounds and promotes 1/RUNG of the trials."""


def kept(record: Record) -> Record:
    """Return a record as its table keeps it: few fields (scores, seconds, memory, …) of a trial, all fields
    of a final run."""
    if record.cell.protocol != TRIALS or record.cell.seed not in SEARCH_SEEDS:
        return record
    if isinstance(record.outcome, Failure):
        return replace(record, outcome=replace(record.outcome, traceback=None))
    result = record.result
    named = (record.cell.selects_by or "accuracy", "roc_auc")
    name = next((each for each in named if each in result.metrics), "")
    found = {name: record.score, VALIDATION: record.validation}
    scores = {name: None if score is None else round(score, 4) for name, score in found.items() if name}
    same = ("seconds", "core_share", "selected_round", "default_options", "note", "privacy")
    few = {each: getattr(result, each) for each in same}
    return replace(record, outcome=Result(scores, peak_memory_mb=round(result.peak_memory_mb), **few))


def fixed_in(request: Request, cell: Cell) -> set[str]:
    """Return what a search does not tune: requested settings, and options in the method's brackets."""
    return {*(text.partition("=")[0].strip() for text in request.settings), *Spec(cell.variant).options}


@dataclass(frozen=True)
class Search:
    """The trials of a method on a block; trial 0 has the defaults."""

    trials: tuple[Cell, ...]

    @classmethod
    def of(cls, base: Cell, count: int, fixed: Collection[str] = ()) -> "Search":
        """Return the search from `base` that does not tune the settings named in `fixed`. Raises UserError
        for a method with too many tunable options."""
        return cls(tuple(trial_cells(replace(base, protocol=TRIALS), count, fixed)))

    @classmethod
    def asked(cls, request: Request, cell: Cell) -> "Search":
        """Return the search from a cell of a request; see `fixed_in`."""
        return cls.of(cell, request.trials, fixed_in(request, cell))

    @property
    def base(self) -> Cell:
        """The cell of trial 0, the defaults."""
        return self.trials[0]

    def short(self, number: int) -> Cell:
        """Return the cell of a trial in the first rung."""
        trial = replace(self.trials[number], data_seed=-1)
        rounds = math.ceil(trial.schedule.rounds / RUNG)
        return replace(trial, seed=SEARCH_SEEDS[0], schedule=replace(trial.schedule, rounds=rounds))

    def full(self, number: int) -> tuple[Cell, ...]:
        """Return the cells of a trial in the second rung, one per draw."""
        # With a table's `data_seed`, the search would see the draw of the final runs.
        return tuple(map(replace(self.trials[number], data_seed=-1).with_seed, SEARCH_SEEDS))

    def final(self, number: int) -> tuple[Cell, ...]:
        """Return the cells of a trial's final runs."""
        return tuple(map(self.trials[number].with_seed, FINAL_SEEDS))


class Standing:
    """The state of a search, from the records so far."""

    def __init__(self, search: Search, records: Records) -> None:
        self.search, self.records = search, records

    @cached_property
    def short(self) -> dict[int, Record]:
        """Trial → its record of the first rung, failures included."""
        numbers = range(len(self.search.trials))
        found = {number: self.records.get(self.search.short(number)) for number in numbers}
        return {number: record for number, record in found.items() if record is not None}

    @cached_property
    def promoted(self) -> list[int]:
        """The trials that reach the second rung, the best first."""
        scored = {
            number: score for number, record in self.short.items() if (score := record.validation) is not None
        }
        best = sorted(scored, key=lambda number: (-scored[number], number))
        return best[: math.ceil(len(self.search.trials) / RUNG)]

    @cached_property
    def second(self) -> dict[int, list[Record]]:
        """Promoted trial → its records of the second rung, failures included."""
        return {
            number: [*filter(None, map(self.records.get, self.search.full(number)))]
            for number in self.promoted
        }

    @cached_property
    def full(self) -> dict[int, list[Record]]:
        """Promoted trial → its records of the second rung, if it has scores on every draw."""
        return {
            number: records
            for number, records in self.second.items()
            if len(records) == len(SEARCH_SEEDS) and all(map(_is_scored, records))
        }

    @cached_property
    def compared(self) -> dict[int, list[Record]]:
        """Trial → the records by which trials are compared: those of the second rung or, if no trial finished
        it, of the first, without trials that failed in the second."""
        return self.full or {
            number: [self.short[number]]
            for number, records in self.second.items()
            if all(map(_is_scored, (self.short[number], *records)))
        }

    @cached_property
    def validation(self) -> dict[int, float]:
        """Trial in `compared` → mean validation score over the draws."""
        return {
            number: fmean(each.validation or 0.0 for each in found) for number, found in self.compared.items()
        }

    @cached_property
    def test(self) -> dict[int, float]:
        """Trial in `compared` → mean test score over the draws."""
        return {number: fmean(each.score or 0.0 for each in found) for number, found in self.compared.items()}

    @property
    def chosen(self) -> int:
        """The chosen trial; trial 0, the defaults, if none can be compared."""
        return max(self.validation, key=lambda number: (self.validation[number], -number), default=0)

    @property
    def left_out(self) -> int:
        """Number of trials without a record of the first rung."""
        return len(self.search.trials) - len(self.short)

    @property
    def first_seconds(self) -> float:
        """Core-seconds of the first rung so far."""
        return sum(sum(record.core_seconds.values()) for record in self.short.values())

    @property
    def seconds(self) -> float:
        """Core-seconds of both rungs so far."""
        second = (record for records in self.second.values() for record in records)
        return self.first_seconds + sum(sum(record.core_seconds.values()) for record in second)


def _is_scored(record: Record) -> bool:
    return None not in (record.validation, record.score)
