"""The arena's records judged: methods tuned alike, ranked as tuned and with their defaults."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
from fedsub.benchmark.analysis.scores import Score
from fedsub.benchmark.analysis.standing import megabytes_of
from fedsub.benchmark.analysis.trials import Outcome, importance
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import OK, Record
from fedsub.benchmark.records.search import FINAL_SEEDS, Block, Search, Standing, block_of

if TYPE_CHECKING:
    import pandas


class Entry:
    """One method on one block: its search, and the final runs of what was found and of the defaults."""

    def __init__(self, search: Search, records: Records) -> None:
        self.standing = Standing(search, records)
        self.outcome = Outcome(self.standing)
        self.method = self.outcome.method
        self.block = block_of(search.base)
        self.tuned = tuple(map(records.get, search.final(self.standing.best)))
        self.default = tuple(map(records.get, search.final(0)))

    @property
    def is_run(self) -> bool:
        """Whether there was a search, and every final run has a record, of a success or a failure."""
        # Defaults alone may have been run for another table.
        return bool(self.standing.short) and None not in (*self.tuned, *self.default)

    @property
    def successes(self) -> list[Record]:
        """The final runs of what was found that gave a result."""
        return [record for record in self.tuned if record is not None and record.status == OK]

    def luck(self, generator: np.random.Generator) -> np.ndarray:
        """(RESAMPLES,), see `selection_luck`."""
        numbers = range(len(self.standing.search.trials))
        validation = [self.standing.validation.get(number, -math.inf) for number in numbers]
        test = [self.standing.test.get(number, math.nan) for number in numbers]
        return np.nan_to_num(selection_luck(validation, test, generator, RESAMPLES), nan=0.0)


@dataclass(frozen=True)
class Row:
    """A method of the ranking with its costs."""

    rank: Rank
    default_rank: float | None
    """Its mean rank where all methods have their defaults; None where that has too few scores."""
    tuning: float
    """Points that tuning gained, the mean over graphs without a failure."""
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
        found = [Entry(search, records) for search in searches]
        ran = [entry for entry in found if entry.is_run]
        self.methods = tuple(dict.fromkeys(entry.method for entry in ran))
        scored = [
            each.block for each in ran if each.method == LOCAL and len(each.successes) == len(FINAL_SEEDS)
        ]
        self.blocks = tuple(
            block
            for block in scored
            if sum(entry.block == block for entry in ran) >= LEAST_COVERAGE * len(self.methods)
        )
        if not self.blocks:
            raise ValueError("no block is finished: every method must have its final runs there")
        self.entries: Mapping[tuple[str, Block], Entry] = {
            (each.method, each.block): each for each in ran if each.block in self.blocks
        }

    @property
    def graphs(self) -> tuple[str, ...]:
        """Of each block."""
        return tuple(dataset for dataset, _, _ in self.blocks)

    def privacy(self, method: str) -> str:
        """Why a method breaks privacy, as its records say; empty if it does not."""
        records = (record for each in self.entries_of(method) for record in each.successes)
        return next((record.privacy for record in records if record.privacy), "")

    def entries_of(self, method: str) -> list[Entry]:
        """Of the blocks on which a method ran."""
        return [entry for (name, _), entry in self.entries.items() if name == method]

    @cached_property
    def ranking(self) -> Ranking:
        """Of the methods that keep privacy, as tuned."""
        return Ranking(self.field.only(self._private))

    @cached_property
    def rows(self) -> list[Row]:
        """The methods that keep privacy, the best first."""
        default = Ranking(self.default_field.only(self._private))
        ranks = dict(zip(default.methods, default.mean_ranks.tolist(), strict=True))
        return [self._row(rank, ranks.get(rank.method)) for rank in self.ranking.standings]

    @cached_property
    def others(self) -> list[Row]:
        """The methods that break privacy, each ranked among those that keep it and these."""
        if len(self._private) == len(self.methods):
            return []
        found = Ranking(self.field).standings
        return [self._row(rank, None) for rank in found if rank.method not in self._private]

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

    @cached_property
    def importance(self) -> pandas.Series:
        """See `importance`, of what all methods share."""
        shares = importance(each.outcome for each in self.entries.values())
        return shares[[name for name in shares.index if "." not in name]]

    def fronts(self) -> tuple[list[str], list[str]]:
        """The methods that keep privacy and that none beats in gain and bytes; in gain and seconds."""
        return (
            front({row.rank.method: (row.megabytes, row.rank.gain.value) for row in self.rows}),
            front({row.rank.method: (row.seconds, row.rank.gain.value) for row in self.rows}),
        )

    @cached_property
    def field(self) -> Field:
        """The scores of what was found by tuning."""
        luck = np.zeros((RESAMPLES, len(self.methods), len(self.blocks)))
        generator = np.random.default_rng(0)
        for (method, block), entry in self.entries.items():
            luck[:, self.methods.index(method), self.blocks.index(block)] = entry.luck(generator)
        return Field(self.methods, self.graphs, self._scores("tuned"), luck)

    @cached_property
    def default_field(self) -> Field:
        """The scores of the defaults."""
        return Field(self.methods, self.graphs, self._scores("default"))

    @cached_property
    def _private(self) -> list[str]:
        return [method for method in self.methods if not self.privacy(method)]

    def _scores(self, which: str) -> np.ndarray:
        found = np.full((len(self.methods), len(self.blocks), len(FINAL_SEEDS)), math.nan)
        for (method, block), entry in self.entries.items():
            place = self.methods.index(method), self.blocks.index(block)
            found[place] = [*map(_score, getattr(entry, which))]
        return found

    @cached_property
    def _figures(self) -> pandas.DataFrame:
        """Method → points that tuning gained, megabytes and core-seconds a client: means over graphs of the
        means over their blocks."""
        import pandas

        rows = []
        for (method, (graph, _, clients)), entry in self.entries.items():
            runs = entry.successes
            spent = [sum(record.core_seconds.values()) / clients for record in runs]
            figures = {
                "tuning": _mean(entry.tuned) - _mean(entry.default),
                "megabytes": megabytes_of(runs, clients) if runs else math.nan,
                "seconds": np.mean(spent) if runs else math.nan,
            }
            rows.append({"method": method, "graph": graph, **figures})
        by_graph = pandas.DataFrame(rows).groupby(["method", "graph"]).mean()
        return by_graph.groupby("method").mean()

    def _row(self, rank: Rank, default_rank: float | None) -> Row:
        left_out = sum(len(each.standing.left_out) for each in self.entries_of(rank.method))
        figures = self._figures.loc[rank.method].to_dict()
        return Row(rank, default_rank, left_out=left_out, privacy=self.privacy(rank.method), **figures)


def _mean(records: Sequence[Record | None]) -> float:
    """Mean score; NaN if one is missing."""
    return float(np.mean([_score(record) for record in records]))


def _score(record: Record | None) -> float:
    return math.nan if record is None or record.score is None else record.score


def by_block(found: Mapping[str, Any]) -> dict[Block, list[dict[str, Any]]]:
    """Block → its methods in what `report.arena.to_dict` gives, the best tuned mean first, each
    with the score of its successful draws by `default` and as `tuned`; None without any."""
    blocks: dict[Block, list[dict[str, Any]]] = {}
    for entry in found["entries"]:
        line = {**entry, **{name: _score_over(entry[name]) for name in ("default", "tuned")}}
        blocks.setdefault((entry["dataset"], entry["partition"], entry["clients"]), []).append(line)
    for listed in blocks.values():
        listed.sort(key=lambda line: line["tuned"].mean if line["tuned"] else -1.0, reverse=True)
    return blocks


def _score_over(scores: Iterable[float | None]) -> Score | None:
    known = {draw: score for draw, score in enumerate(scores) if score is not None}
    std = statistics.stdev(known.values()) if len(known) > 1 else None
    return Score(statistics.fmean(known.values()), std, None, known) if known else None
