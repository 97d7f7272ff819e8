"""Every figure that could be measured and is not says why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.analysis.agreement import NOT_MEASURED
from fedsub.benchmark.analysis.figures import Entry, make_entries
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.execution.estimate import Estimate
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.report.reproduction import markdown
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.studies import campaign
from fedsub.benchmark.studies.campaign import estimate_of
from fedsub.benchmark.studies.missing import CANNOT_RUN, NO_SCORE, SHARED_CORE, with_reasons
from fedsub.methods.core import registry
from tests.benchmark.analysis.test_figures import entry_of
from tests.benchmark.fakes import make_record


def reasons(folder: Path, *tables: str, cells: Iterable[Cell] | None = None) -> list[Entry]:
    """What is not measured in these tables, with its reasons; `cells` are those that can be run."""
    grids = [
        (protocol, grid_cells(protocol) if cells is None else [*cells])
        for protocol in map(load_protocol, tables)
    ]
    records = Records(folder)
    boards = [Leaderboard(protocol, records.of_table(protocol.name, found)) for protocol, found in grids]
    found = with_reasons(make_entries(boards), grids, records)
    return [entry for entry in found if entry.level.word == NOT_MEASURED]


def cells_of(table: str, graph: str, *methods: str) -> list[Cell]:
    cells = grid_cells(load_protocol(table))
    return [cell for cell in cells if cell.dataset.text == graph and (not methods or cell.variant in methods)]


def store(folder: Path, cell: Cell, seed: int, **results: Any) -> None:
    every = dataclasses.asdict(registry.make_options(cell.method, dict(cell.options)))
    record = make_record(dataclasses.replace(cell, seed=seed), default_options=every, **results)
    Store(folder, cell.protocol).append(record)


@pytest.fixture(autouse=True)
def _no_graph_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is the same on a machine without the graphs."""
    monkeypatch.setattr(campaign.graphs, "is_available", lambda name: False)


def test_what_was_not_run_says_what_a_seed_takes(tmp_path: Path) -> None:
    cells = {cell.clients: cell for cell in cells_of("fedpub-2", "cora", "local")}
    store(tmp_path, cells[10], 0, seconds={"setup": 0.0, "train": 150.0, "evaluate": 0.0})
    found = reasons(tmp_path, "fedpub-2")
    assert all(entry.level.reason.startswith("not run: about ") for entry in found)
    other = entry_of(found, "FED-PUB", "2", "Cora", "metis", "5", "Local")
    assert other.level.reason == "not run: about 2 min a seed"
    assert "Local | not run: about 2 min a seed |" in markdown(found, {})
    assert other.to_dict({})["level"]["reason"] == other.level.reason


def test_what_is_compared_takes_all_its_runs_that_are_missing(tmp_path: Path) -> None:
    """A change needs the clients of METIS beside those of K-means: 2 × 30 s of each of three seeds, less what
    was run."""
    cell, _ = cells_of("fedcog-changes", "cora", "fedavg")
    for seed, expected in ((9, "60 s"), (0, "50 s"), (1, "40 s"), (2, "30 s")):
        store(tmp_path, cell, seed, seconds={"setup": 0.0, "train": 30.0, "evaluate": 0.0})
        (entry,) = (
            entry
            for entry in reasons(tmp_path, "fedcog-changes")
            if entry.figure.place[2] == "Cora" and entry.point["method"] == "fedavg"
        )
        assert entry.level.reason == f"not run: about {expected} a seed"


def test_runs_without_the_score_are_not_asked_for_again(tmp_path: Path) -> None:
    (cell,) = (cell for cell in cells_of("fedpub-2", "cora", "local") if cell.clients == 10)
    store(tmp_path, cell, 1, metrics={})
    entry = entry_of(reasons(tmp_path, "fedpub-2"), "FED-PUB", "2", "Cora", "metis", "10", "Local")
    assert entry.level.reason == NO_SCORE


def test_seconds_of_a_shared_core_are_no_measurement(tmp_path: Path) -> None:
    (cell,) = cells_of("fedcog-3", "dblp")
    store(tmp_path, cell, 0, core_share=0.5, extras={"propagation_seconds": 1.0})
    found = [entry for entry in reasons(tmp_path, "fedcog-3") if entry.figure.place[2] == "DBLP"]
    assert found
    assert {entry.level.reason for entry in found} == {SHARED_CORE}


def test_a_cell_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    found = reasons(tmp_path, "fedpub-2", cells=[])
    assert found
    assert {entry.level.reason for entry in found} == {CANNOT_RUN}


def test_what_a_user_ran_besides_moves_no_estimate(tmp_path: Path) -> None:
    """As the quick table of `make bench`, after which the pages in git are compared with the records."""
    protocol = load_protocol("fedpub-2")
    grids = [(protocol, grid_cells(protocol))]
    (cell, *_) = (cell for cell in grids[0][1] if cell.method == "local")
    Store(tmp_path, "fedpub-2").append(make_record(cell, 66.0, seconds={"train": 10.0}))
    before = estimate_of(grids, Records(tmp_path)).seconds(cell)
    own = replace(cell, protocol="quick")
    Store(tmp_path, "quick").append(make_record(own, 66.0, seconds={"train": 9000.0}))
    records = Records(tmp_path)
    assert estimate_of(grids, records).seconds(cell) == before
    assert Estimate(records.every()).seconds(cell) != before
