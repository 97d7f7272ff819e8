"""`--authors`: what is run, kept, run again, compared and shown; the public code is played."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fedsub.benchmark.analysis.public_code import CODES, AuthorsRuns, PublicCode, Run, compare, load
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.report.summaries import write_authors_page
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.studies.authors.command import plan
from fedsub.benchmark.studies.command import main as study
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record, quick_run

CHECKOUTS = Path(__file__).parent / "checkouts"
TABLE, GRAPH = "quick", "community"
PLAYED = ("authors", f"fedpub={CHECKOUTS / 'fedpub'}", "--python", sys.executable)
CELLS = ("--method", "local", "--seeds", "2", "--clients", "5", "--set", "rounds=2")


@pytest.fixture
def _small_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    small = msgspec.structs.replace(CODES["fedpub"], datasets=(GRAPH,), tables={TABLE: (5,)})
    monkeypatch.setitem(CODES, "fedpub", small)


def make_run(number: int, accuracy: float, **changed: str | float) -> Run:
    cell = make_cell(seed=number)
    run = Run(
        "fedpub", "abc", cell.key, "default", "cora", "metis", 5, "fedavg", "gcn", number, number,
        {"accuracy": accuracy}, 100, 30.0, 0.95,
    )  # fmt: skip
    return msgspec.structs.replace(run, **changed)


def board_of(table: str, records: Sequence[Record]) -> Leaderboard:
    return Leaderboard(load_protocol(table), records)


@pytest.mark.usefixtures("_small_graph")
def test_runs_are_kept_not_repeated_and_shown_beside_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = ("--results", str(tmp_path))
    assert study([*PLAYED, *CELLS, *results]) == 0
    path = tmp_path / "authors" / "fedpub.jsonl"
    first = path.read_bytes()
    lines = [json.loads(line) for line in first.splitlines()]
    assert [line["seed"] for line in lines] == [0, 1]
    assert {line["method"] for line in lines} == {"local"}
    assert all(line["seconds_per_round"] == round(line["seconds"] / 2, 6) for line in lines)
    assert study([*PLAYED, *CELLS, *results]) == 0
    assert path.read_bytes() == first
    assert "2 runs, 0 of them to run" in capsys.readouterr().err

    ours = ["--table", TABLE, "--dataset", GRAPH, "--engine", "in-process", *CELLS, *results]
    assert main(parse(ours), quick_run) == 0
    runs, records = load(tmp_path), [*Records(tmp_path).every()]
    assert {record.key for record in records} == set(runs)
    overall, local = compare(runs, [board_of(TABLE, records)])
    assert (overall.place, local.place) == (None, (GRAPH, "metis", 5))
    expected = [50.0 + line["seed"] - line["metrics"]["accuracy"] for line in lines]
    assert overall.differences == pytest.approx(expected)
    page = (tmp_path / "leaderboards" / f"{TABLE}.md").read_text()
    assert f"authors {sum(line['metrics']['accuracy'] for line in lines) / 2:.2f}" in page
    assert main(parse(["report", *results])) == 0
    assert (tmp_path / "authors.md").is_file()
    # A cell without its graph is a failure.
    monkeypatch.setattr(f"{plan.__module__}.keep_available", lambda *_, **__: ([], []))
    assert study([*PLAYED, *CELLS, *results, "--rerun"]) == 1


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
def test_only_cells_that_its_tables_have_are_run(code: PublicCode) -> None:
    """A graph that a table does not have gives no record of ours to compare with."""
    present = {replace(c, seed=0).key for table in code.tables for c in grid_cells(load_protocol(table))}
    assert {replace(cell, seed=0).key for cell in plan(code, parse([]).request)} <= present
    with pytest.raises(UserError, match="leavers is not passed"):
        plan(code, parse(["--set", "leavers=0@1"]).request)


@pytest.mark.usefixtures("_small_graph")
def test_a_dry_run_lists_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study([*PLAYED, *CELLS, "--dry-run", "--results", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert not list(tmp_path.iterdir())


def test_torn_and_foreign_lines_are_passed_over_and_the_latest_run_counts(tmp_path: Path) -> None:
    kept = AuthorsRuns(tmp_path, "fedpub")
    kept.add(make_run(0, 70.0))
    (good,) = kept.path.read_bytes().splitlines()
    deep = b'{"environment": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with kept.path.open("ab") as file:
        file.write(good.replace(b"fedpub", b"fed\xffub") + b"\n" + deep + b"\n")
        file.write(b'{"code": "fedpub"}\n{"code": "fedp')
    again = AuthorsRuns(tmp_path, "fedpub")
    again.add(make_run(0, 71.0))
    again.add(make_run(0, 72.0, commit="def"))
    assert [run.metrics["accuracy"] for run in load(tmp_path)[make_cell().key]] == [71.0, 72.0]
    with pytest.raises(UserError, match="not numbers"):
        again.add(make_run(1, math.nan))


def test_a_draw_counts_where_both_have_a_score(tmp_path: Path) -> None:
    """Our record lacks one metric in the second draw, and another metric in every draw."""
    cells = [make_cell(seed=k) for k in range(2)]
    theirs = {"accuracy": 58.0, "minority_accuracy": 40.0, "roc_auc": 80.0}
    runs = {
        cell.key: [msgspec.structs.replace(make_run(k, 58.0), metrics=theirs)] for k, cell in enumerate(cells)
    }
    scores: list[dict[str, float | None]] = [
        {"accuracy": 60.0, "minority_accuracy": 44.0},
        {"accuracy": 62.0, "minority_accuracy": None},
    ]
    records = [make_record(cell, metrics=found) for cell, found in zip(cells, scores, strict=True)]
    compared = compare(runs, [board_of("default", records)])
    found = {each.metric: each.differences for each in compared if each.place is None}
    assert found == {"accuracy": [2.0, 4.0], "minority_accuracy": [4.0]}
    elsewhere = replace(compared[0].pairs[0], run=make_run(0, 58.0, clients=9))
    assert replace(compared[0], pairs=[*compared[0].pairs, elsewhere]).verdict.count == 2
    page = write_authors_page(tmp_path, runs, compared).read_text()
    assert "| minority accuracy % | 1 | 44.00 | 40.00 | +4.00 |" in page
    assert "Without a record of ours" not in page
