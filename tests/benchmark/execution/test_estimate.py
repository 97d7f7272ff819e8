"""What cells are likely to take, and how that is said."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.benchmark.execution.estimate import UNKNOWN_SECONDS, Estimate
from tests.benchmark.fakes import ENVIRONMENT, failed, make_cell, make_record


def test_the_estimate_takes_what_is_most_alike() -> None:
    near = make_record(make_cell(rounds=2), seconds={"setup": 5.0, "train": 2.0, "evaluate": 1.0})
    other = make_record(make_cell(rounds=1, dataset="citeseer"), seconds={"setup": 1.0, "train": 4.5})
    estimate = Estimate([near, other])
    # Set-up is counted once, whatever the number of rounds.
    assert estimate.seconds(make_cell(rounds=10)) == 5 + 10 * 1.5
    assert estimate.seconds(make_cell(rounds=10, clients=99)) == 5 + 10 * 1.5
    # For a method without a record, set-up and training time come from the graph.
    local = make_cell(rounds=1, dataset="citeseer", method="local")
    assert estimate.seconds(local) == pytest.approx(1 + 4.5)
    # For a graph without a record, from the method: 5 and 1.5 s on one graph, 1 and 4.5 s on another.
    assert 1 + 1.5 < estimate.seconds(make_cell(rounds=1, dataset="pubmed")) < 5 + 4.5
    assert Estimate([]).seconds(make_cell()) == UNKNOWN_SECONDS


def test_a_failure_tells_no_time_and_seconds_are_of_a_core() -> None:
    cell, seconds = make_cell(rounds=1), {"setup": 0.0, "train": 3.0}
    four = make_record(cell, environment={**ENVIRONMENT, "threads": 4}, seconds=seconds)
    assert Estimate([four, failed(make_cell(seed=1), "it was told to fail")]).seconds(cell) == 12
    assert Estimate([make_record(cell, seconds=seconds, core_share=0.5)]).seconds(cell) == 1.5
    assert Estimate([failed(cell, "it was told to fail")]).seconds(cell) == UNKNOWN_SECONDS


@given(
    graph=st.lists(st.floats(-3, 3), min_size=2, max_size=4),
    method=st.lists(st.floats(-3, 3), min_size=2, max_size=4),
)
def test_a_method_new_to_a_graph_costs_what_both_say(graph: list[float], method: list[float]) -> None:
    """If an epoch's time is a graph's factor times a method's, the pair without a record is exact too."""
    methods = ["fedavg", "local", "fedprox", "fedpub"][: len(method)]
    graphs = ["cora", "citeseer", "pubmed", "amazon_photo"][: len(graph)]
    pairs = {
        (place, name): math.exp(first + second)
        for place, first in zip(graphs, graph, strict=True)
        for name, second in zip(methods, method, strict=True)
    }
    missing = (graphs[-1], methods[-1])
    records = [
        make_record(make_cell(dataset=place, method=name, rounds=1), seconds={"setup": 0.0, "train": taken})
        for (place, name), taken in pairs.items()
        if (place, name) != missing
    ]
    wanted = make_cell(dataset=missing[0], method=missing[1], rounds=1)
    assert Estimate(records).seconds(wanted) == pytest.approx(pairs[missing], rel=1e-6)
