"""What cells are likely to take, and how that is said."""

from __future__ import annotations

import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedsub.benchmark.execution import progress
from fedsub.benchmark.execution.estimate import UNKNOWN_SECONDS, Estimate, duration
from fedsub.benchmark.execution.progress import GridProgress
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from tests.benchmark.fakes import ENVIRONMENT, failed, make_cell, make_record


def test_the_estimate_takes_what_is_most_alike() -> None:
    near = make_record(make_cell(rounds=2), seconds={"setup": 5.0, "train": 2.0, "evaluate": 1.0})
    other = make_record(make_cell(rounds=1, dataset="citeseer"), seconds={"setup": 1.0, "train": 4.5})
    estimate = Estimate([near, other])
    # Set up once, whatever the number of rounds.
    assert estimate.seconds(make_cell(rounds=10)) == 5 + 10 * 1.5
    assert estimate.seconds(make_cell(rounds=10, clients=99)) == 5 + 10 * 1.5
    # Of a method without a record the graph tells both.
    local = make_cell(rounds=1, dataset="citeseer", method="local")
    assert estimate.seconds(local) == pytest.approx(1 + 4.5)
    # Of a graph without one the method does, which took 5 and 1.5 s on one graph, 1 and 4.5 s on another.
    assert 1 + 1.5 < estimate.seconds(make_cell(rounds=1, dataset="pubmed")) < 5 + 4.5
    assert Estimate([]).seconds(make_cell()) == UNKNOWN_SECONDS


def test_a_table_of_other_width_or_rounds_is_asked_last() -> None:
    def cell(hidden: int = 128, local_epochs: int = 1, backbone: str = "gcn") -> Cell:
        return make_cell(rounds=1, hidden=[hidden], local_epochs=local_epochs, backbone=backbone)

    def taken(of: Cell, seconds: float) -> Record:
        return make_record(of, seconds={"setup": 0.0, "train": seconds})

    estimate = Estimate([taken(cell(64, 5), 10.0), taken(cell(backbone="sgc"), 90.0)])
    assert estimate.seconds(cell(64, 5, "sgc")) == 10
    assert estimate.seconds(cell(backbone="sgc")) == 90
    assert estimate.seconds(cell(64, 1, "sgc")) == (2 + 90) / 2


def test_what_was_stored_last_tells_where_code_became_faster() -> None:
    def taken(seconds: float, seed: int) -> Record:
        return make_record(make_cell(rounds=1, seed=seed), seconds={"setup": 0.0, "train": seconds})

    slow = [taken(40.0, seed) for seed in range(20)]
    fast = [taken(2.0, seed) for seed in range(20, 29)]
    assert Estimate(slow).seconds(make_cell(rounds=10)) == 400
    assert Estimate([*slow, *fast]).seconds(make_cell(rounds=10)) == 20


def test_another_variant_is_asked_only_where_its_own_is_nowhere() -> None:
    def taken(dataset: str, seconds: float, **options: float) -> Record:
        cell = make_cell(rounds=1, dataset=dataset, method="fedprox", options=options)
        return make_record(cell, seconds={"setup": 0.0, "train": seconds})

    records = [taken("cora", 1.0), taken("cora", 50.0, mu=0.5), taken("pubmed", 200.0, mu=0.5)]
    estimate = Estimate(records)
    # A graph on which everything takes four times as long.
    assert estimate.seconds(make_cell(rounds=1, dataset="pubmed", method="fedprox")) == pytest.approx(4)
    other = make_cell(rounds=1, dataset="pubmed", method="fedprox", options={"mu": 0.1})
    assert estimate.seconds(other) == 200


def test_set_up_is_the_methods_times_the_graphs() -> None:
    """As FedSage+'s, which trains generators as wide as the graph's features."""
    took = (("cora", "fedavg", 1.0), ("cora", "local", 9.0), ("pubmed", "fedavg", 4.0))
    estimate = Estimate(
        make_record(make_cell(rounds=1, dataset=graph, method=method), seconds={"setup": setup, "train": 2.0})
        for graph, method, setup in took
    )
    wanted = (("pubmed", "local", 36), ("pubmed", "fedprox", 12), ("citeseer", "fedavg", 2))
    for graph, method, setup in wanted:
        elsewhere = make_cell(rounds=1, dataset=graph, method=method)
        assert estimate.seconds(elsewhere) == pytest.approx(setup + 2)


def test_set_up_costs_a_node_no_less_than_on_a_smaller_graph() -> None:
    """FedSage+'s grows faster from graph to graph than those of the methods that tell what one costs."""
    took = (
        ("cora", "fedavg", 0.1), ("coauthor_cs", "fedavg", 1.0), ("coauthor_physics", "fedavg", 2.0),
        ("cora", "fedsage+", 4.0), ("coauthor_cs", "fedsage+", 400.0), ("pubmed", "fedavg", 0.5),
    )  # fmt: skip
    estimate = Estimate(
        make_record(make_cell(rounds=1, dataset=graph, method=method), seconds={"setup": setup, "train": 2.0})
        for graph, method, setup in took
    )
    wanted = make_cell(rounds=1, dataset="coauthor_physics", method="fedsage+")
    assert estimate.seconds(wanted) == pytest.approx(400 * 34493 / 18333 + 2)
    # PubMed has more nodes than Cora and CS, but fewer features: they tell nothing of it.
    assert estimate.seconds(make_cell(rounds=1, dataset="pubmed", method="fedsage+")) < 400


def test_cells_of_as_many_clients_and_of_the_task_are_asked_first() -> None:
    link = "link-prediction"
    taken = [(make_cell(clients=5), 10.0), (make_cell(clients=20), 50.0), (make_cell(task=link), 700.0)]
    records = [make_record(cell, seconds={"train": cell.schedule.rounds * each}) for cell, each in taken]
    estimate, rounds = Estimate(records), make_cell().schedule.rounds
    assert [estimate.seconds(make_cell(clients=count)) / rounds for count in (5, 20, 9)] == [10, 50, 30]
    assert estimate.seconds(make_cell(clients=20, task=link)) / rounds == 700


def test_a_failure_tells_no_time_and_threads_are_cores() -> None:
    cell = make_cell(rounds=1)
    took = {"setup": 0.0, "train": 3.0}
    four = make_record(cell, environment={**ENVIRONMENT, "threads": 4}, seconds=took)
    assert Estimate([four, failed(make_cell(seed=1), "it was told to fail")]).seconds(cell) == 12
    assert Estimate([failed(cell, "it was told to fail")]).seconds(cell) == UNKNOWN_SECONDS


def test_more_local_epochs_take_longer() -> None:
    record = make_record(make_cell(rounds=2, local_epochs=2), seconds={"setup": 1.0, "train": 4.0})
    assert Estimate([record]).seconds(make_cell(rounds=10, local_epochs=3)) == 1 + 30 * 1.0


@given(
    graph=st.lists(st.floats(-3, 3), min_size=2, max_size=4),
    method=st.lists(st.floats(-3, 3), min_size=2, max_size=4),
)
def test_a_method_new_to_a_graph_costs_what_both_say(graph: list[float], method: list[float]) -> None:
    """Where every epoch is a graph's factor times a method's, the pair without a record comes out too."""
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


def test_the_estimate_is_of_a_core_of_its_own() -> None:
    seconds = {"setup": 5.0, "train": 2.0, "evaluate": 1.0}
    shared = make_record(make_cell(rounds=2), seconds=seconds, core_share=0.5)
    assert Estimate([shared]).seconds(make_cell(rounds=10)) == 2.5 + 10 * 0.75


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5940, "99 min"), (6000, "1.7 h"), (111048, "30.8 h")],
)
def test_times_are_said_in_a_unit_that_is_read_at_once(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_what_is_left_is_weighed_by_what_such_cells_took(monkeypatch: pytest.MonkeyPatch) -> None:
    cheap, dear = make_cell(rounds=1), make_cell(rounds=1, method="fedpub")
    took = {"setup": 0.0, "evaluate": 0.0}
    records = [
        make_record(cheap, seconds={**took, "train": 1.0}),
        make_record(dear, seconds={**took, "train": 3600.0}),
    ]
    clock = iter((0.0, 2.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    told = io.StringIO()
    shown = GridProgress([cheap, dear], Console(file=told, width=progress.WIDTH), Estimate(records))
    shown.finished(records[0])
    # 2 s for what took 1 s before: 7200 s for what took 3600 s.
    assert re.search(r"^\[1/2\] .* \(about 2.0 h left\)$", told.getvalue().strip())
