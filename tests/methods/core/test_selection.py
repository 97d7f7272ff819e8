"""Which evaluation is reported, and how clients are averaged, on figures small enough to check by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedsub.methods.core.schedule import RULES
from fedsub.methods.core.selection import Curve, median, select

NAN = np.nan
ITEMS, NODES = np.array([1, 3, 0]), np.array([50, 10, 40])


def curve(*scores: list[float]) -> Curve:
    """Return evaluations of two clients, and of a third one with nothing to score."""
    return Curve(np.array([[*each, NAN] for each in scores]), ITEMS, NODES)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("client-mean", (0.4 + 0.8) / 2),
        ("pooled", (1 * 0.4 + 3 * 0.8) / 4),
        ("node-weighted", (50 * 0.4 + 10 * 0.8) / 60),
    ],
)
def test_clients_are_averaged_as_the_protocol_says(kind: str, expected: float) -> None:
    assert curve([0.4, 0.8]).averaged(kind)[0] == pytest.approx(expected)
    assert Curve(np.full((1, 3), NAN), 0 * ITEMS, NODES).averaged(kind)[0] == 0


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("mean-validation", 1), ("pooled-validation", 1), ("node-weighted-validation", 0), ("last", 2)],
)
def test_clients_weigh_in_the_choice_of_the_round_as_the_rule_says(rule: str, expected: int) -> None:
    seen = curve([0.8, 0.2], [0.5, 0.9], [0.8, 0.2])
    assert select(seen, np.zeros(3), rule).tolist() == [expected] * 3


def test_clients_without_a_validation_score_have_no_part_in_the_median_round() -> None:
    seen = curve([0.1, NAN], [0.5, NAN], [0.2, NAN])
    chosen = select(seen, np.zeros(3), "per-client")
    assert chosen.tolist() == [1, 0, 0]
    assert median(seen, chosen) == 1
    # The upper median of two.
    assert median(curve([0.1, 0.9], [0.5, 0.2]), np.array([1, 0, 0])) == 1
    assert median(curve([NAN, NAN], [NAN, NAN]), np.array([1, 1, 1])) == 1


def test_each_client_is_scored_at_its_own_round() -> None:
    chosen = select(curve([0.1, 0.9], [0.5, 0.2]), np.zeros(2), "per-client")
    assert chosen.tolist() == [1, 0, 0]
    test = curve([0.3, 0.6], [0.4, 0.8])
    assert test.score(chosen, "client-mean") == pytest.approx((0.4 + 0.6) / 2)
    assert test.score(chosen, "pooled") == pytest.approx((1 * 0.4 + 3 * 0.6) / 4)
    assert np.isnan(replace(test, weight=np.zeros(3)).score(chosen, "pooled"))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "last"])
def test_the_first_of_equals_wins(rule: str) -> None:
    seen = curve([0.1, 0.1], [0.5, 0.5], [0.5, 0.5])
    assert select(seen, np.array([0.9, 0.7, 0.7]), rule).tolist()[:2] == [1, 1]


def test_the_lowest_loss_chooses_and_one_that_diverged_does_not() -> None:
    losses = np.array([NAN, 0.7, 0.3, 0.5])
    assert select(curve(*[[0.9, 0.9]] * 4), losses, "pooled-validation-loss").tolist() == [2] * 3
