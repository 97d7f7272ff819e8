import math
from typing import Any

import numpy as np
import pytest

from fedsub.benchmark.analysis.ranking import Field, Ranking, front, selection_luck

METHODS = ("local", "fedavg", "new")


def _field(scores: list[list[list[float]]], graphs: tuple[str, ...]) -> Field:
    """Scores by method, block and draw."""
    return Field(METHODS[: len(scores)], graphs, np.array(scores, dtype=float))


TWO_GRAPHS = _field(
    [
        [[70.0, 72.0], [60.0, 60.0], [50.0, 50.0]],
        [[71.0, 75.0], [61.0, 59.0], [50.0, 50.0]],
        [[80.0, 80.0], [58.0, 58.0], [40.0, 40.0]],
    ],
    ("a", "a", "b"),
)
"""Means: a's blocks 71, 73, 80 and 60, 60, 58; b's 50, 50, 40."""


def test_ranks_are_averaged_over_the_blocks_of_a_graph_then_over_graphs() -> None:
    ranking = Ranking(TWO_GRAPHS)
    # Block ranks: a (3, 2, 1) and (1.5, 1.5, 3); b (1.5, 1.5, 3).
    np.testing.assert_allclose(ranking.by_graph, [[2.25, 1.5], [1.75, 1.5], [2.0, 3.0]])
    found = {each.method: each.rank.value for each in ranking.standings}
    assert [*found.items()] == [("fedavg", 1.625), ("local", 1.875), ("new", 2.5)]


def test_gain_wins_and_places_by_hand() -> None:
    found = {each.method: each for each in Ranking(TWO_GRAPHS).standings}
    # Gains over local: a (9 − 2) / 2, b −10.
    assert found["new"].gain.value == pytest.approx((3.5 - 10) / 2)
    assert {name: each.wins for name, each in found.items()} == {"local": 1, "fedavg": 2, "new": 0}
    # Errors of local: a 29 (best 20) and 40 (best 40); b 50 (best 50).
    assert found["local"].improvability == pytest.approx(100 * (9 / 29 + 0) / 2 / 2)
    # Of new: a 20 and 42 (best 40); b 60 (best 50).
    assert found["new"].improvability == pytest.approx(100 * ((0 + 2 / 42) / 2 + 10 / 60) / 2)
    # Without a: local and fedavg 1.5, new 3; without b: 2.25, 1.75, 2.
    assert found["local"].places == (1, 3)
    assert found["fedavg"].places == (1, 1)
    assert found["new"].places == (2, 3)


def test_probability_of_improvement_counts_pairs_of_draws_and_half_of_ties() -> None:
    found = {each.method: each for each in Ranking(TWO_GRAPHS).standings}
    # fedavg over local: a 71>70, 75>70, 75>72 of four = 3/4; then 61>60 twice of four = 1/2; b ties = 1/2.
    assert found["fedavg"].over_local.value == pytest.approx(((0.75 + 0.5) / 2 + 0.5) / 2)
    assert found["local"].over_local.value == pytest.approx(0.5)
    assert found["new"].over_fedavg is not None
    assert found["new"].over_fedavg.value == pytest.approx((1 + 0) / 4)


def test_a_failed_run_has_the_score_of_local_on_that_draw_and_gains_nothing_by_failing() -> None:
    scores = TWO_GRAPHS.scores.copy()
    scores[2, 0, 1] = math.nan
    ranking = Ranking(Field(METHODS, TWO_GRAPHS.graphs, scores))
    new = next(each for each in ranking.standings if each.method == "new")
    assert new.replaced == 1
    # 80 and local's 72 on a's first block.
    assert new.gain.value == pytest.approx(((76 - 71 - 2) / 2 - 10) / 2)
    # Its other draw on b is below local's: then it counts for this one too.
    scores[2, 0, 1], scores[2, 2, 1] = 80, math.nan
    ranking = Ranking(Field(METHODS, TWO_GRAPHS.graphs, scores))
    new = next(each for each in ranking.standings if each.method == "new")
    assert new.gain.value == pytest.approx(((80 - 71 - 2) / 2 - 10) / 2)


def test_below_four_fifths_of_the_draws_there_is_no_rank() -> None:
    scores = np.full((3, 5, 1), 50.0)
    scores[2, 0] = math.nan
    graphs = tuple("abcde")
    assert "new" in Ranking(Field(METHODS, graphs, scores)).methods
    scores[2, 1] = math.nan
    ranking = Ranking(Field(METHODS, graphs, scores))
    assert ranking.methods == ("local", "fedavg")
    assert [each.rank.value for each in ranking.standings] == [1.5, 1.5]


def test_scores_that_print_alike_are_ties() -> None:
    ranking = Ranking(_field([[[50.001, 50.001]], [[50.002, 50.002]], [[50.02, 50.02]]], ("a",)))
    assert ranking.by_graph.T.tolist() == [[2.5, 2.5, 1.0]]


def test_the_critical_difference_is_that_of_the_printed_table() -> None:
    # Demšar 2006, table 5: q of five methods 2.728; there 30 data sets.
    scores = np.random.default_rng(0).normal(50, 1, (5, 30, 1))
    names = ("local", "b", "c", "d", "e")
    ranking = Ranking(Field(names, tuple(map(str, range(30))), scores))
    assert ranking.critical_difference == pytest.approx(2.728 * math.sqrt(5 * 6 / (6 * 30)), abs=1e-3)
    assert ranking.friedman is not None
    assert ranking.friedman > 0.01


def test_luck_of_the_selection_by_hand() -> None:
    validation, test = [0.5, 0.9, -math.inf, 0.8], [10.0, 30.0, 99.0, 20.0]
    found = selection_luck(validation, test, np.random.default_rng(0), 20_000)
    # The best trial in a resample of four is trial 1 with probability 1 − (3/4)⁴, then trial 3, then 0.
    no_1, no_3, no_0 = (3 / 4) ** 4, (2 / 4) ** 4, (1 / 4) ** 4
    shares = {0.0: 1 - no_1 + no_0, -10.0: no_1 - no_3, -20.0: no_3 - no_0}
    assert {*np.unique(found)} == {*shares}
    for change, share in shares.items():
        assert (found == change).mean() == pytest.approx(share, abs=0.02)


def test_luck_widens_the_interval_of_who_was_selected() -> None:
    rng = np.random.default_rng(1)
    scores = 70 + rng.normal(0, 1, (3, 8, 5))
    luck = np.zeros((500, 3, 8))
    luck[:, 2] = rng.normal(0, 3, (500, 8))
    graphs = tuple("abcdefgh")

    def widths(field: Field) -> list[float]:
        new: Any = next(each for each in Ranking(field).standings if each.method == "new")
        return [each.high - each.low for each in (new.rank, new.gain, new.over_local)]

    found = zip(
        widths(Field(METHODS, graphs, scores, luck)), widths(Field(METHODS, graphs, scores)), strict=True
    )
    assert all(lucky > plain + 0.05 for lucky, plain in found)


def test_a_front_has_what_nobody_beats_in_both() -> None:
    points = {"cheap": (1.0, 5.0), "good": (4.0, 9.0), "worse": (5.0, 8.0), "equal": (4.0, 9.0)}
    assert front(points) == ["cheap", "good"]
    assert front({"dear": (2.0, 1.0), "free": (0.0, 1.0)}) == ["free"]


def _simulated(methods: int, graphs: int, shift: np.ndarray, spread: np.ndarray, seed: int) -> Ranking:
    """Rank scores that spread as in the records: graphs by 10 points, methods by `spread`, draws by 1."""
    rng = np.random.default_rng(seed)
    scores = (
        rng.normal(70, 10, (1, graphs, 1))
        + shift[:, None, None]
        + rng.normal(0, 1, (methods, graphs, 1)) * spread[:, None, None]
        + rng.normal(0, 1, (methods, graphs, 5))
    )
    names = ("local", *map(str, range(1, methods)))
    return Ranking(Field(names, tuple(map(str, range(graphs))), scores), seed, resamples=300)


@pytest.mark.parametrize("graphs", [3, 13])
@pytest.mark.parametrize("methods", [3, 20])
@pytest.mark.parametrize("case", ["alike", "unlike spreads", "one better", "half better"])
def test_no_pair_of_all_is_falsely_told_apart(methods: int, graphs: int, case: str) -> None:
    shift = np.zeros(methods)
    shift[{"one better": methods - 1, "half better": methods // 2}.get(case, methods) :] = 5
    spread = np.linspace(0.2, 3, methods) if case == "unlike spreads" else np.ones(methods)
    simulated = [_simulated(methods, graphs, shift, spread, seed) for seed in range(200)]
    # The same for all: it depends only on the numbers of methods and graphs.
    limit = simulated[0].critical_difference
    false = [
        any(np.ptp(each.mean_ranks[shift == level]) > limit for level in {*shift.tolist()})
        for each in simulated
    ]
    assert np.mean(false) <= 0.1


@pytest.mark.parametrize("graphs", [3, 10])
def test_the_interval_of_a_rank_covers(graphs: int) -> None:
    simulations, missed = 150, 0
    for seed in range(simulations):
        ranking = _simulated(6, graphs, np.zeros(6), np.ones(6), seed)
        first: Any = next(each.rank for each in ranking.standings if each.method == "1")
        missed += not first.low <= 3.5 <= first.high
    assert missed / simulations <= 0.1


def test_a_better_method_is_told_apart() -> None:
    rng = np.random.default_rng(0)
    scores = 70 + rng.normal(0, 1, (3, 10, 5))
    scores[2] += 5
    ranking = Ranking(Field(METHODS, tuple("abcdefghij"), scores))
    assert ranking.separated("new", "fedavg")
    assert not ranking.separated("local", "fedavg")
    assert (ranking.standings[0].method, ranking.standings[0].wins) == ("new", 10)
    assert [{*each} for each in ranking.tied] == [{"local", "fedavg"}]
    # Mean ranks 1.2, 2 and 2.8; the critical difference is 1.05.
    chain = np.array([[[3.0]] * 9 + [[1.0]], [[2.0]] * 10, [[1.0]] * 9 + [[3.0]]])
    tied = Ranking(Field(METHODS, tuple("abcdefghij"), chain)).tied
    assert tied == [("local", "fedavg"), ("fedavg", "new")]
