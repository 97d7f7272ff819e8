"""The arena's records judged: methods tuned alike, ranked as tuned and with their defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from fedsub.benchmark.analysis.ranking import (
    LEAST_COVERAGE,
    LOCAL,
    RESAMPLES,
    Field,
    Ranking,
    front,
    selection_luck,
)
from fedsub.benchmark.analysis.ranking import Standing as Rank
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.records.search import FINAL_SEEDS, Block, Search, Standing, block_of
from fedsub.benchmark.spec.space import changes

MEGABYTE = 1e6


class Entry:
    """One method on one block: its search, and the final runs of what was found and of the defaults."""

    def __init__(self, search: Search, records: Records) -> None:
        self.standing = Standing(search, records)
        self.method = search.base.variant
        self.block = block_of(search.base)
        self.best = self.standing.best
        self.tuned = tuple(map(records.get, search.final(self.best)))
        self.default = tuple(map(records.get, search.final(0)))

    @property
    def setting(self) -> tuple[str, dict[str, object]]:
        """Method with options, and settings, of the trial that was chosen."""
        search = self.standing.search
        return changes(search.base, search.trials[self.best])

    @property
    def is_run(self) -> bool:
        """Whether every final run has a record, of a success or a failure."""
        return None not in self.tuned and None not in self.default

    @property
    def successes(self) -> list[Record]:
        """The final runs of what was found that gave a result."""
        return [record for record in self.tuned if record is not None and record.status == OK]


@dataclass(frozen=True)
class Row:
    """A method of the ranking with its costs."""

    rank: Rank
    default_rank: float | None
    """Its mean rank where all methods have their defaults; None where that has too few scores."""
    tuning: float | None
    """Points that tuning gained, the mean over graphs; None where a run of the defaults failed."""
    megabytes: float
    """A client sends and receives in a run, the mean over graphs."""
    seconds: float
    """Core-seconds a client in a run of the stacked simulation, the mean over graphs."""
    left_out: int
    """Trials that did not fit into the cap, over all blocks."""
    privacy: str
    """Why it breaks privacy; empty if it does not."""


class Arena:
    """All methods on the blocks that are finished.

    A block is finished where LOCAL has every score, and at least LEAST_COVERAGE of the methods that ran
    anywhere have run.
    """

    def __init__(self, searches: Iterable[Search], records: Records) -> None:
        """From the records of these searches. Raises ValueError where no block is finished."""
        searches = list(searches)
        begun = {
            block_of(search.base)
            for search in searches
            if search.base.method == LOCAL and all(map(records.done, search.final(0)))
        }
        found = [Entry(search, records) for search in searches if block_of(search.base) in begun]
        ran = [entry for entry in found if entry.is_run]
        self.methods = tuple(dict.fromkeys(entry.method for entry in ran))
        self.entries: Mapping[tuple[str, Block], Entry] = {(each.method, each.block): each for each in ran}
        self.blocks = tuple(
            block for block in dict.fromkeys(each.block for each in ran) if self._whole(block)
        )
        if not self.blocks:
            raise ValueError("no block is finished: every method must have its final runs there")

    def _whole(self, block: Block) -> bool:
        local = self.entries.get((LOCAL, block))
        covered = sum((method, block) in self.entries for method in self.methods)
        scored = local is not None and len(local.successes) == len(FINAL_SEEDS)
        return scored and covered >= LEAST_COVERAGE * len(self.methods)

    @property
    def graphs(self) -> tuple[str, ...]:
        """Of each block."""
        return tuple(block[0] for block in self.blocks)

    def is_private(self, method: str) -> bool:
        """Whether no run of it breaks privacy."""
        return not self.privacy(method)

    def privacy(self, method: str) -> str:
        """Why it breaks privacy; empty if it does not."""
        records = (record for entry in self._entries_of(method) for record in entry.successes)
        return next((record.privacy for record in records if record.privacy), "")

    @cached_property
    def ranking(self) -> Ranking:
        """The methods that keep privacy, as tuned."""
        return Ranking(self.field.only(filter(self.is_private, self.methods)))

    @cached_property
    def rows(self) -> list[Row]:
        """The methods that keep privacy, the best first."""
        default = Ranking(self.default_field.only(filter(self.is_private, self.methods)))
        ranks = dict(zip(default.methods, default.mean_ranks.tolist(), strict=True))
        return [self._row(rank, ranks.get(rank.method)) for rank in self.ranking.standings]

    @cached_property
    def others(self) -> list[Row]:
        """The methods that break privacy, each ranked among those that keep it and these."""
        if all(map(self.is_private, self.methods)):
            return []
        found = Ranking(self.field).standings
        return [self._row(rank, None) for rank in found if not self.is_private(rank.method)]

    @cached_property
    def unranked(self) -> dict[str, float]:
        """Method → coverage, of those with too few scores."""
        covered = zip(self.field.methods, self.field.coverage.tolist(), strict=True)
        return {name: share for name, share in covered if share < LEAST_COVERAGE}

    @property
    def correlation(self) -> float | None:
        """Kendall's τ between mean ranks as tuned and by default; None with fewer than three methods."""
        pairs = [(row.rank.rank.value, row.default_rank) for row in self.rows if row.default_rank is not None]
        found = stats.kendalltau(*zip(*pairs, strict=True)).statistic if len(pairs) > 2 else math.nan
        return None if math.isnan(found) else float(found)

    def fronts(self) -> tuple[list[str], list[str]]:
        """The methods that keep privacy and that none beats in gain and bytes; in gain and seconds."""
        named = {row.rank.method: row for row in self.rows}
        by_bytes = {name: (row.megabytes, row.rank.gain.value) for name, row in named.items()}
        by_seconds = {name: (row.seconds, row.rank.gain.value) for name, row in named.items()}
        return front(by_bytes), front(by_seconds)

    @cached_property
    def field(self) -> Field:
        """The scores of what was found by tuning."""
        generator = np.random.default_rng(0)
        luck = np.zeros((RESAMPLES, len(self.methods), len(self.blocks)))
        for (row, method), (column, block) in self._places():
            if (entry := self.entries.get((method, block))) is not None:
                standing = entry.standing
                numbers = range(len(standing.search.trials))
                chosen = [standing.validation.get(number, -math.inf) for number in numbers]
                tests = [standing.test.get(number, math.nan) for number in numbers]
                luck[:, row, column] = np.nan_to_num(
                    selection_luck(chosen, tests, generator, RESAMPLES), nan=0.0
                )
        return Field(self.methods, self.graphs, self._scores(lambda entry: entry.tuned), luck)

    @cached_property
    def default_field(self) -> Field:
        """The scores of the defaults."""
        return Field(self.methods, self.graphs, self._scores(lambda entry: entry.default))

    def score(self, method: str, block: Block) -> float:
        """Mean test score as tuned, over the draws that have one; NaN without any."""
        place = self.methods.index(method), self.blocks.index(block)
        scores = self.field.scores[place]
        return float(np.nanmean(scores)) if np.isfinite(scores).any() else math.nan

    def _scores(self, of: Callable[[Entry], Sequence[Record | None]]) -> np.ndarray:
        found = np.full((len(self.methods), len(self.blocks), len(FINAL_SEEDS)), math.nan)
        for (row, method), (column, block) in self._places():
            if (entry := self.entries.get((method, block))) is not None:
                scores = [None if record is None else record.score for record in of(entry)]
                found[row, column] = [math.nan if score is None else score for score in scores]
        return found

    def _places(self) -> Iterable[tuple[tuple[int, str], tuple[int, Block]]]:
        return ((row, column) for row in enumerate(self.methods) for column in enumerate(self.blocks))

    def _entries_of(self, method: str) -> list[Entry]:
        return [self.entries[method, block] for block in self.blocks if (method, block) in self.entries]

    def _row(self, rank: Rank, default_rank: float | None) -> Row:
        entries, place = self._entries_of(rank.method), self.methods.index(rank.method)
        gained = (self.field.scores[place] - self.default_field.scores[place]).mean(axis=1)
        return Row(
            rank,
            default_rank,
            None
            if np.isnan(gained).any()
            else self._over_graphs(dict(zip(self.blocks, gained, strict=True))),
            self._over_graphs({each.block: _mean(each, _megabytes) for each in entries}),
            self._over_graphs({each.block: _mean(each, _seconds) for each in entries}),
            sum(len(each.standing.left_out) for each in entries),
            self.privacy(rank.method),
        )

    def _over_graphs(self, values: Mapping[Block, float]) -> float:
        """The mean over graphs of the means over their blocks, of blocks with a value."""
        by_graph: dict[str, list[float]] = {}
        for block, value in values.items():
            if not math.isnan(value):
                by_graph.setdefault(block[0], []).append(value)
        return float(np.mean([np.mean(found) for found in by_graph.values()]))


def _mean(entry: Entry, of: Callable[[Record], float]) -> float:
    values = [of(record) for record in entry.successes]
    return float(np.mean(values)) if values else math.nan


def _megabytes(record: Record) -> float:
    sent = record.bytes
    total = (sent.get("up", 0.0) + sent.get("down", 0.0)) * record.rounds + sent.get("once", 0.0)
    return float(total / record.cell.clients / MEGABYTE)


def _seconds(record: Record) -> float:
    return sum(record.core_seconds.values()) / record.cell.clients
