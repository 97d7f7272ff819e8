"""Both error rates of a verdict, over all looks at the seeds, by simulation."""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import t as student

from fedsub.benchmark.analysis.agreement import (
    DIFFERS,
    KEPT,
    MATCHES,
    VANISHED,
    judge,
    judge_draws,
    judge_gain,
)
from fedsub.benchmark.analysis.published import Figure
from fedsub.benchmark.analysis.sequential import ALPHA, DRAWS, INFLATION, LOOKS, half_width, p_value

MANY = 20_000
NOISE = 3 * math.sqrt(ALPHA * (1 - ALPHA) / MANY)
"""Three standard errors of a simulated rate."""


@dataclass(frozen=True)
class Paper:
    """The runs behind a paper's mean: spread between draws, spread of training, number of runs."""

    draws: float
    training: float
    runs: int
    drawn_once: bool = False
    prints_spread: bool = True


PAPERS = [
    Paper(0, 1, 1, prints_spread=False),
    Paper(0, 1, 2),
    Paper(0, 1, 3),
    Paper(0, 1, 3, prints_spread=False),
    Paper(0, 1, 5),
    Paper(0, 1, 10),
    Paper(0, 1, 10, prints_spread=False),
    Paper(1, 0.3, 3, drawn_once=True),
    Paper(1, 1, 3, drawn_once=True),
    Paper(0.3, 1, 5, drawn_once=True),
]


@cache
def least(paper: Paper) -> tuple[np.ndarray, np.ndarray]:
    """(cases,), the least one-sided and two-sided p over all looks by the formulas of `judge`."""
    rng = np.random.default_rng(0)
    spread = math.hypot(paper.draws, paper.training)
    ours = rng.normal(0, spread, (MANY, LOOKS[-1]))
    if paper.drawn_once:
        theirs = rng.normal(0, paper.training, (MANY, paper.runs)) + rng.normal(0, paper.draws, (MANY, 1))
    else:
        theirs = rng.normal(0, spread, (MANY, paper.runs))
    printed = theirs.std(axis=1, ddof=1) if paper.prints_spread else np.zeros(MANY)
    one_sided, two_sided = np.ones(MANY), np.ones(MANY)
    for seeds in LOOKS:
        values = ours[:, :seeds]
        own = values.std(axis=1, ddof=1)
        counts = (printed > own) if paper.runs == 2 else np.full(MANY, paper.prints_spread)
        others = np.where(paper.drawn_once, 1.0, np.where(counts, 0.0, 1 / paper.runs))
        parts = own**2 * (1 / seeds + others), np.where(counts, printed**2 / paper.runs, 0.0)
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / (seeds - 1) + parts[1] ** 2 / max(paper.runs - 1, 1))
        wide = np.sqrt(sum(parts) * LOOKS[-1] / seeds)
        statistic = (values.mean(axis=1) - theirs.mean(axis=1)) / wide
        one_sided = np.minimum(one_sided, student.sf(statistic, freedom))
        two_sided = np.minimum(two_sided, 2 * student.sf(abs(statistic), freedom))
    return one_sided, two_sided


def error(paper: Paper, inflation: float) -> float:
    """Return the rate of wrong verdicts, the larger one of one-sided and two-sided."""
    return max(float((inflation * each <= ALPHA).mean()) for each in least(paper))


def assert_rare(wrong: str, cases: list[list[str]]) -> None:
    """Each case, the words of its looks, counts by the first that decides: five of a hundred may be wrong."""
    decided = [
        next((word for word in words if word in (MATCHES, DIFFERS, KEPT, VANISHED)), "") for words in cases
    ]
    assert decided.count(wrong) / len(cases) <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(cases))


@pytest.mark.parametrize("paper", PAPERS, ids=str)
def test_both_errors_are_at_most_five_percent_over_all_looks(paper: Paper) -> None:
    """The one-sided error is "matches" at a difference of δ, the two-sided one "differs" at no difference."""
    assert error(paper, INFLATION) <= ALPHA + NOISE


def test_the_factor_is_the_least_that_holds_them() -> None:
    assert any(error(paper, INFLATION - 0.2) > ALPHA + NOISE for paper in PAPERS)
    # Without any allowance the looks err in seven of a hundred or more.
    plain = np.random.default_rng(0).normal(0, 1, (MANY, LOOKS[-1]))
    found = np.zeros(MANY, bool)
    for seeds in LOOKS:
        values = plain[:, :seeds]
        statistic = values.mean(axis=1) / values.std(axis=1, ddof=1) * math.sqrt(seeds)
        found |= student.sf(statistic, seeds - 1) <= ALPHA
    assert found.mean() > 0.07


@pytest.mark.parametrize("paper", [Paper(0, 1, 3), Paper(1, 1, 3, drawn_once=True)], ids=str)
@pytest.mark.parametrize(("truth", "wrong"), [(0.0, DIFFERS), (2.0, MATCHES), (-2.0, MATCHES)])
def test_verdicts_err_no_more_often_than_the_formulas(paper: Paper, truth: float, wrong: str) -> None:
    """Judges each figure as the benchmark does: at 3, 5 and 10 seeds, until it is decided."""
    rng, spread, cases = np.random.default_rng(1), math.hypot(paper.draws, paper.training), []
    for _ in range(100):
        own = rng.normal(truth, spread, LOOKS[-1])
        theirs = rng.normal(0, paper.training, paper.runs) + rng.normal(0, paper.draws)
        figure = Figure(float(theirs.mean()), float(theirs.std(ddof=1)))
        printed = replace(figure, runs=paper.runs, drawn_once=paper.drawn_once)
        cases.append([judge(tuple(own[:seeds]), printed, 2.0).word for seeds in LOOKS])
    assert_rare(wrong, cases)


@pytest.mark.parametrize(("truth", "wrong"), [(0.0, KEPT), (-0.5, KEPT), (1.0, VANISHED), (3.0, VANISHED)])
@pytest.mark.parametrize("spread", [0.3, 5.0])
def test_gains_err_in_five_of_a_hundred_cases_whatever_the_noise(
    truth: float, wrong: str, spread: float
) -> None:
    drawn = np.random.default_rng(2).normal(truth, spread, (100, LOOKS[-1]))
    assert_rare(wrong, [[judge_gain([*own[:seeds]], 4.0).word for seeds in LOOKS] for own in drawn])


@pytest.mark.parametrize(("truth", "wrong"), [(0.0, DIFFERS), (1.0, MATCHES), (-1.0, MATCHES)])
@pytest.mark.parametrize("places", [1, 3])
def test_draws_of_the_authors_code_err_in_five_of_a_hundred_cases(
    places: int, truth: float, wrong: str
) -> None:
    """Draws are added to every place until the comparison is decided."""
    drawn = np.random.default_rng(3).normal(truth, 2.0, (200, places, DRAWS[-1]))
    cases = [[judge_draws([[*each[:draws]] for each in own], 1.0).word for draws in DRAWS] for own in drawn]
    assert_rare(wrong, cases)


def test_interval_and_p_value_agree() -> None:
    for seeds in (3, 5, 7, 10, 40):
        half = float(half_width(0.7, seeds - 1, seeds))
        assert p_value(half, 0.7, seeds - 1, seeds) == pytest.approx(ALPHA)
    # t(2) at 1 − 0.05/1.5 is 3.6766, times √(10/3).
    assert float(half_width(1.0, 2, 3)) == pytest.approx(6.7125, abs=1e-3)
    assert p_value(0.0, 0.0, 2, 3) == 1.0
    assert p_value(0.1, 0.0, 2, 3) == 0.0
