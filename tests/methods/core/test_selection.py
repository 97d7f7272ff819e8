"""Which evaluation is reported, and how clients are averaged, on figures small enough to check by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedsub.methods.core.schedule import RULES
from fedsub.methods.core.selection import Curve, History

NAN = np.nan
ITEMS, NODES = np.array([1, 3, 0]), np.array([50, 10, 40])


def history(validation: list[list[float]], test: list[list[float]]) -> History:
    """Return evaluations of three clients; the last client has nothing to score."""
    chosen, scored = (Curve(np.array(values), ITEMS, NODES) for values in (validation, test))
    rounds = np.arange(1, len(validation) + 1)
    return History(rounds, chosen, scored, {}, validation_loss=rounds * 1.0, training_loss=rounds * 1.0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("client-mean", (0.4 + 0.8) / 2),
        ("pooled", (1 * 0.4 + 3 * 0.8) / 4),
        ("node-weighted", (50 * 0.4 + 10 * 0.8) / 60),
    ],
)
def test_clients_are_averaged_as_the_protocol_says(kind: str, expected: float) -> None:
    curve = Curve(np.array([[0.4, 0.8, NAN]]), ITEMS, NODES)
    assert curve.averaged(kind)[0] == pytest.approx(expected)
    assert Curve(np.full((1, 3), NAN), 0 * ITEMS, NODES).averaged(kind)[0] == 0


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("mean-validation", 2), ("pooled-validation", 2), ("node-weighted-validation", 1), ("last", 3)],
)
def test_clients_weigh_in_the_choice_of_the_round_as_the_rule_says(rule: str, expected: int) -> None:
    seen = history([[0.8, 0.2, NAN], [0.5, 0.9, NAN], [0.8, 0.2, NAN]], [[0.1, 0.2, NAN]] * 3)
    assert seen.rounds[seen.select(rule)].tolist() == [expected] * 3


def test_clients_without_a_validation_score_have_no_part_in_the_median_round() -> None:
    seen = history([[0.1, NAN, NAN], [0.5, NAN, NAN], [0.2, NAN, NAN]], [[0.1, 0.2, NAN]] * 3)
    chosen = seen.select("per-client")
    assert chosen.tolist() == [1, 0, 0]
    assert seen.median(chosen) == 1
    # The upper median of two.
    both = history([[0.1, 0.9, NAN], [0.5, 0.2, NAN]], [[0.1, 0.2, NAN]] * 2)
    assert both.median(both.select("per-client")) == 1
    assert history([[NAN] * 3] * 2, [[NAN] * 3] * 2).median(np.array([1, 1, 1])) == 1


def test_each_client_is_scored_at_its_own_round() -> None:
    seen = history([[0.1, 0.9, NAN], [0.5, 0.2, NAN]], [[0.3, 0.6, NAN], [0.4, 0.8, NAN]])
    chosen = seen.select("per-client")
    assert chosen.tolist() == [1, 0, 0]
    assert seen.score(chosen, "client-mean") == pytest.approx((0.4 + 0.6) / 2)
    assert seen.score(chosen, "pooled") == pytest.approx((1 * 0.4 + 3 * 0.6) / 4)
    nothing = replace(seen, test=replace(seen.test, weight=np.zeros(3)))
    assert np.isnan(nothing.score(chosen, "pooled"))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "last"])
def test_the_first_of_equals_wins(rule: str) -> None:
    seen = history([[0.1, 0.1, NAN], [0.5, 0.5, NAN], [0.5, 0.5, NAN]], [[0.1, 0.2, NAN]] * 3)
    lost = replace(seen, validation_loss=np.array([0.9, 0.7, 0.7]))
    assert lost.rounds[lost.select(rule)].tolist()[:2] == [2, 2]


def test_the_lowest_loss_chooses_and_one_that_diverged_does_not() -> None:
    seen = history([[0.9, 0.9, NAN]] * 4, [[0.1, 0.2, NAN]] * 4)
    lost = replace(seen, validation_loss=np.array([NAN, 0.7, 0.3, 0.5]))
    assert lost.rounds[lost.select("pooled-validation-loss")].tolist() == [3] * 3
