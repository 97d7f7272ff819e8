"""Whether a measured figure is the printed one: agrees, differs, or undecided.

The rule looks at the 90 % interval of measured − printed (Welch 1947, t distribution with Satterthwaite's
degrees of freedom) and at a tolerance δ that was fixed before anything was measured:

- agrees: the interval lies inside ±δ, as in two one-sided tests of equivalence (Schuirmann 1987);
- differs: the interval leaves out 0, and the difference exceeds δ;
- undecided: all else. An interval wider than δ, which is what noise gives, cannot agree.

What the interval is made of:

- ours: the variance between seeds over their number;
- the paper's: the printed variance over the number of its runs. Where it prints no spread, ours stands in;
- where the paper's runs share one draw of partition and split, its mean carries what that draw is off: our
  variance between seeds, which draw anew, is added once. It holds the variance of training too, so that
  where no spread is printed nothing more stands in.

A difference of seconds means nothing between two machines. Seconds are compared as ratios, on the scale of
their logarithm.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import t as student

AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "undecided"
JUDGED = (AGREES, UNDECIDED, DIFFERS)
"""The verdicts on what is measured."""
NOT_MEASURED, CANNOT = "not measured", "cannot be measured here"
LEVEL = 0.90
LEAST = 3
"""Seeds that a decision needs, where they differ at all."""
POINTS = 2.0
"""δ of accuracies, areas under the ROC curve, and what they gain or change."""
SHARE = 0.10
"""δ of bytes, sizes and all else, as a share of the printed figure."""
FACTOR = 1.5
"""δ of seconds, as a factor either way."""
ROUNDING = 1e-9
"""A spread that is a smaller share of the values than this is none."""
_IN_POINTS = {"accuracy", "auc", "f1", "gain", "change"}
"""The words in the name of a score that is judged by points."""
_NO_SEEDS = "no number of seeds would decide it"
_TOO_NEAR = "unless they move the difference, which lies too near δ"
ONE_DRAW = "one draw in print"
"""Ends the reason of a verdict that the paper's single draw leaves open."""
# Every number of seeds up to a thousand, above it about every hundredth.
_SEEDS = np.unique(np.concatenate([np.arange(2, 1001), np.geomspace(1000, 1e6, 700).astype(int)]))


@dataclass(frozen=True)
class Printed:
    """A printed mean."""

    mean: float
    spreads: tuple[float, ...] = ()
    """Its standard deviation over runs, of a difference those of both parts; empty where none is printed."""
    runs: int = 1
    drawn_once: bool = False
    """Whether the runs share one partition and split."""


@dataclass(frozen=True)
class Verdict:
    """What the rule says of one figure."""

    word: str
    compared: tuple[float, float] | None = None
    """What was compared: measured and printed means, gains, or ratios of seconds."""
    difference: float | None = None
    """Measured minus printed; of seconds measured over printed, and so the interval."""
    interval: tuple[float, float] | None = None
    tolerance: float | None = None
    seeds: int | None = None
    """How many seeds would decide it, if the difference and the spreads stay what they are."""
    reason: str = ""
    """Why it is not decided, or not measured."""
    is_ratio: bool = False
    """Whether the difference is a ratio."""
    count: int = 0
    """How many seeds, or pairs of them, were compared."""

    @property
    def may_move(self) -> bool:
        """Whether more seeds would decide it by moving the difference alone."""
        return self.reason.endswith(_TOO_NEAR)

    @property
    def shown(self) -> str:
        """The difference with two decimals, empty if there is none."""
        if self.difference is None:
            return ""
        return f"×{self.difference:.2f}" if self.is_ratio else f"{self.difference:+.2f}"

    @property
    def shown_interval(self) -> str:
        """Its ends with two decimals, empty if there is none."""
        if self.interval is None:
            return ""
        low, high = self.interval
        return f"{low:.2f} to {high:.2f}" if self.is_ratio else f"{low:+.2f} to {high:+.2f}"


def is_seconds(metric: str) -> bool:
    """Whether the score is judged by a factor."""
    return "seconds" in _words(metric)


def is_in_points(metric: str) -> bool:
    """Whether the score is judged by points."""
    return not _IN_POINTS.isdisjoint(_words(metric))


def _words(metric: str) -> list[str]:
    """Of its name, whatever the round or the clients that are asked for."""
    return metric.partition("@")[0].split("_")


def tolerance_of(metric: str, printed: float) -> float:
    """δ of a score of ours; of seconds that of the logarithm of their ratio."""
    if is_seconds(metric):
        return math.log(FACTOR)
    return POINTS if is_in_points(metric) else SHARE * abs(printed)


def judge(
    values: Sequence[float],
    printed: Printed,
    tolerance: float,
    *,
    one_draw_here: bool = False,
    may_repeat: bool = False,
) -> Verdict:
    """Compare the values of our seeds with a printed mean.

    `one_draw_here` says that our seeds share one partition and split as well; they then tell nothing of what
    another draw would give, and nothing can be decided. `may_repeat` says that the same value for every seed
    is no sign of seeds that do not work, as of bytes.
    """
    return _judge(tuple(values), printed, tolerance, one_draw_here, may_repeat)


# A figure stands on several pages.
@cache
def _judge(
    values: tuple[float, ...], printed: Printed, tolerance: float, one_draw_here: bool, may_repeat: bool
) -> Verdict:
    if not values:
        return Verdict(NOT_MEASURED)
    comparison = _Comparison(statistics.fmean(values) - printed.mean, tolerance, 0.0, printed)
    compared = comparison.difference + printed.mean, printed.mean
    bare = Verdict(UNDECIDED, compared, comparison.difference, None, tolerance, count=len(values))
    if len(values) == 1:
        return replace(bare, reason="one seed has no spread")
    spread = statistics.stdev(values)
    if spread <= ROUNDING * max(map(abs, values)):
        spread = 0.0
    comparison = replace(comparison, spread=spread)
    if not spread and not may_repeat:
        return replace(bare, reason="all seeds give the same value: they do not repeat the run")
    halves = comparison.half_widths(np.array([len(values)]))
    half = float(halves[0])
    interval = (comparison.difference - half, comparison.difference + half)
    if one_draw_here:
        return replace(bare, interval=interval, reason="all seeds share one draw of the clients here")
    word = comparison.word(halves)
    if word != UNDECIDED and (len(values) >= LEAST or not comparison.spread):
        return replace(bare, word=word, interval=interval)
    seeds = comparison.seeds(len(values))
    reason = "" if seeds else comparison.obstacle(len(values))
    return replace(bare, interval=interval, seeds=seeds, reason=reason)


def judge_groups(groups: Sequence[Sequence[float]], tolerance: float) -> Verdict:
    """Whether the mean of the groups' means is 0: every group counts the same, however many values it has.

    Each has two or more; variances are their own, with Satterthwaite's degrees of freedom.
    """
    difference = statistics.fmean(map(statistics.fmean, groups))
    parts = [statistics.variance(values) / len(values) / len(groups) ** 2 for values in groups]
    variance = sum(parts)
    below = sum(part**2 / (len(values) - 1) for part, values in zip(parts, groups, strict=True))
    half = math.sqrt(variance) * float(student.ppf((1 + LEVEL) / 2, variance**2 / below)) if below else 0.0
    word = _Comparison(difference, tolerance, 0.0, Printed(0.0)).word(np.array([half]))
    interval = (difference - half, difference + half)
    return Verdict(
        word, (difference, 0.0), difference, interval, tolerance, count=sum(len(values) for values in groups)
    )


def judge_seconds(ratios: Sequence[float], printed: float, runs: int = 1) -> Verdict:
    """Compare ratios of seconds, one a seed, with a printed ratio; all must be above 0 to be compared."""
    if min((printed, *ratios), default=0.0) <= 0:
        return Verdict(CANNOT, reason="a ratio of seconds is above 0")
    found = judge(
        [math.log(ratio) for ratio in ratios], Printed(math.log(printed), (), runs), math.log(FACTOR)
    )
    if found.difference is None:
        return found
    interval = None if found.interval is None else (math.exp(found.interval[0]), math.exp(found.interval[1]))
    ratio, compared = math.exp(found.difference), None
    if found.compared is not None:
        compared = math.exp(found.compared[0]), math.exp(found.compared[1])
    return replace(
        found, compared=compared, difference=ratio, interval=interval, tolerance=FACTOR, is_ratio=True
    )


@dataclass(frozen=True)
class _Comparison:
    difference: float
    tolerance: float
    spread: float
    printed: Printed

    def half_widths(self, seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Half the interval's width for each number of seeds."""
        printed = self.printed
        others = 1.0 if printed.drawn_once else 0.0 if printed.spreads else 1.0 / printed.runs
        ours = self.spread**2 * (1.0 / seeds + others)
        theirs = [spread**2 / printed.runs for spread in printed.spreads]
        variance = ours + sum(theirs)
        below = ours**2 / (seeds - 1) + sum(part**2 for part in theirs) / max(printed.runs - 1, 1)
        # Without any spread the interval is a point, whatever the degrees of freedom.
        freedom = np.divide(variance**2, below, out=np.ones_like(variance), where=below > 0)
        widths: np.ndarray[Any, Any] = student.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(variance)
        return widths

    def agrees(self, half: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Whether an interval of that half-width around the difference lies inside ± δ."""
        return abs(self.difference) + half <= self.tolerance

    def differs(self, half: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Whether it leaves out 0, and the difference exceeds δ."""
        distance = abs(self.difference)
        return (distance > half) & (distance > self.tolerance)

    def word(self, half: np.ndarray[Any, Any]) -> str:
        """The verdict by an interval of that half-width, (1,)."""
        return AGREES if self.agrees(half)[0] else DIFFERS if self.differs(half)[0] else UNDECIDED

    def seeds(self, present: int) -> int | None:
        """The smallest number of seeds above the present one that decides; None if none does."""
        more = _SEEDS[max(present + 1, LEAST) <= _SEEDS]
        halves = self.half_widths(more)
        deciding = more[self.agrees(halves) | self.differs(halves)]
        return int(deciding[0]) if len(deciding) else None

    def _least_half_width(self) -> float:
        return float(self.half_widths(_SEEDS[-1:])[0])

    def obstacle(self, present: int) -> str:
        """Why no number of seeds decides."""
        printed = self.printed
        drawn_anew = replace(self, printed=replace(printed, drawn_once=False))
        too_near = self._least_half_width() <= self.tolerance
        if drawn_anew.seeds(present) or (not too_near and drawn_anew._least_half_width() <= self.tolerance):
            return f"{_NO_SEEDS}: {ONE_DRAW}"
        if too_near:
            return f"{_NO_SEEDS} {_TOO_NEAR}"
        if printed.spreads:
            return f"{_NO_SEEDS}: the printed spread alone is wider"
        return f"{_NO_SEEDS}: no spread is printed, and ours over {printed.runs} printed run(s) is wider"
