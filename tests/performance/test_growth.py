"""A round as edges grow, and cells by one process and by two."""

from __future__ import annotations

from typing import Any

import pytest

from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.engines import ProcessPool
from fedsub.benchmark.execution.runner import attempt, failed
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.studies.peers.our_worker import make_federation, make_method, one_round

CELLS = 4
"""For each process."""


@pytest.mark.parametrize("edges", [10_000, 100_000, 1_000_000])
def test_round_by_edges(benchmark: Any, edges: int) -> None:
    graph = f"community[nodes={edges // 10},average_degree=20,features=64,words=32,communities=100]"
    method = make_method(make_federation(graph, 10))
    method.build()
    benchmark.pedantic(one_round(method), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("processes", [1, 2])
def test_cells_by_processes(benchmark: Any, dataset_name: str, processes: int) -> None:
    """Twice the cells for two processes: the time of one, where they do not hold each other up."""
    asked = ["--dataset", dataset_name, "--method", "fedavg", "--clients", "10", "--rounds", "100"]
    cells = make_plan(parse([*asked, "--seeds", str(CELLS * processes)]).request).cells

    def run() -> None:
        assert all(record.status == "ok" for record in ProcessPool(processes).map(attempt, cells, failed))

    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
