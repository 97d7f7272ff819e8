import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import ttest_ind

from fedsub.benchmark.analysis.agreement import (
    DIFFERS,
    KEPT,
    MATCHES,
    NEEDS_RUNS,
    NOT_MEASURED,
    ONE_DRAW,
    OPEN,
    POINTS,
    SMALL,
    UNSETTLED,
    VANISHED,
    discoveries,
    judge,
    judge_draws,
    judge_gain,
    tolerance_of,
)
from fedsub.benchmark.analysis.published import Figure, grid_points
from fedsub.benchmark.analysis.sequential import INFLATION
from fedsub.benchmark.spec.protocol import load_protocol, names


def values(mean: float, spread: float, count: int = 10) -> tuple[float, ...]:
    """Return values with this mean and sample standard deviation."""
    steps = np.arange(count) - (count - 1) / 2
    return tuple(mean + spread * steps / steps.std(ddof=1))


# Spread 1 and ten runs on both sides: 18 degrees of freedom, √(1/10 + 1/10) = 0.4472. Quantiles at
# 1 − 0.05/1.5 and 1 − 0.025/1.5: 1.9520 and 2.3043, half-widths 0.8730 and 1.0305.
@pytest.mark.parametrize(
    ("printed", "spread", "word"),
    [
        (79.88, 1.0, MATCHES),
        (79.87, 1.0, NEEDS_RUNS),
        (79.01, 1.0, NEEDS_RUNS),  # The interval excludes 0; the difference is below 2 points.
        (78.99, 1.0, DIFFERS),
        (78.97, 2.0, NEEDS_RUNS),  # Twice as wide: 2.06.
        (78.93, 2.0, DIFFERS),
    ],
)
def test_the_verdicts_by_hand(printed: float, spread: float, word: str) -> None:
    found = judge(values(81, spread), Figure(printed, spread, runs=10), POINTS)
    assert found.word == word
    assert found.difference == pytest.approx(81 - printed)
    half = 0.8730 * spread
    assert found.interval == pytest.approx((81 - printed - half, 81 - printed + half), abs=1e-4)


def test_the_interval_is_that_of_welch_at_a_lower_level() -> None:
    ours = (80.0, 83.5, 81.0, 84.2, 80.1, 79.0, 82.2, 83.3, 81.9, 80.7)
    theirs = [78.0, 79.1, 82.3, 80.0, 77.7, 80.4]
    printed = Figure(statistics.fmean(theirs), statistics.stdev(theirs), runs=len(theirs))
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval(1 - 0.1 / INFLATION)
    assert judge(ours, printed, POINTS).interval == pytest.approx(tuple(expected))


def test_without_a_printed_spread_ours_stands_in() -> None:
    # t(9) 2.0855; √(1/10 + 1) = 1.0488, √(1/10 + 1/10) = 0.4472.
    one, ten = (judge(values(81, 1), Figure(81.0, runs=runs), POINTS) for runs in (1, 10))
    assert one.interval == pytest.approx((-2.1873, 2.1873), abs=1e-4)
    assert ten.interval == pytest.approx((-0.9327, 0.9327), abs=1e-4)
    assert (one.word, ten.word) == (NEEDS_RUNS, MATCHES)
    # Drawn once: our variance between seeds includes that of training and replaces both.
    once = judge(values(81, 1), Figure(81.0, runs=10, drawn_once=True), POINTS)
    assert once.interval == one.interval
    # A smaller spread of two runs is chance: ours replaces it.
    two = judge(values(81, 1), Figure(81.0, 0.01, runs=2), POINTS)
    assert two.interval == judge(values(81, 1), Figure(81.0, runs=2), POINTS).interval


def test_one_draw_in_print_adds_our_spread_once() -> None:
    found = judge(values(81, 1), Figure(80.9, 0.0, runs=3, drawn_once=True), POINTS)
    assert found.interval == pytest.approx((0.1 - 2.1873, 0.1 + 2.1873), abs=1e-4)
    # The half-width must be 1.9 at most: t(38)·√(1 + 1/39) = 1.9126 and t(48)·√(1 + 1/49) = 1.8951.
    assert found.seeds is not None
    assert 39 < found.seeds < 49
    # With any number of seeds the half-width is at least the normal quantile, 1.834·1 > 1.5.
    never = judge(values(81, 1), Figure(80.5, 0.0, runs=3, drawn_once=True), POINTS)
    assert (never.word, never.seeds, never.reason) == (UNSETTLED, None, ONE_DRAW)


@given(
    mean=st.floats(-6, 6),
    spread=st.floats(0.05, 5),
    printed=st.floats(0.0, 3),
    runs=st.integers(3, 10),
    once=st.booleans(),
)
def test_the_number_of_seeds_is_the_smallest_that_decides(
    mean: float, spread: float, printed: float, runs: int, once: bool
) -> None:
    figure = Figure(0.0, printed, runs=runs, drawn_once=once)
    found = judge(values(mean, spread, 3), figure, POINTS)
    if found.seeds is not None and found.seeds <= 60:
        assert found.word == NEEDS_RUNS
        decided = (MATCHES, DIFFERS)
        assert judge(values(mean, spread, found.seeds), figure, POINTS).word in decided
        assert judge(values(mean, spread, found.seeds - 1), figure, POINTS).word not in decided


@given(
    drawn=st.lists(st.floats(-100, 100), min_size=2, max_size=10),
    spread=st.none() | st.floats(0, 20),
    runs=st.integers(1, 10),
    once=st.booleans(),
)
def test_a_noisy_run_never_matches(drawn: list[float], spread: float | None, runs: int, once: bool) -> None:
    """Even if the printed mean equals ours exactly."""
    found = judge(tuple(drawn), Figure(statistics.fmean(drawn), spread, runs=runs, drawn_once=once), POINTS)
    if 1.6448 * statistics.stdev(drawn) / math.sqrt(len(drawn)) > POINTS:
        assert found.word in (NEEDS_RUNS, UNSETTLED)


def test_too_little_to_judge() -> None:
    printed = Figure(81.0, 0.1, runs=3)
    assert judge((), printed, POINTS).word == NOT_MEASURED
    single = judge((81.0,), printed, POINTS)
    assert (single.word, single.interval, single.reason) == (NEEDS_RUNS, None, "one seed has no spread")
    # All seeds are copies of one run.
    same = judge((81.0, 81.0, 81.0), Figure(81.0), POINTS)
    assert (same.word, same.interval) == (NEEDS_RUNS, None)
    assert judge((10.0, 10.0), Figure(10.5), 1.05, may_repeat=True).word == MATCHES
    assert judge((10.0, 10.0), Figure(12.0), 1.2, may_repeat=True).word == DIFFERS
    # Differences within rounding error are no spread.
    rounded = (0.1 + 0.2, 0.3)
    assert judge(rounded, Figure(0.3), POINTS).reason == "all seeds give the same value"
    assert judge(rounded, Figure(0.31), 0.031, may_repeat=True).word == MATCHES
    # Two seeds decide nothing, however near to each other they are; a third may.
    two = judge((80.99, 81.01), printed, POINTS)
    assert (two.word, two.seeds) == (NEEDS_RUNS, 3)
    once = judge((80.99, 81.0, 81.01), printed, POINTS, one_draw_here=True)
    assert once.word == NEEDS_RUNS
    assert "one draw of the clients here" in once.reason


# Ten pairs with standard deviation √10 and a tenth of it: t(9) at 1 − 0.05/1.5 is 2.0855, the half-width.
@pytest.mark.parametrize(
    ("measured", "printed", "noise", "word"),
    [
        (2.1, 2.0, 1, KEPT),
        (2.08, 2.0, 1, OPEN),  # The interval holds 0.
        (2.1, 4.2, 1, KEPT),
        (2.1, 4.3, 1, OPEN),  # The interval reaches half the printed gain, its mean does not.
        (-2.1, -2.0, 1, KEPT),
        (-2.1, 2.0, 1, VANISHED),
        (0.0, 2.0, 1, OPEN),  # Too noisy to be within ±1 of 0.
        (0.79, 5.0, 0.1, VANISHED),
        (0.8, 5.0, 0.1, OPEN),
        (0.79, 1.5, 0.1, KEPT),  # The printed gain is small as well.
        (-0.79, 1.5, 0.1, VANISHED),
        (0.79, 1.0, 0.1, SMALL),  # Too small in print to be kept or contradicted.
        (-9.0, -1.0, 0.1, SMALL),
        (9.0, 0.0, 0.1, SMALL),
    ],
)
def test_gains_by_hand(measured: float, printed: float, noise: float, word: str) -> None:
    found = judge_gain(values(measured, noise * math.sqrt(10)), printed)
    assert found.word == word
    half = 2.0855 * noise
    assert found.interval == pytest.approx((measured - half, measured + half), abs=1e-4)
    assert found.compared == pytest.approx((measured, printed))


@given(st.lists(st.floats(-200, 200), min_size=2, max_size=10), st.floats(-20, 20))
def test_a_noisy_gain_is_open(drawn: list[float], printed: float) -> None:
    """If noise is large relative to the gain, the interval includes 0 and extends beyond ±1."""
    noise = statistics.stdev(drawn) / math.sqrt(len(drawn))
    if noise > 1.0 and abs(statistics.fmean(drawn)) < 1.6448 * noise:
        assert judge_gain(drawn, printed).word == (OPEN if abs(printed) > 1 else SMALL)


def test_too_little_to_judge_a_gain() -> None:
    assert judge_gain([], 2.0).word == NOT_MEASURED
    assert judge_gain([2.0], 2.0).word == OPEN
    assert judge_gain([2.0, 2.0, 2.0], 2.0).reason == "all seeds give the same value"
    # A method that equals its baseline in every run has no gain.
    assert judge_gain([0.0, 0.0], 3.0, may_repeat=True).word == VANISHED
    assert judge_gain([1.99, 2.01], 2.0).seeds == 3
    assert judge_gain(values(2.0, 0.1), 2.0, one_draw_here=True).word == OPEN


def test_false_discoveries_by_hand() -> None:
    # Benjamini and Hochberg at 10 %: p(k) <= 0.1·k/4, that is 0.025, 0.05, 0.075 and 0.1.
    words = [DIFFERS, DIFFERS, DIFFERS, MATCHES]
    assert discoveries(words, {DIFFERS: [0.2, 0.06, 0.02, 0.04]}) == {DIFFERS: (3, 2)}
    assert discoveries(words, {DIFFERS: [0.2, 0.08, 0.03, 0.06]}) == {DIFFERS: (3, 0)}
    assert discoveries([], {DIFFERS: []}) == {DIFFERS: (0, 0)}


@pytest.mark.parametrize(
    ("metric", "printed", "tolerance"),
    [
        ("accuracy", 80.0, 2.0),
        ("accuracy@round50", 80.0, 2.0),
        ("gain_over_fedcog[lnnc=false]", -3.0, 2.0),
        ("model_size_pct", 50.0, 5.0),
        ("propagation_mb", 463.5, 46.35),
        ("similarity_label_correlation", -0.9, 0.09),
    ],
)
def test_the_tolerance_of_a_score(metric: str, printed: float, tolerance: float) -> None:
    assert tolerance_of(metric, printed) == pytest.approx(tolerance)


@pytest.mark.parametrize("name", names())
def test_baselines_and_references_are_measured_by_the_same_table(name: str) -> None:
    protocol = load_protocol(name)
    methods = {method for _, _, _, method, _ in grid_points(protocol)}
    for block in protocol.published:
        baselines = {block.baseline, *(entry.get("baseline", "") for entry in block.method.values())} - {""}
        assert baselines <= methods


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=9, unique=True), st.floats(0.5, 5))
def test_draws_of_one_place_are_judged_by_students_interval(drawn: list[float], tolerance: float) -> None:
    found = judge_draws([drawn], tolerance)
    mean, error = statistics.fmean(drawn), statistics.stdev(drawn) / math.sqrt(len(drawn))
    # A fifth of the level for each of five numbers of draws.
    half = float(student.ppf(0.99, len(drawn) - 1)) * error
    assert found.interval == pytest.approx((mean - half, mean + half), abs=1e-6)
    assert found.count == len(drawn)


@pytest.mark.parametrize(
    ("groups", "word"),
    [
        ([[0.1, 0.3], [-0.2, 0.0], [0.1, 0.2]], MATCHES),
        ([[3.0, 3.2], [2.9, 3.1]], DIFFERS),
        ([[3.0, 3.2], [-1.0, 1.0]], NEEDS_RUNS),
        ([[0.5, 0.5], [0.5, 0.5]], MATCHES),
        ([[1.5, 1.5], [1.5, 1.5]], DIFFERS),
        ([[0.1]], NEEDS_RUNS),
        ([[0.1, 0.11]], NEEDS_RUNS),
    ],
)
def test_draws_of_several_places_count_the_same(groups: list[list[float]], word: str) -> None:
    assert judge_draws(groups, 1.0).word == word
