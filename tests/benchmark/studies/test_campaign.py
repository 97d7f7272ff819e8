"""The campaign runs what answers printed figures, most figures per second first, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsub.benchmark.execution.engines import RunCell
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.studies.command import main
from tests.benchmark.fakes import failed, quick_run, stored

TABLE = "fedpub-2"
CORA = ("--table", TABLE, "--dataset", "cora", "--clients", "10", "--method", "local", "fedavg", "central")


def campaign(folder: Path, *argv: str, work: RunCell = quick_run) -> int:
    here = ("--engine", "in-process", "--workers", "1", "--results", str(folder))
    return main(["campaign", *here, *argv], work)


@pytest.fixture(autouse=True)
def _graphs_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsub.datasets.registry.is_available", lambda dataset: True)


def test_what_answers_a_figure_is_run_and_nothing_else(tmp_path: Path) -> None:
    """Central is in the table and not in print."""
    assert campaign(tmp_path, *CORA, "--seeds", "2") == 0
    records = stored(tmp_path, TABLE)
    assert {(record["method"], record["seed"]) for record in records} == {
        (method, seed) for method in ("local", "fedavg") for seed in (0, 1)
    }
    assert (tmp_path / "leaderboards" / f"{TABLE}.md").is_file()


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    def until_second(cell: Cell) -> Record:
        if len(ran) == 1:
            raise KeyboardInterrupt
        ran.append(cell.key)
        return quick_run(cell)

    ran: list[str] = []
    assert campaign(tmp_path, *CORA, "--seeds", "2", work=until_second) == 130
    again: list[str] = []

    def noting(cell: Cell) -> Record:
        again.append(cell.key)
        return quick_run(cell)

    assert campaign(tmp_path, *CORA, "--seeds", "2", work=noting) == 0
    assert len(again) == 3
    assert not {*again} & {*ran}


def test_no_cell_begins_after_the_hours(tmp_path: Path) -> None:
    assert campaign(tmp_path, *CORA, "--hours", "1e-9") == 0
    assert not stored(tmp_path, TABLE)


def test_failures_are_named_and_cost_no_other_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(cell: Cell) -> Record:
        return failed(cell, "it stumbled") if cell.method == "local" else quick_run(cell)

    assert campaign(tmp_path, *CORA, "--seeds", "1", work=some) == 1
    assert "it stumbled" in capsys.readouterr().err
    assert {record["status"] for record in stored(tmp_path, TABLE)} == {"ok", "failed"}


def test_a_dry_run_lists_rows_of_the_cheapest_figures_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = ("--table", TABLE, "--dataset", "cora", "--clients", "10", "--method", "fedavg", "--seeds", "1")
    assert campaign(tmp_path, *timed, work=quick_run) == 0
    capsys.readouterr()
    assert campaign(tmp_path, *CORA, "--seeds", "2", "--dry-run") == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert "3 cells to run" in captured.err
