"""Equal work is run once and answers every table, and nothing else does."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.runner import failed, run
from fedsub.benchmark.records.folder import Records, answers, run_once
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.spec.cell import FIELDS, Cell
from tests.benchmark.fakes import make_cell, make_record, quick_run, with_settings

KEY = re.compile(r'\{"key":"(\w+)"')
OTHER_VALUES: dict[str, Any] = {
    "dataset": "citeseer", "partition": "louvain", "clients": 6, "method": "local", "seed": 1,
    "options": {"mu": 0.5}, "task": "link-prediction", "largest_component": True,
    "features": "row-normalised", "binarise": True, "split": "ratio[train=0.1,validation=0.1,test=0.8]",
    "backbone": "sgc", "hidden": [16], "head": "convolution", "dropout": 0.25, "input_norm": True, "hops": 3,
    "rounds": 7, "local_epochs": 3, "learning_rate": 0.5, "weight_decay": 0.5, "optimiser": "sgd",
    "weighting": "uniform", "evaluate_every": 2, "evaluate": "received", "selection": "last",
    "accuracy": "pooled", "data_seed": 5, "kernel": "dgl", "device": "cuda", "files": "abc",
    "versions": "metis=2", "selection_metric": "roc_auc", "features_removed": 0.1, "feature_flips": 0.1,
    "feature_noise": 0.1, "edges_removed": 0.1, "class_edges_removed": 0.1, "labels_kept": 0.1,
    "labels_stratified": True, "label_noise": 0.1, "participation": 0.5, "stragglers": 0.5,
    "leavers": "0@1", "privacy_noise": 0.5, "privacy_clip": 2.0,
    "privacy_delta": 0.1, "quantise": 8, "top_k": 0.25, "error_feedback": True,
    "evaluate_dropout": True, "outputs": "probabilities", "norm": "layer",
    "residual": True, "heads": 4, "gpr_hops": 3, "gpr_alpha": 0.5,
}  # fmt: skip


def test_every_setting_but_the_table_and_the_label_is_other_work() -> None:
    # Some settings need room made by others.
    cell = make_cell(local_epochs=2, privacy_clip=1.0, top_k=0.5)
    assert {*OTHER_VALUES} == {*FIELDS} - {"protocol", "label", "paths", "further_metrics"}
    for name, value in OTHER_VALUES.items():
        assert not answers(cell, with_settings(cell, protocol="another", **{name: value})), name
    assert answers(cell, with_settings(cell, protocol="another", label="another"))


def test_equal_work_has_one_key_for_each_seed() -> None:
    cells = [make_cell(protocol=table, seed=seed) for table in ("first", "second") for seed in range(3)]
    keys = [cell.work_key for cell in cells]
    assert keys[:3] == keys[3:]
    assert len({*keys}) == 3


def test_whatever_is_negative_draws_with_the_seed_of_the_run() -> None:
    assert answers(make_cell(data_seed=-5), make_cell(protocol="another"))
    assert [make_cell(seed=3, data_seed=drawn).drawn_with for drawn in (-5, -1, 0, 2)] == [3, 3, 0, 2]


def test_a_score_more_answers_and_a_score_less_does_not() -> None:
    cell = make_cell(further_metrics=["macro_f1"])
    assert answers(cell, make_cell(protocol="another"))
    assert not answers(make_cell(protocol="another"), cell)
    assert [*run_once([make_cell(protocol="another"), cell])] == [cell]


def test_clients_drawn_with_the_seed_of_the_run_are_so_in_either_spelling() -> None:
    for seed in range(3):
        once = make_cell(protocol="once", data_seed=0, seed=seed)
        assert answers(make_cell(seed=seed), once) is (seed == 0)
    usual = ("community[nodes=200]", "metis", 3, "fedavg", 2)
    settings = dict(zip(("dataset", "partition", "clients", "method", "seed"), usual, strict=True))
    made = [run(make_cell(**settings, rounds=2, data_seed=drawn)) for drawn in (-1, 2, 1)]
    assert made[0].metrics == made[1].metrics
    curves = [{**record.curve, "seconds": None} for record in made]
    assert curves[0] == curves[1] != curves[2]


def test_a_record_of_another_table_answers_and_says_whence(tmp_path: Path) -> None:
    cell = make_cell(protocol="first", label="as first spells it")
    Store(tmp_path, "first").append(make_record(cell, 61.0))
    asked = with_settings(cell, protocol="second", label="as second spells it")
    records = Records(tmp_path)
    found = records.get(asked)
    assert found is not None
    assert found.cell == asked
    assert found.cell.label == "as second spells it"
    assert found.source == cell
    assert found.stored_key == cell.key != found.key
    assert found.to_dict()["source"] == {"protocol": "first", "key": cell.key}
    assert records.of_table("second", [with_settings(asked, seed=4)]) == [found]
    assert records.of_table("second") == []
    assert not (tmp_path / "runs" / "second.jsonl").exists()


def test_the_memory_expected_is_that_of_the_records_as_they_come(tmp_path: Path) -> None:
    cell, records = make_cell(), Records(tmp_path)
    assert records.peak_memory(cell) == 0
    records.store("toy").append(make_record(cell, peak_memory_mb=512.5))
    records.refresh()
    assert records.peak_memory(cell) == 512.5
    other = with_settings(cell, protocol="other")
    Store(tmp_path, "other").append(make_record(other, peak_memory_mb=600.5))
    records.store("other")
    assert records.peak_memory(cell) == 600.5


def test_a_cells_own_success_comes_first_and_its_own_failure_last(tmp_path: Path) -> None:
    cell, asked = make_cell(protocol="first"), make_cell(protocol="second")
    records = Records(tmp_path)
    records.store("second").append(failed(asked, "it was told to fail"))
    records.refresh()
    assert [record.status for record in records.of_table("second", [asked])] == ["failed"]
    records.store("first").append(make_record(cell, 61.0))
    records.refresh()
    assert [record.metrics["accuracy"] for record in records.of_table("second", [asked])] == [61.0]
    records.store("second").append(make_record(asked, 62.0))
    records.refresh()
    found = records.get(asked)
    assert found is not None
    assert (found.metrics["accuracy"], found.source) == (62.0, None)


def test_a_failure_answers_no_other_table(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.store("first").append(failed(make_cell(protocol="first"), "it was told to fail"))
    records.refresh()
    assert records.get(make_cell(protocol="second")) is None


def test_a_table_of_one_draw_takes_what_other_tables_made_of_that_draw(tmp_path: Path) -> None:
    for seed in range(3):
        Store(tmp_path, "anew").append(make_record(make_cell(protocol="anew", seed=seed)))
    template = make_cell(protocol="once", data_seed=1)
    found = Records(tmp_path).of_table("once", [template])
    assert [(record.cell.seed, record.cell.data_seed) for record in found] == [(1, 1)]


TABLE = """
title = "{title}"
seeds = 2
[grid]
dataset = "community"
partition = "metis"
clients = 3
method = ["local", "fedavg"]
backbone = "gcn"
"""


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{name}.toml" for name in ("first", "second")]
    for path in paths:
        path.write_text(TABLE.format(title=path.stem))
    return [str(path) for path in paths]


def test_a_run_of_two_equal_tables_runs_every_cell_once_and_fills_both_pages(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Cell] = []

    def work(cell: Cell) -> Record:
        ran.append(cell)
        return quick_run(cell)

    results = tmp_path / "results"
    argv = ["--table", *tables, "--engine", "in-process", "--results", str(results)]
    assert main(parse(argv), work) == 0
    assert "8 cells: 0 done before, 4 to run, 4 equal to those" in capsys.readouterr().err
    assert [cell.protocol for cell in ran] == ["first"] * 4
    assert not (results / "runs" / "second.jsonl").exists()
    pages = [(results / "leaderboards" / f"{name}.md").read_text() for name in ("first", "second")]
    assert "of equal work" not in pages[0]
    assert "4 runs. 4 of them, of equal work, stand in first." in pages[1]
    assert main(parse([*argv, "--dry-run"]), work) == 0
    captured = capsys.readouterr()
    assert "8 cells: 8 done before, 0 to run" in captured.err
    assert captured.out.count("  done  ") == 8
    assert main(parse([*argv, "--seeds", "1", "--rerun"]), work) == 0
    assert len(ran) == 4 + 4
    assert replace(ran[0], protocol="second", label="") in ran


def test_a_record_is_labelled_as_the_cell_that_asks_for_it(tmp_path: Path) -> None:
    """A variant was run by its options; later the table has it under a name of its own."""
    asked = make_cell(label="fedavg, as the table has it")
    store = Store(tmp_path, asked.protocol)
    store.append(make_record(replace(asked, label="fedavg[as=run]")))
    records = Records(tmp_path)
    found = records.get(asked)
    assert found is not None
    assert (found.cell.variant, found.source) == (asked.label, None)
    assert [record.cell.variant for record in records.of_table(asked.protocol, [asked])] == [asked.label]


def test_a_row_off_the_grid_has_the_seeds_of_other_tables_too(tmp_path: Path) -> None:
    """Three seeds were asked for, of which another table had one."""
    Store(tmp_path, "other").append(make_record(make_cell(protocol="other", rounds=3), 60.0))
    for seed in (1, 2):
        Store(tmp_path, "own").append(
            make_record(make_cell(protocol="own", rounds=3, seed=seed), 61.0 + seed)
        )
    found = Records(tmp_path).of_table("own")
    assert sorted(record.cell.seed for record in found) == [0, 1, 2]
    assert {record.cell.protocol for record in found} == {"own"}


def test_no_key_of_the_published_records_has_two_results() -> None:
    """A rerun takes the place of a record, and code that gives other results raises a version."""
    runs = Path(__file__).parents[3] / "results/runs"
    for path in sorted(runs.glob("*.jsonl")):
        keys = Counter(found.group() for found in map(KEY.match, path.open()) if found)
        assert not [key for key, count in keys.items() if count > 1], path.name
