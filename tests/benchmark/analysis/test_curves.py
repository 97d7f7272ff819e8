import pytest

from fedsub.benchmark.analysis.scores import POINTS, clients_of, make_rows, mean_curve
from fedsub.benchmark.spec.protocol import parse_protocol
from tests.benchmark.fakes import current_cell, make_cell, make_record


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
    grid = {"dataset": "cora", "partition": "metis", "clients": 5, "backbone": "gcn", "method": ["fedavg"]}
    records = [
        make_record(
            current_cell(method="fedavg", label="fedavg", seed=seed),
            partition_statistics={"intra_share": 0.8 + seed / 10, "label_distance": None},
        )
        for seed in range(2)
    ]
    (found,) = clients_of(make_rows(parse_protocol("toy", {"grid": grid}), records)).values()
    assert found["intra_share"] == pytest.approx(0.85)
    assert "label_distance" not in found
