from dataclasses import replace
from typing import Any

import pytest

from fedsub.benchmark.analysis.scores import POINTS, clients_of, make_rows, mean_curve
from fedsub.benchmark.analysis.standing import Contender, above_local, gains_of, standings
from fedsub.benchmark.spec.protocol import Protocol, parse_protocol
from tests.benchmark.fakes import current_cell, make_cell, make_record

METHODS = ("local", "fedavg", "fedpub", "fedgnn")
SCORES = {"local": 60.0, "fedavg": 50.0, "fedpub": 60.2, "fedgnn": 90.0}


def toy(backbone: str) -> Protocol:
    grid = {"dataset": "cora", "partition": "metis", "clients": 5, "backbone": backbone, "method": [*METHODS]}
    return parse_protocol("toy", {"grid": grid})


def contenders(backbone: str = "gcn") -> list[Contender]:
    """Four methods over five seeds; fedgnn breaks privacy."""
    records = [
        make_record(
            current_cell(method=method, label=method, seed=seed, backbone=backbone),
            SCORES[method] + seed + (-1) ** seed * (method == "fedpub"),
            bytes={"up": 1e6, "down": 1e6, "once": 5e6 * (method == "fedpub")},
            privacy="sees features" * (method == "fedgnn"),
        )
        for method in METHODS
        for seed in range(5)
    ]
    protocol = toy(backbone)
    (listed,) = standings(protocol, make_rows(protocol, records)).values()
    return listed


def test_a_rank_is_an_interval_and_ties_share_it() -> None:
    found = {each.row.method: each for each in contenders()}
    assert found["fedpub"].ranks["any"] == found["local"].ranks["any"] == (1, 2)
    assert found["fedavg"].ranks["any"] == (3, 3)
    assert found["local"].beats == found["fedpub"].beats == 1


def test_what_breaks_privacy_has_no_rank_and_stands_last() -> None:
    last = contenders()[-1]
    assert last.row.method == "fedgnn"
    assert last.ranks == {}
    assert not last.is_ranked


def test_a_budget_ranks_those_that_keep_to_it() -> None:
    found = {each.row.method: each for each in contenders()}
    assert found["local"].ranks["models"] == (1, 1)
    assert found["fedavg"].ranks["models"] == (2, 2)
    assert "models" not in found["fedpub"].ranks


def test_gains_over_local_are_paired_by_seed() -> None:
    found = {each.row.method: each for each in contenders()}
    assert found["local"].gain is None
    gain = found["fedavg"].gain
    assert gain is not None
    assert gain.difference == pytest.approx(-10)
    assert gain.interval == pytest.approx((-10, -10))
    assert above_local([contenders()]) == {"fedpub": (0, 1), "fedavg": (0, 1)}
    assert list(gains_of([contenders()])) == ["fedgnn", "fedpub", "fedavg"]


def test_a_block_is_ranked_by_the_score_that_selects_its_rounds() -> None:
    records = [
        make_record(
            current_cell(method=method, label=method, backbone="gcn", selection_metric="roc_auc"),
            accuracy,
            metrics={"accuracy": accuracy, "roc_auc": 100 - accuracy},
        )
        for method, accuracy in SCORES.items()
    ]
    (listed,) = standings(toy("gcn"), make_rows(toy("gcn"), records)).values()
    assert {each.metric for each in listed} == {"roc_auc"}
    assert [each.row.method for each in listed] == ["fedavg", "local", "fedpub", "fedgnn"]


# One seed decides nothing, so it takes no seed from the others.
@pytest.mark.parametrize("rivals", [1, 5, 20])
def test_more_seeds_than_the_others_put_no_method_above_local(rivals: int) -> None:
    seeds = {"local": 20, "fedpub": 20, "fedavg": rivals}
    records = [
        make_record(
            current_cell(method=method, label=method, seed=seed, backbone="gcn"),
            60.0 + seed + (0.2 + 0.3 * (-1) ** seed) * (method == "fedpub"),
        )
        for method, count in seeds.items()
        for seed in range(count)
    ]
    (listed,) = standings(toy("gcn"), make_rows(toy("gcn"), records)).values()
    assert above_local([listed])["fedpub"] == (rivals != 5, 1)
    gains = {each.row.method: each.gain.word for each in listed if each.gain is not None}
    assert gains["fedpub"] == "holds"


@pytest.mark.parametrize("changed", [{"files": "b" * 64}, {"learning_rate": 0.5}, {"rounds": 7}])
def test_a_gain_is_over_runs_on_the_same_data_with_the_same_settings(changed: dict[str, Any]) -> None:
    """A user's graph that changed between two runs keeps its name. In a folder of trials all rows deviate."""
    scores = {"local": 50.0, "fedavg": 52.0}
    axes = {"dataset": "rings", "partition": "louvain", "clients": 3, "backbone": "gcn"}
    metrics = ["accuracy", "gain_over_local"]
    protocol = parse_protocol("toy", {"metrics": metrics, "grid": {**axes, "method": [*scores]}})
    records = [
        make_record(
            current_cell(
                **axes,
                method=method,
                label=method,
                seed=seed,
                **{"files": "a" * 64, "local_epochs": 9, **state},
            ),
            score + jump + seed**2 / 10 * (method == "fedavg"),
        )
        for state, jump in (({}, 0.0), (changed, 30.0))
        for method, score in scores.items()
        for seed in range(4)
    ]
    for listed in (records, records[::-1]):
        rows = make_rows(protocol, listed)
        (found,) = standings(protocol, rows).values()
        gains = [each.gain.difference for each in found if each.gain is not None]
        assert gains == pytest.approx([2.35, 2.35])
        paired = [row.scores["gain_over_local"].mean for row in rows if row.method == "fedavg"]
        assert paired == pytest.approx([2.35, 2.35])
        if "files" in changed:
            assert [each.ranks["any"] for each in found] == [(1, 3), (2, 4), (1, 3), (2, 4)]


def test_gcn_stands_for_a_method_with_several_networks() -> None:
    (gcn,) = (each for each in contenders() if each.row.method == "fedavg")
    (gat,) = (each for each in contenders("gat") if each.row.method == "fedavg")
    best = replace(gat, gain=contenders()[0].gain)
    assert gains_of([[best, gcn]]) == gains_of([[gcn, best]]) == {"fedavg": [gcn.gain]}
    assert above_local([[best, gcn]]) == {"fedavg": (0, 1)}


def test_megabytes_are_of_one_client_in_a_whole_run() -> None:
    found = {each.row.method: each for each in contenders()}
    rounds = found["fedavg"].row.records[0].rounds
    clients = found["fedavg"].row.cell.clients
    assert found["fedavg"].megabytes == pytest.approx(2 * rounds / clients)
    assert found["fedpub"].megabytes == pytest.approx((2 * rounds + 5) / clients)


def test_a_curve_is_the_mean_over_seeds_and_keeps_both_ends() -> None:
    rounds = [*range(1, 101)]
    records = [
        make_record(
            make_cell(seed=seed),
            curve={"round": rounds, "validation": rounds, "test": [value + seed for value in rounds]},
        )
        for seed in (0, 2)
    ]
    found = mean_curve(records)
    assert len(found) == POINTS
    assert (found[0], found[-1]) == ((1, 2.0), (100, 101.0))


def test_records_with_other_rounds_are_left_out_of_the_mean() -> None:
    long = {"round": [1, 2], "validation": [0.0, 0.0], "test": [1.0, 2.0]}
    short = {"round": [1], "validation": [0.0], "test": [9.0]}
    records = [make_record(make_cell(seed=seed), curve=curve) for seed, curve in enumerate((long, short))]
    assert mean_curve(records) == [(1, 1.0), (2, 2.0)]
    assert mean_curve([]) == []


def test_statistics_of_clients_are_means_over_draws() -> None:
    records = [
        make_record(
            current_cell(method="fedavg", label="fedavg", seed=seed),
            partition_statistics={"intra_share": 0.8 + seed / 10, "label_distance": None},
        )
        for seed in range(2)
    ]
    (found,) = clients_of(make_rows(toy("gcn"), records)).values()
    assert found["intra_share"] == pytest.approx(0.85)
    assert "label_distance" not in found
