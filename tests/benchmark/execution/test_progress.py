"""Estimates of the time that cells take."""

from pathlib import Path

from fedsub.benchmark.execution.progress import expected_seconds
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.cell import Cell
from tests.benchmark.fakes import ENVIRONMENT, failed, make_cell, make_record


def test_the_estimate_takes_what_is_most_alike(tmp_path: Path) -> None:
    cells = [
        make_cell(rounds=10, clients=99),
        make_cell(rounds=10, dataset="citeseer", method="local"),
        make_cell(rounds=10, dataset="pubmed"),
    ]

    def expected() -> list[float]:
        found = expected_seconds(cells, Records(tmp_path))
        return [found[cell.key] for cell in cells]

    assert expected() == [10, 10, 10]
    records = Records(tmp_path)
    for record in (
        make_record(make_cell(rounds=2), seconds={"setup": 1.0, "train": 2.0, "evaluate": 1.0}),
        make_record(make_cell(rounds=2, dataset="citeseer"), seconds={"setup": 1.0, "train": 7.0}),
    ):
        records.append(record)
    # For a method without a record, other methods on the graph count; without any, all graphs of the run.
    assert expected() == [20, 40, 30]


def test_a_failure_tells_no_time_and_seconds_are_of_a_core(tmp_path: Path) -> None:
    cell, seconds = make_cell(rounds=1), {"setup": 0.0, "train": 3.0}
    other = make_cell(rounds=1, method="local")

    def expected(wanted: Cell) -> float:
        return expected_seconds([cell, other], records)[wanted.key]

    records = Records(tmp_path)
    records.append(failed(make_cell(seed=1), "it was told to fail"))
    assert expected(cell) == 1
    records.append(make_record(cell, environment={**ENVIRONMENT, "threads": 4}, seconds=seconds))
    assert expected(cell) == 12
    records.append(make_record(other, seconds=seconds, core_share=0.5))
    assert expected(other) == 1.5
