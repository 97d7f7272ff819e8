"""Verdicts on measured figures compared with printed ones, and on printed differences to a baseline.

A level is judged by measured − printed, its 90 % interval (Welch 1947, Satterthwaite's degrees of freedom;
`sequential` says how it allows for several looks), and a tolerance δ:

- matches: the interval is inside ±δ, as in two one-sided tests of equivalence (Schuirmann 1987);
- differs: the 95 % interval excludes 0, and the difference exceeds δ;
- needs more runs: the seeds so far do not decide;
- cannot be settled from print: no number of seeds decides, because the printed mean is too uncertain.

The variance of the difference is the sum of:

- ours: the variance between seeds, divided by their number;
- the paper's: the printed variance, divided by the number of its runs. Our variance replaces it if the paper
  prints no spread, or a spread of two runs that is smaller than ours;
- if the paper's runs share one draw of partition and split: our variance between seeds, undivided. It
  includes draw and training, and so covers a spread that is not printed.

A difference to a baseline (`gain` in the code; negative for a loss) is judged by the measured one, paired by
seed, and its 90 % interval:

- kept: the interval is on the printed side of 0, and its mean is at least half the printed difference;
- vanished: the interval is within ±1 point of 0, or on the other side of 0: this contradicts print;
- open: all else;
- small in print, whatever is measured: at most 1 point is printed, and nothing can be kept or contradicted.

Seconds are not compared: the paper's machine is another one, and here all clients compute at once.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from fedsub.benchmark.analysis.published import Figure
from fedsub.benchmark.analysis.sequential import ALPHA, DRAWS, LOOKS, Numbers, half_width, p_value
from fedsub.benchmark.records.record import DECIMALS
from fedsub.benchmark.spec.protocol import AT_CLIENTS, AT_ROUND

MATCHES, DIFFERS = "matches", "differs"
NEEDS_RUNS, UNSETTLED = "needs more runs", "cannot be settled from print"
VERDICTS = (MATCHES, DIFFERS, NEEDS_RUNS, UNSETTLED)
"""Verdicts on a measured figure."""
KEPT, VANISHED, OPEN, SMALL = "kept", "vanished", "open", "small in print"
GAINS = (KEPT, VANISHED, OPEN, SMALL)
"""Verdicts on a measured difference to the baseline."""
NOT_MEASURED, CANNOT = "not measured", "cannot be measured here"
LEAST = LOOKS[0]
"""Number of seeds that a decision needs, unless all seeds give the same value."""
DELTAS = ((1.0, 0.05), (1.5, 0.05), (2.0, 0.10), (3.0, 0.10))
"""Tolerances for which the page counts verdicts: (points for accuracies and areas, share for the rest)."""
POINTS, SHARE = DELTAS[2]
"""δ of accuracies and areas in points; of bytes, sizes and all else as a share of the printed figure."""
NOTHING = 1.0
"""Absolute difference to a baseline, in points, up to which it counts as none, here and in print."""
FALSE_DISCOVERIES = 0.10
"""Rate at which false discoveries are controlled over many figures (Benjamini and Hochberg 1995)."""
ROUNDING = 1e-9
"""Spread, relative to the largest value, up to which it counts as rounding error."""
ONE_DRAW = "the paper drew its clients once"
"""Reason of a verdict that cannot be settled."""
TOO_NEAR = "the difference is too near δ"
"""Reason of a verdict that more seeds decide only if they change the difference."""
_IN_POINTS = {"accuracy", "auc", "f1", "gain", "change"}
"""Words in the name of a score that is judged in points."""
_ONE_DRAW_HERE = "all seeds share one draw of the clients here"
# Candidate numbers of seeds: all up to 1,000, then in steps of about 1 %.
_SEEDS = np.unique(np.concatenate([np.arange(2, 1001), np.geomspace(1000, 1e6, 700).astype(int)]))


@dataclass(frozen=True)
class Verdict:
    """The judgement of one figure or gain."""

    word: str
    compared: tuple[float, float] | None = None
    """Measured and printed mean, or measured and printed gain."""
    difference: float | None = None
    """Measured minus printed."""
    interval: tuple[float, float] | None = None
    """90 % interval of the difference, or of the measured gain."""
    tolerance: float | None = None
    seeds: int | None = None
    """Number of seeds that would decide it, if difference and spreads do not change."""
    reason: str = ""
    """Why it is undecided or not measured."""
    count: int = 0
    """Number of seeds, or pairs of seeds, compared."""
    p_differs: float | None = None
    """Two-sided p-value of the hypothesis that there is no difference."""
    p_matches: float | None = None
    """p-value of the hypothesis that the difference is δ or more."""

    def decided(self, tolerance: float) -> str:
        """Return `matches` or `differs` for this δ, in the unit of the difference; empty if undecided."""
        if self.difference is None or self.interval is None or self.p_differs is None:
            return ""
        low, high = self.interval
        if self.count < LEAST and low < high:
            return ""
        if -tolerance <= low and high <= tolerance:
            return MATCHES
        return DIFFERS if self.p_differs <= ALPHA and abs(self.difference) > tolerance else ""

    @property
    def shown(self) -> str:
        """The difference with two decimals, empty if there is none."""
        return "" if self.difference is None else f"{self.difference:+.2f}"

    @property
    def shown_gain(self) -> str:
        """The measured gain beside the printed one, empty if there is none."""
        return f"{self.compared[0]:+.2f} of {self.compared[1]:+.2f}" if self.compared else ""


def is_seconds(metric: str) -> bool:
    """Whether the score is a time, or a ratio of times."""
    return "seconds" in _words(metric)


def is_in_points(metric: str) -> bool:
    """Whether the score is judged in points."""
    return not _IN_POINTS.isdisjoint(_words(metric))


def bare_metric(metric: str) -> str:
    """Return the score's name without the suffix for a round or for clients."""
    return metric.partition(AT_ROUND)[0].partition(AT_CLIENTS)[0]


def _words(metric: str) -> list[str]:
    return bare_metric(metric).split("_")


def tolerance_of(metric: str, printed: float, points: float = POINTS, share: float = SHARE) -> float:
    """Return δ in the score's unit: in points, or as a share of the printed figure."""
    return points if is_in_points(metric) else share * abs(printed)


def discoveries(words: Sequence[str], p_values: Mapping[str, Sequence[float]]) -> dict[str, tuple[int, int]]:
    """Verdict → number of `words` equal to it, and number that stay so with the false discovery rate
    controlled over all tests. `p_values`: verdict → one p-value for each word."""
    # Slow to import, and needed once for all figures.
    from scipy.stats import false_discovery_control

    found = {}
    for verdict, values in p_values.items():
        stay = false_discovery_control(values) <= FALSE_DISCOVERIES if values else []
        kept = [stays for word, stays in zip(words, stay, strict=True) if word == verdict]
        found[verdict] = len(kept), int(sum(kept))
    return found


# Several pages show the same figure.
@cache
def judge(
    values: tuple[float, ...],
    printed: Figure,
    tolerance: float,
    *,
    one_draw_here: bool = False,
    may_repeat: bool = False,
) -> Verdict:
    """Compare the values of our seeds with a printed mean.

    `one_draw_here`: our seeds share one partition and split as well, so that nothing can be decided.
    `may_repeat`: the same value for every seed is valid, as for bytes.
    """
    if not values:
        return Verdict(NOT_MEASURED)
    count, mean = len(values), statistics.fmean(values)
    bare = Verdict(NEEDS_RUNS, (mean, printed.mean), mean - printed.mean, None, tolerance, count=count)
    if reason := _unsound(values, may_repeat):
        return replace(bare, reason=reason)
    found = _Difference(mean - printed.mean, tolerance, spread_of(values), printed)
    error, freedom = (float(each[0]) for each in found.errors(np.array([count])))
    half = float(half_width(error, freedom, count))
    bare = replace(bare, interval=(found.mean - half, found.mean + half))
    if one_draw_here:
        return replace(bare, reason=_ONE_DRAW_HERE)
    p_differs = min(1.0, 2 * p_value(abs(found.mean), error, freedom, count))
    p_matches = p_value(tolerance - abs(found.mean), error, freedom, count)
    bare = replace(bare, p_differs=p_differs, p_matches=p_matches)
    if word := bare.decided(tolerance):
        return replace(bare, word=word)
    if seeds := found.seeds(count):
        return replace(bare, seeds=seeds)
    reason = found.obstacle(count)
    return replace(bare, word=NEEDS_RUNS if reason == TOO_NEAR else UNSETTLED, reason=reason)


def judge_gain(
    values: Sequence[float], printed: float, *, one_draw_here: bool = False, may_repeat: bool = False
) -> Verdict:
    """Compare our seeds' differences to the baseline with the printed one, in points."""
    if not values:
        return Verdict(NOT_MEASURED)
    # Adding 0.0 turns −0.0 into 0.0.
    count, mean, spread = len(values), round(statistics.fmean(values), DECIMALS) + 0.0, spread_of(values)
    word = OPEN if round(abs(printed), DECIMALS) > NOTHING else SMALL
    bare = Verdict(word, (mean, printed), mean - printed, count=count)
    if reason := _unsound(values, may_repeat):
        return replace(bare, reason=reason)

    def half(seeds: Any) -> Any:
        return half_width(spread / np.sqrt(seeds), seeds - 1, seeds)

    now = float(half(count))
    bare = replace(bare, interval=(mean - now, mean + now))
    if one_draw_here:
        return replace(bare, reason=_ONE_DRAW_HERE)
    if bare.word == OPEN and (count >= LEAST or not spread):
        bare = replace(bare, word=_gain_word(mean, now, printed))
    if bare.word == OPEN:
        more = _SEEDS[max(count + 1, LEAST) <= _SEEDS]
        words = (_gain_word(mean, float(each), printed) for each in half(more))
        deciding = (int(n) for n, word in zip(more, words, strict=True) if word != OPEN)
        bare = replace(bare, seeds=next(deciding, None))
    return bare


def _gain_word(mean: float, half: float, printed: float) -> str:
    """Return the verdict on a gain with the interval mean ± half."""
    towards = math.copysign(1.0, printed) * mean
    if towards > half and towards >= abs(printed) / 2:
        return KEPT
    return VANISHED if abs(mean) + half <= NOTHING or towards + half < 0 else OPEN


def spread_of(values: Sequence[float]) -> float:
    """Standard deviation of the values; 0 for a single value or differences within rounding error."""
    mean = statistics.fmean(values)
    # `statistics.stdev` is eight times as slow: it computes with exact fractions.
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / max(len(values) - 1, 1))
    return 0.0 if spread <= ROUNDING * max(map(abs, values)) else spread


def _unsound(values: Sequence[float], may_repeat: bool) -> str:
    """Why the values have no usable spread; empty if they have one."""
    if len(values) == 1:
        return "one seed has no spread"
    return "" if spread_of(values) or may_repeat else "all seeds give the same value"


def judge_draws(groups: Sequence[Sequence[float]], tolerance: float) -> Verdict:
    """Test whether the mean difference is within ±`tolerance` of 0, looking after each number of `DRAWS`.

    All groups have the same weight, whatever their size. Each has its own variance (Satterthwaite's degrees
    of freedom). A group with a single value leaves the verdict undecided.
    """
    mean = statistics.fmean(map(statistics.fmean, groups))
    count = sum(map(len, groups))
    bare = Verdict(NEEDS_RUNS, (mean, 0.0), mean, None, tolerance, count=count)
    if min(map(len, groups)) < 2:
        return replace(bare, reason="one draw has no spread")
    parts = [statistics.variance(values) / len(values) / len(groups) ** 2 for values in groups]
    below = sum(part**2 / (len(values) - 1) for part, values in zip(parts, groups, strict=True))
    error, freedom = math.sqrt(sum(parts)), sum(parts) ** 2 / below if below else 1.0
    match, differ = (error * float(stdtrit(freedom, 1 - alpha / len(DRAWS))) for alpha in (ALPHA, ALPHA / 2))
    found = replace(bare, interval=(mean - match, mean + match))
    if count < LEAST and match:
        return found
    if abs(mean) + match <= tolerance:
        return replace(found, word=MATCHES)
    return replace(found, word=DIFFERS) if abs(mean) > max(differ, tolerance) else found


@dataclass(frozen=True)
class _Difference:
    mean: float
    tolerance: float
    spread: float
    printed: Figure

    @cached_property
    def _theirs(self) -> float | None:
        """Printed spread; None if none is printed, or if it is of two runs and below ours."""
        std = self.printed.std
        return None if self.printed.runs == 2 and std is not None and std < self.spread else std

    def errors(self, seeds: Numbers) -> tuple[Numbers, Numbers]:
        """Standard error and degrees of freedom of the mean for each number of seeds."""
        runs = self.printed.runs
        others = 1.0 if self.printed.drawn_once else 0.0 if self._theirs is not None else 1.0 / runs
        ours = self.spread**2 * (1.0 / seeds + others)
        theirs = (self._theirs or 0.0) ** 2 / runs
        variance = ours + theirs
        below = ours**2 / (seeds - 1) + theirs**2 / max(runs - 1, 1)
        # Without any spread the interval is a point, whatever the degrees of freedom.
        freedom = np.divide(variance**2, below, out=np.ones_like(variance), where=below > 0)
        return np.sqrt(variance), freedom

    def _halves(self, alpha: float, seeds: Numbers) -> Numbers:
        return half_width(*self.errors(seeds), seeds, alpha)

    def seeds(self, present: int) -> int | None:
        """The smallest number of seeds above the present one that decides; None if none does."""
        more = _SEEDS[max(present + 1, LEAST) <= _SEEDS]
        distance = abs(self.mean)
        if distance > self.tolerance:
            deciding = more[distance > self._halves(ALPHA / 2, more)]
        else:
            deciding = more[distance + self._halves(ALPHA, more) <= self.tolerance]
        return int(deciding[0]) if len(deciding) else None

    def _narrow(self) -> bool:
        """Whether the narrowest possible interval fits within ±δ around 0."""
        return float(self._halves(ALPHA, _SEEDS[-1:])[0]) <= self.tolerance

    def obstacle(self, present: int) -> str:
        """Why no number of seeds decides."""
        printed = self.printed
        drawn_anew = replace(self, printed=replace(printed, drawn_once=False))
        if drawn_anew.seeds(present) or (not self._narrow() and drawn_anew._narrow()):
            return ONE_DRAW
        if self._narrow():
            return TOO_NEAR
        if self._theirs is not None:
            return "the printed spread by itself is wider than δ"
        return f"no spread is printed, and ours over {printed.runs} printed run(s) is wider than δ"
