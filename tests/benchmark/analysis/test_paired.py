from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.benchmark.analysis.agreement import NEEDS_RUNS, NOT_MEASURED
from fedsub.benchmark.analysis.paired import (
    EQUAL,
    FAILS,
    HIGHER,
    HOLDS,
    LOWER,
    Comparison,
    compare,
    differences_of,
    mean_over_columns,
    p_values,
    varies,
    word_of,
)

DIFFERENCES = [1.0, 2.0, 3.0]
"""Mean 2, standard error 1/√3; with two degrees of freedom P(T > t) is 1/2 − t/(2√(2 + t²))."""


def made(holds: float, fails: float) -> Comparison:
    """A comparison of these p-values."""
    return Comparison(0.0, None, holds, fails, 3)


def judge(*contrasts: Sequence[Sequence[Comparison | None]]) -> str:
    """The verdict on a claim of these contrasts."""
    return word_of(p_values(contrasts))


def compared(differences: Sequence[float], direction: str, margin: float = 0.0) -> Comparison:
    """The comparison of at least one seed."""
    found = compare(differences, direction, margin)
    assert found is not None
    return found


def word(*given: Any) -> str:
    return compared(*given).word


@pytest.mark.parametrize(
    ("difference", "direction", "margin"),
    [(2.0, HIGHER, 2.0), (-2.0, LOWER, 2.0), (2.0, EQUAL, 2.0), (0.0, HIGHER, 0.0), (0.0, LOWER, 0.0)],
)
def test_differences_that_are_all_the_margin_decide_nothing(
    difference: float, direction: str, margin: float
) -> None:
    assert word([difference] * 3, direction, margin) == NEEDS_RUNS


@pytest.mark.parametrize(
    ("direction", "margin", "expected"),
    [
        (HIGHER, -1.9, HOLDS),  # 3.9 from the margin, beyond the half-width 3.6766·√(10/3)/√3 = 3.8754.
        (HIGHER, -1.8, NEEDS_RUNS),
        (HIGHER, 5.8, NEEDS_RUNS),
        (HIGHER, 5.9, FAILS),
        (LOWER, 1.8, NEEDS_RUNS),
        (LOWER, 1.9, FAILS),
        (EQUAL, 5.9, HOLDS),
        (EQUAL, 5.8, NEEDS_RUNS),
    ],
)
def test_a_comparison_by_hand(direction: str, margin: float, expected: str) -> None:
    assert word(DIFFERENCES, direction, margin) == expected


def test_without_spread_the_difference_is_exact_and_one_seed_tells_nothing() -> None:
    assert word([-1.0, -1.0, -1.0], HIGHER) == FAILS
    assert word([1.0, 1.0, 1.0], LOWER) == FAILS
    assert word([0.0, 0.0, 0.0], EQUAL, 1.0) == HOLDS
    assert word([5.0, 5.0], HIGHER, 4.0) == HOLDS
    assert word([50.0], HIGHER) == NEEDS_RUNS
    assert compare([], HIGHER) is None


@given(
    st.lists(st.integers(-20, 20), min_size=2, max_size=6),
    st.sampled_from([HIGHER, LOWER, EQUAL]),
    st.integers(1, 9),
)
def test_nothing_holds_and_fails_and_both_directions_are_alike(
    values: list[int], direction: str, margin: int
) -> None:
    differences = [float(value) for value in values]
    found = compared(differences, direction, margin)
    opposite = {HIGHER: LOWER, LOWER: HIGHER, EQUAL: EQUAL}[direction]
    mirrored = compared([-value for value in differences], opposite, margin)
    assert (found.holds, found.fails) == pytest.approx((mirrored.holds, mirrored.fails))
    assert max(found.holds, found.fails) > 0.05


def test_a_column_holds_if_all_its_comparisons_do() -> None:
    assert judge([[made(0.01, 0.99), made(0.049, 0.951)]]) == HOLDS
    assert judge([[made(0.01, 0.99), made(0.06, 0.94)]]) == NEEDS_RUNS
    # Two had the chance to fail: twice 0.024 is enough, twice 0.03 is not.
    assert judge([[made(0.01, 0.99), made(0.976, 0.024)]]) == FAILS
    assert judge([[made(0.01, 0.99), made(0.97, 0.03)]]) == NEEDS_RUNS
    assert judge([[made(0.01, 0.99), None]]) == NEEDS_RUNS
    assert judge([[made(0.99, 0.01), None]]) == FAILS
    # One that is not measured had no chance to.
    assert judge([[made(0.97, 0.03), None]]) == FAILS
    assert judge([[None, None]]) == NOT_MEASURED


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ([0.01, 0.02, 0.049], HOLDS),
        ([0.01, 0.02, 0.06], NEEDS_RUNS),
        ([0.01, 0.5, 0.98], NEEDS_RUNS),  # One must fail, at a third of the level.
        ([0.01, 0.5, 0.984], FAILS),
    ],
)
def test_columns_by_hand(holds: list[float], expected: str) -> None:
    assert judge([[made(value, 1 - value)] for value in holds]) == expected


def test_columns_that_are_not_measured_carry_nothing() -> None:
    good, bad = [made(0.001, 0.999)], [made(0.999, 0.001)]
    assert judge([good, [None]]) == NEEDS_RUNS
    assert judge([bad, [None]]) == FAILS
    assert judge([[None], [None]]) == NOT_MEASURED
    # Of a column that is measured in part a comparison can fail.
    assert judge([[*bad, None]]) == FAILS
    assert judge([[*good, None]]) == NEEDS_RUNS


def test_of_several_contrasts_all_must_hold_and_one_must_fail_beyond_their_number() -> None:
    good, open_, bad = ([[made(value, 1 - value)]] for value in (0.04, 0.4, 0.97))
    worse = [[made(0.99, 0.01)]]
    assert judge(good, good) == HOLDS
    assert judge(good, open_) == NEEDS_RUNS
    # 0.03 twice is above 5 %, 0.01 twice is not.
    assert judge(bad) == FAILS
    assert judge(good, bad) == NEEDS_RUNS
    assert judge(good, worse) == FAILS
    assert judge(good, [[None]]) == NEEDS_RUNS
    assert judge([[None]], [[None]]) == NOT_MEASURED


def test_two_seeds_decide_nothing() -> None:
    found = compared([5.0, 5.1], HIGHER)
    assert (found.word, found.seeds) == (NEEDS_RUNS, 2)


def test_looks_at_three_and_ten_decide_wrongly_in_five_of_a_hundred() -> None:
    """At the margin itself: three seeds, and all ten where those do not decide."""
    random, wrong = np.random.default_rng(0), 0
    for draws in random.normal(size=(2000, 10)).tolist():
        words = [word(draws[:count], HIGHER) for count in (3, 10)]
        wrong += next((each for each in words if each != NEEDS_RUNS), "") == HOLDS
    assert wrong / 2000 <= 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5


def test_sides_are_paired_by_seed() -> None:
    ours, theirs = {0: 70.0, 1: 81.0, 5: 60.0}, {1: 80.0, 0: 69.5, 7: 0.0}
    assert differences_of(ours, theirs) == {0: 0.5, 1: 1.0}
    assert mean_over_columns([{0: 1.0, 1: 2.0, 2: 9.0}, {1: 4.0, 0: 3.0}]) == {0: 2.0, 1: 3.0}
    assert mean_over_columns([]) == {}


def test_seeds_that_change_nothing_are_no_repetition() -> None:
    assert varies({0: 70.0, 1: 70.1})
    assert not varies({0: 70.0, 1: 70.0})
    assert not varies({0: 0.1 + 0.2, 1: 0.3})
    assert not varies({0: 70.0})
