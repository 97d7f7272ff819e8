"""Methods ranked over graphs, with the uncertainty of the ranks.

Ranks are computed on each block (a graph with its clients) from mean scores over draws. They are averaged
over the blocks of a graph, then over graphs. Scores that are equal as printed are ties. The bootstrap is
paired: every resample takes the same graphs and draws for all methods, and repeats each method's selection
among its trials.
Intervals are Student's with the bootstrap's standard error, `t · √(G/(G−1)) · sd` for G graphs (Hesterberg,
The American Statistician 2015: percentiles of few items are too narrow). Each is valid for one method by
itself. Methods are separated by Nemenyi's critical difference (Demšar, JMLR 2006), which is valid for all
pairs together.

Probability of improvement: Agarwal et al., NeurIPS 2021. Improvability: as in TabArena, Erickson et al. 2025.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedsub.benchmark.spec.catalog import FEDAVG, LOCAL

LEAST_COVERAGE = 0.8
"""Share of a method's draws that must have a score for it to be ranked."""
LEVEL = 0.95
RESAMPLES = 2000
DIGITS = 2
"""Decimals of scores in percent, as printed."""


@dataclass(frozen=True, eq=False)
class Field:
    """Scores of methods, LOCAL among them, on the same draws of the same blocks."""

    methods: tuple[str, ...]
    graphs: tuple[str, ...]
    """Graph of each block."""
    scores: np.ndarray
    """(methods, blocks, draws), in percent; NaN where a run failed or is missing."""
    luck: np.ndarray | None = None
    """(resamples, methods, blocks): change of the score when the selection among trials is repeated on a
    bootstrap of the trials (`selection_luck`); None if nothing was selected."""

    @property
    def coverage(self) -> np.ndarray:
        """(methods,), the share of draws with a score."""
        return np.asarray(np.isfinite(self.scores).mean(axis=(1, 2)))

    def only(self, methods: Iterable[str]) -> "Field":
        """Return the field with only these methods, in their present order."""
        wanted = {*methods}
        kept = [place for place, name in enumerate(self.methods) if name in wanted]
        names = tuple(self.methods[place] for place in kept)
        return Field(names, self.graphs, self.scores[kept], None if self.luck is None else self.luck[:, kept])


class Interval(NamedTuple):
    """An estimate with its bounds, which are None over a single graph."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Rank:
    """One method among the others."""

    method: str
    rank: Interval
    """Mean rank over graphs; 1 is best."""
    places: tuple[int, int]
    """Best and worst place in the order when one graph is left out."""
    wins: int
    """Graphs on which no method ranks better."""
    gain: Interval
    """Points above LOCAL, the mean over graphs."""
    improvability: float
    """Share of the error that the best ranked method of a block avoids, in percent; the mean over graphs."""
    over_local: Interval
    """Probability of improvement over LOCAL."""
    over_fedavg: Interval | None
    """Probability of improvement over FEDAVG; None if FEDAVG is not in the field."""
    replaced: int
    """Number of draws whose run failed or is missing."""


class Ranking:
    """The ranked methods of a field; those below LEAST_COVERAGE are left out. LOCAL has every score.

    A draw that failed or is missing has LOCAL's score, or the method's lowest on the block if that is lower:
    so no method gains by failing on hard draws.
    """

    def __init__(self, field: Field, seed: int = 0, resamples: int = RESAMPLES) -> None:
        field = field.only(
            name for name, share in zip(field.methods, field.coverage, strict=True) if share >= LEAST_COVERAGE
        )
        local = field.scores[field.methods.index(LOCAL)]
        self.methods = field.methods
        self.graphs = tuple(dict.fromkeys(field.graphs))
        self._missing = ~np.isfinite(field.scores)
        lowest = np.fmin.reduce(field.scores, axis=2, keepdims=True)
        self._scores = np.where(self._missing, np.fmin(local, lowest), field.scores)
        # (blocks, graphs): the mean over the blocks of a graph.
        member = np.array([[name == graph for graph in self.graphs] for name in field.graphs], dtype=float)
        self._over_blocks = member / member.sum(axis=0)
        self._luck, self._seed, self._resamples = field.luck, seed, resamples

    @cached_property
    def _bootstrap(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares of the graphs (resamples, graphs), shares of the draws (resamples, blocks, draws), and what
        another selection adds to the scores (resamples, methods, blocks)."""
        generator = np.random.default_rng(self._seed)
        _, blocks, draws = self._scores.shape
        count, size = len(self.graphs), self._resamples
        of_graphs = generator.multinomial(count, [1 / count] * count, size=size) / count
        of_draws = generator.multinomial(draws, [1 / draws] * draws, size=(size, blocks)) / draws
        luck = np.zeros((size, len(self.methods), blocks))
        if self._luck is not None:
            # LOCAL's score, which stands for a block without runs, involves no selection.
            luck += self._luck[generator.integers(len(self._luck), size=size)] * ~self._missing.all(axis=2)
        return of_graphs, of_draws, luck

    @cached_property
    def by_graph(self) -> np.ndarray:
        """(methods, graphs), mean ranks over the blocks of a graph."""
        return np.asarray(_ranks(self._scores.mean(axis=2)) @ self._over_blocks)

    @cached_property
    def mean_ranks(self) -> np.ndarray:
        """(methods,), mean ranks over graphs."""
        return np.asarray(self.by_graph.mean(axis=1))

    @cached_property
    def standings(self) -> tuple[Rank, ...]:
        """All ranked methods, the best first."""
        local = self.methods.index(LOCAL)
        means = self._scores.mean(axis=2)
        _, of_draws, luck = self._bootstrap
        resampled = np.einsum("mbd,rbd->rmb", self._scores, of_draws) + luck
        gains = self._intervals(means - means[local], resampled - resampled[:, [local]])
        ranks = self._intervals(_ranks(means), _ranks(resampled), 1, len(self.methods))
        over_local = self._improvement(LOCAL)
        over_fedavg = self._improvement(FEDAVG) if FEDAVG in self.methods else None
        improvability = (_improvability(means) @ self._over_blocks).mean(axis=1).tolist()
        best = np.isclose(self.by_graph, self.by_graph.min(axis=0))
        found = [
            Rank(
                name,
                ranks[place],
                self._places_left_out[place],
                int(best[place].sum()),
                gains[place],
                improvability[place],
                over_local[place],
                None if over_fedavg is None else over_fedavg[place],
                int(self._missing[place].sum()),
            )
            for place, name in enumerate(self.methods)
        ]
        return tuple(sorted(found, key=lambda each: each.rank.value))

    def separated(self, one: str, other: str) -> bool:
        """Whether their mean ranks are farther apart than the critical difference."""
        first, second = (self.mean_ranks[self.methods.index(name)] for name in (one, other))
        return self.friedman is not None and abs(first - second) > self.critical_difference

    @property
    def tied(self) -> list[tuple[str, str]]:
        """First and last method, by mean rank, of each largest group in which no two are separated."""
        order = [each.method for each in self.standings]
        ends = [
            max(place for place, name in enumerate(order) if not self.separated(first, name))
            for first in order
        ]
        # A group that ends with the one before is a part of it.
        return [
            (order[start], order[end]) for start, end in enumerate(ends) if end > max([start, *ends[:start]])
        ]

    @cached_property
    def friedman(self) -> float | None:
        """The p-value of Friedman's test that all methods are alike; None with fewer than three methods or
        two graphs, and where all ranks are tied."""
        if len(self.methods) < 3 or len(self.graphs) < 2 or np.ptp(self.by_graph) == 0:
            return None
        return float(stats.friedmanchisquare(*self.by_graph).pvalue)

    @cached_property
    def critical_difference(self) -> float:
        """Nemenyi's critical difference of mean ranks, valid for all pairs of methods together."""
        methods, graphs = len(self.methods), len(self.graphs)
        quantile = stats.studentized_range.ppf(LEVEL, methods, math.inf) / math.sqrt(2)
        return float(quantile * math.sqrt(methods * (methods + 1) / (6 * graphs)))

    @cached_property
    def _places_left_out(self) -> list[tuple[int, int]]:
        count = len(self.graphs)
        others = self.by_graph.sum(axis=1, keepdims=True) - self.by_graph
        # With one graph nothing can be left out.
        left = others / (count - 1) if count > 1 else self.by_graph
        places = stats.rankdata(np.round(left, 9), method="min", axis=0).astype(int)
        return [(int(row.min()), int(row.max())) for row in places]

    def _improvement(self, rival: str) -> list[Interval]:
        """P(X > Y) over all pairs of draws, ties counted half; the mean over graphs."""
        other, (_, shares, luck) = self.methods.index(rival), self._bootstrap
        scores, moved = (np.rint(each * 10**DIGITS).astype(np.int32) for each in (self._scores, luck))
        difference = scores[..., None] - scores[other][None, :, None, :]
        shift = (moved - moved[:, [other]])[..., None, None].swapaxes(0, 1)
        # One method at a time: all of them take gigabytes.
        resampled = [
            np.einsum("rbde,rbd,rbe->rb", np.sign(one + moves), shares, shares, optimize=True)
            for one, moves in zip(difference, shift, strict=True)
        ]
        found = np.sign(difference).mean(axis=(2, 3))
        return self._intervals((1 + found) / 2, (1 + np.stack(resampled, axis=1)) / 2, 0, 1)

    def _intervals(
        self, values: np.ndarray, resampled: np.ndarray, least: float = -math.inf, most: float = math.inf
    ) -> list[Interval]:
        """Intervals over graphs, from (methods, blocks) `values` and (resamples, methods, blocks) ones."""
        found = (values @ self._over_blocks).mean(axis=1)
        count = len(self.graphs)
        if count == 1:
            return [Interval(float(value)) for value in found]
        spread = np.einsum("rmb,bg,rg->rm", resampled, self._over_blocks, self._bootstrap[0], optimize=True)
        factor = stats.t.ppf((1 + LEVEL) / 2, count - 1) * math.sqrt(count / (count - 1))
        half = factor * spread.std(axis=0)
        low, high = np.clip(found - half, least, most), np.clip(found + half, least, most)
        return [Interval(*map(float, each)) for each in zip(found, low, high, strict=True)]


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks among the methods, 1 for the highest, ties averaged; (…, methods, blocks)."""
    return np.asarray(stats.rankdata(-np.round(scores, DIGITS), axis=-2))


def _improvability(scores: np.ndarray) -> np.ndarray:
    """Error above the best method's in percent of the own error, (methods, blocks); 0 without any error."""
    errors = 100 - scores
    return np.asarray(100 * (errors - errors.min(axis=0)) / np.where(errors > 0, errors, 1))


def selection_luck(
    validation: Sequence[float], test: Sequence[float], generator: np.random.Generator, resamples: int
) -> np.ndarray:
    """(resamples,): test score of the trial selected on a bootstrap of the trials, minus that of the selected
    trial. Both lists cover all trials; `validation` is −inf for trials that were not promoted."""
    scored, tests = (np.asarray(each, dtype=float) for each in (validation, test))
    promoted = np.isfinite(scored).sum()
    if not promoted:
        return np.zeros(resamples)
    # Trials, the best first; those not promoted come last.
    order = np.argsort(-scored, kind="stable")
    # The place of each trial in that order.
    place = np.argsort(order)
    drawn = place[generator.integers(len(scored), size=(resamples, len(scored)))].min(axis=1)
    # A resample without any promoted trial keeps the selection.
    chosen = order[np.where(drawn < promoted, drawn, 0)]
    return np.asarray(tests[chosen] - tests[order[0]])


def kendall(pairs: Iterable[tuple[float, float | None]]) -> float:
    """Return Kendall's tau-b of the pairs without None; NaN with fewer than three or without variation."""
    known = [pair for pair in pairs if None not in pair]
    return float(stats.kendalltau(*zip(*known, strict=True)).statistic) if len(known) > 2 else math.nan


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names on the Pareto front of cost (less is better) and score, by rising cost."""
    found, best = [], -math.inf
    for name, (_, score) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if score > best:
            found.append(name)
            best = score
    return found
