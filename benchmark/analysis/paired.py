"""Tests of claims: the difference of two sides, paired by seed, against a margin.

A comparison tests the differences of two sides over their common seeds. The t distribution of the mean
difference gives two one-sided p-values, one for holding and one for failing:

- higher: the difference is above the margin m; lower: it is below −m. A negative m allows the difference to
  be up to |m| worse;
- equal: it is inside ±m, by two one-sided tests (Schuirmann 1987); it fails outside ±m.

A comparison holds, or fails, if that p-value is at most 5 %, that is, if its 90 % interval is on that side.
Both allow for several looks at the seeds (`sequential`).

A claim has contrasts, a contrast columns, and a column comparisons (a method against every rival). Each of
the three holds if all its parts hold (the largest p-value), and fails if one of its n measured parts fails (n
times the smallest): both are tests of a partial conjunction (Benjamini and Heller 2008). So one noisy column
of a hundred does not refute a claim.
"""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fedsub.benchmark.analysis.agreement import LEAST, NEEDS_RUNS, NOT_MEASURED, ROUNDING, spread_of
from fedsub.benchmark.analysis.sequential import ALPHA, half_width, p_value

HOLDS, FAILS = "holds", "fails"
HIGHER, LOWER, EQUAL = "higher", "lower", "equal"
DIRECTIONS = (HIGHER, LOWER, EQUAL)
PValues = tuple[float, float]
"""p-values of holding and of failing."""


@dataclass(frozen=True)
class Comparison:
    """Difference of two sides over their common seeds."""

    difference: float
    """Mean of ours − theirs."""
    interval: tuple[float, float] | None
    """90 % interval of the mean; None for a single seed."""
    holds: float
    """p-value of holding (below, of failing); 1 if the seeds cannot decide."""
    fails: float
    seeds: int

    @property
    def word(self) -> str:
        """The verdict on this comparison."""
        return word_of((self.holds, self.fails))


def differences_of(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Seed → difference, over the seeds that both sides have."""
    return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}


def leading(scores: Mapping[Hashable, Mapping[int, float]]) -> list[Hashable]:
    """Return the names whose mean is below no other's, each two compared as printed over their common seeds;
    in a circle (a above b above c above a) those that are below the fewest.

    Those with fewer than LEAST seeds are not compared, and a leading one shares LEAST with each of the
    others. Empty without two to compare.
    """
    rivals = {name: by_seed for name, by_seed in scores.items() if len(by_seed) >= LEAST}

    def is_below(ours: Mapping[int, float], theirs: Mapping[int, float]) -> bool | None:
        shared = [seed for seed in ours if seed in theirs]
        if len(shared) < LEAST:
            return None
        # With the decimals of `with_spread`.
        mine, other = (round(statistics.fmean(each[seed] for seed in shared), 2) for each in (ours, theirs))
        return mine < other

    found = {name: [is_below(ours, each) for each in rivals.values()] for name, ours in rivals.items()}
    most = max((each.count(False) for each in found.values()), default=0)
    kept = [name for name, each in found.items() if None not in each and each.count(False) == most]
    return kept if len(rivals) > 1 else []


def mean_over_columns(columns: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Seed → mean of the columns' differences, over the seeds that all columns have."""
    shared = set.intersection(*map(set, columns)) if columns else set()
    return {seed: statistics.fmean(column[seed] for column in columns) for seed in sorted(shared)}


def varies(values: Mapping[int, float]) -> bool:
    """Whether the value varies between seeds; without spread it has no interval."""
    return bool(values) and spread_of([*values.values()]) > 0


def compare(differences: Sequence[float], direction: str, margin: float = 0.0) -> Comparison | None:
    """Compare the two sides by these differences; None if there are none.

    Fewer than LEAST decide nothing, except two or more equal ones: these are exact (identical runs, bytes).
    """
    if not differences:
        return None
    mean, count = statistics.fmean(differences), len(differences)
    if count == 1:
        return Comparison(mean, None, 1.0, 1.0, 1)
    spread = spread_of(differences)
    half = float(half_width(spread / math.sqrt(count), count - 1, count))
    holds, fails = _p_values(mean, spread, count, direction, margin)
    if spread and count < LEAST:
        holds = fails = 1.0
    return Comparison(mean, (mean - half, mean + half), holds, fails, count)


def _p_values(mean: float, spread: float, count: int, direction: str, margin: float) -> PValues:
    """Return the p-values for `count` differences with this mean and `spread`."""

    def beyond(bound: float, sign: int) -> float:
        """The p-value of the mean being above (1) or below (-1) the bound."""
        distance = sign * (mean - bound)
        if spread == 0:
            # A difference that equals the bound rarely does so to the last digit.
            return 0.0 if distance > ROUNDING * max(abs(mean), abs(bound)) else 1.0
        return p_value(distance, spread / math.sqrt(count), count - 1, count)

    if direction == EQUAL:
        return max(beyond(-margin, 1), beyond(margin, -1)), min(beyond(margin, 1), beyond(-margin, -1))
    sign = 1 if direction == HIGHER else -1
    # Both are 1 if every difference equals the margin.
    return beyond(sign * margin, sign), beyond(sign * margin, -sign)


def p_values(contrasts: Sequence[Sequence[Sequence[Comparison | None]]]) -> PValues | None:
    """The p-values of a claim holding and failing, from the comparisons of each contrast's columns, of which
    None stands for one that has not been measured; None if nothing is measured."""
    return _all([_all([_column(each) for each in columns]) for columns in contrasts])


def _column(comparisons: Sequence[Comparison | None]) -> PValues | None:
    return _all([None if each is None else (each.holds, each.fails) for each in comparisons])


def _all(parts: Sequence[PValues | None]) -> PValues | None:
    """The p-values of all parts holding, and of one failing; None if none is measured."""
    measured = [part for part in parts if part is not None]
    if not measured:
        return None
    holds, fails = zip(*measured, strict=True)
    all_hold = max(holds) if len(measured) == len(parts) else 1.0
    return all_hold, min(1.0, len(measured) * min(fails))


def word_of(found: PValues | None) -> str:
    """The verdict that these p-values give; None stands for nothing measured."""
    if found is None:
        return NOT_MEASURED
    holds, fails = found
    if holds <= ALPHA:
        return HOLDS
    return FAILS if fails <= ALPHA else NEEDS_RUNS
