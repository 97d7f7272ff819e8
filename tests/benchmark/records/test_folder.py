"""One record for one piece of work: it answers every table that asks for it, and nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyarrow.parquet import read_schema

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.curves import SCALE
from fedsub.benchmark.records.folder import TRIALS, Records, add, distinct, forget
from fedsub.benchmark.records.record import Record, Result, cell_of
from fedsub.benchmark.records.store import Store, file_of
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.request import SEARCH_SEEDS
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import ENVIRONMENT, failed, make_cell, make_record, quick_run, with_settings


def test_a_score_more_answers_and_a_score_less_does_not(tmp_path: Path) -> None:
    plain, more = make_cell(), make_cell(protocol="another", further_metrics=["macro_f1"])
    other = make_cell(further_metrics=["minority_accuracy"])
    records = Records(tmp_path)
    assert records.append(make_record(plain, 61.0))
    assert [records.done(cell) for cell in (plain, more, other)] == [True, False, False]
    assert records.append(make_record(more, 62.0))
    assert records.append(make_record(other, 63.0))
    assert all(map(records.done, (plain, more, other)))
    found = [record.metrics["accuracy"] for cell in (plain, more, other) if (record := records.get(cell))]
    assert found == [63.0, 62.0, 63.0]


def test_equal_cells_are_run_once_with_all_that_any_of_them_scores() -> None:
    more = make_cell(protocol="another", further_metrics=["macro_f1"])
    (once, other) = distinct([make_cell(), more, make_cell(seed=1)])
    assert (once.protocol, once.further_metrics, once.key) == ("toy", ("macro_f1",), more.key)
    assert other.seed == 1


def test_a_record_answers_every_table_that_asks_for_its_work(tmp_path: Path) -> None:
    cell = make_cell(protocol="first", label="as first spells it")
    records = Records(tmp_path)
    records.append(make_record(cell, 61.0))
    asked = with_settings(cell, protocol="second", label="as second spells it")
    found = records.get(asked)
    assert found is not None
    assert (found.cell.protocol, found.cell.label) == ("second", "as second spells it")
    assert found.key == cell.key
    assert records.of_table("second", [with_settings(asked, seed=4)]) == [found]
    assert records.of_table("second") == []
    assert records.of_tables(["first"]) == [*records.every()]
    assert records.tables() == ["first"]


def test_a_table_has_the_order_of_its_grid(tmp_path: Path) -> None:
    records = Records(tmp_path)
    cells = [make_cell(method=name) for name in ("local", "fedavg", "fedprox", "fedper")]
    for cell in cells:
        records.append(make_record(cell, 61.0))
    for order in (cells, cells[::-1]):
        assert [record.cell for record in records.of_table("toy", order)] == order


def test_a_record_in_two_files_counts_once_and_a_success_before_a_failure(tmp_path: Path) -> None:
    records, ran, late = Records(tmp_path), make_cell(), make_cell(seed=1)
    records.append(make_record(ran, 61.0))
    records.append(failed(late, "no room"))
    path = tmp_path / "runs" / f"{file_of(ran.dataset)}.jsonl"
    copy = path.with_name(f"{path.stem}-copy.jsonl")
    copy.write_bytes(path.read_bytes())
    assert [record.key for record in Records(tmp_path).every()] == [ran.key, late.key]
    records.append(make_record(late, 63.0))
    copy.rename(copy.with_name("0.jsonl"))
    assert [record.status for record in Records(tmp_path).every()] == ["ok", "ok"]


def test_the_memory_expected_is_that_of_the_records_as_they_come(tmp_path: Path) -> None:
    cell, records = make_cell(protocol="other", seed=9), Records(tmp_path)
    records.append(make_record(make_cell(method="local"), peak_memory_mb=90.0))
    assert records.peak_memory(cell) == 0
    for seed, peak, most in ((0, 512.5, 512.5), (1, 600.5, 600.5), (2, 550.0, 600.5)):
        records.append(make_record(make_cell(seed=seed), peak_memory_mb=peak))
        records.refresh()
        assert records.peak_memory(cell) == most


def test_a_table_of_one_draw_takes_what_other_tables_made_of_that_draw(tmp_path: Path) -> None:
    for seed in range(3):
        Records(tmp_path).append(make_record(make_cell(protocol="anew", seed=seed)))
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
    assert "4 cells: 0 done before, 4 to run" in capsys.readouterr().err
    assert [cell.protocol for cell in ran] == ["first"] * 4
    pages = [(results / "leaderboards" / f"{name}.md").read_text() for name in ("first", "second")]
    assert all("50.50 ± 0.71" in page for page in pages)
    assert main(parse([*argv, "--dry-run"]), work) == 0
    captured = capsys.readouterr()
    assert "4 cells: 4 done before, 0 to run" in captured.err
    assert captured.out.count("  done  ") == 8
    assert main(parse([*argv, "--seeds", "1", "--rerun"]), work) == 0
    assert len(ran) == 4 + 2
    assert {cell.protocol for cell in ran} == {"first"}


def test_graphs_have_files_of_their_own(tmp_path: Path) -> None:
    names = ("cora", "community[nodes=600]", "./my folder/a graph.npz", "../..")
    for dataset in names:
        Records(tmp_path).append(make_record(make_cell(dataset=dataset)))
    files = {path.name for path in (tmp_path / "runs").glob("*.jsonl")}
    assert files == {"cora.jsonl", "community.jsonl", "a_graph.jsonl", "_.jsonl"}
    assert len([*Records(tmp_path).every()]) == len(names)


def test_packed_curves_are_read_back_and_added_to(tmp_path: Path) -> None:
    curve = {"round": [1, 5], "test": [42.0, None], "loss": [0.5, 0.25]}
    made = make_record(make_cell(), curve=curve, by_round={"sparsity": [1.0, 2.0, 3.0]})
    Records(tmp_path).append(made)
    reader = Records(tmp_path)
    Records(tmp_path).pack()
    assert [path.name for path in (tmp_path / "curves").glob("cora.[!l]*") if path.suffix != ".lock"] == [
        "cora.parquet"
    ]
    other = make_record(make_cell(seed=1))
    Records(tmp_path).append(other)
    for records in (reader, Records(tmp_path)):
        records.refresh()
        assert [*records.every()] == [made, other]
        assert records.warnings() == []
    frame = pandas.read_parquet(tmp_path / "curves" / "cora.parquet")
    assert frame["round"].map(list).tolist() == [[1, 5]]
    assert {"test", "loss", "by_round.sparsity"} <= {*frame}


def test_packed_numbers_are_those_that_were_measured(tmp_path: Path) -> None:
    scores = [81.8652, None, 0.0012, 99.9999, -0.5]
    odd = [0.1 + 0.2, 1 / 3, 5e-324, 1e200, 0.0]
    series = {"round": [1, 2, 3, 4, 5], "test": scores, "bytes": [0.0, 1.2e8, 2e11, 3e11, None], "loss": odd}
    made = make_record(make_cell(), curve=series, by_client={"test": [40.0, None]})
    Records(tmp_path).append(made)
    Records(tmp_path).pack()
    (found,) = Records(tmp_path).every()
    assert found == made.reread()
    frame = pandas.read_parquet(tmp_path / "curves" / "cora.parquet")
    assert frame["test"][0][0] / SCALE == 81.8652
    schema = read_schema(tmp_path / "curves" / "cora.parquet")
    types = [str(schema.field(name).type.value_type) for name in ("round", "test", "bytes", "loss")]
    assert types == ["int64", "int32", "int64", "double"]


def test_damaged_curves_are_counted_and_kept(tmp_path: Path) -> None:
    for seed in range(2):
        Records(tmp_path).append(make_record(make_cell(seed=seed), curve={"round": [1], "test": [40 + seed]}))
    file = tmp_path / "curves" / "cora.jsonl"
    file.write_bytes(whole := file.read_bytes().replace(b":[", b":#", 1))
    records = Records(tmp_path)
    assert [dict(record.curve) for record in records.every()].count({}) == 1
    assert "lost curves: 1 " in records.warnings()[0]
    count, (lost,) = add(tmp_path / "other", tmp_path)
    assert (count, "lost curves: 1 " in lost) == (1, True)
    with pytest.raises(UserError, match=r"cora\.jsonl is damaged"):
        records.pack()
    file.write_bytes(whole.replace(b":#", b":["))
    Records(tmp_path).pack()
    (tmp_path / "curves" / "cora.parquet").write_bytes(b"no curves")
    records = Records(tmp_path)
    assert [dict(record.curve) for record in records.every()] == [{}, {}]
    assert "lost curves: 2 " in records.warnings()[0]
    (tmp_path / "curves" / "cora.parquet").unlink()
    found = Records(tmp_path).every()
    assert [(dict(record.curve), record.score) for record in found] == [({}, 50.0), ({}, 50.0)]


def test_a_table_shows_no_draw_of_a_search(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for seed in (0, *SEARCH_SEEDS):
        records.append(make_record(make_cell(protocol=TRIALS, seed=seed)))
    assert [record.cell.seed for record in records.of_table("quick", [make_cell()])] == [0]
    assert len(records.of_table(TRIALS)) == 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store(tmp_path, "cora")
    for seed in range(3):
        store.append(make_record(make_cell(seed=seed), 50.0 + seed))
        store.append(make_record(make_cell(seed=seed, method="mine", label="mine", files="ab"), 60.0))
    return tmp_path


def test_what_is_forgotten_is_gone_and_all_else_stays(folder: Path) -> None:
    open_elsewhere = Store(folder, "cora")
    gone = make_cell(seed=1).key
    said = forget(Records(folder), [gone])
    assert [record.key for record in said] == [gone]
    for store in (Store(folder, "cora"), open_elsewhere):
        store.refresh()
        assert store.get(gone) is None
        assert len(store.records()) == 5
        assert store.warning == ""
    assert open_elsewhere.append(make_record(make_cell(seed=1), 55.0))
    assert len(Store(folder, "cora").records()) == 6


@pytest.mark.parametrize("key", ["0000000000000000", "", "abc"])
def test_a_key_that_no_record_has_is_a_sentence(key: str, folder: Path) -> None:
    before = (folder / "runs" / "cora.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"no records in .* have a key that begins with"):
        forget(Records(folder), [make_cell(seed=0).key, key])
    assert (folder / "runs" / "cora.jsonl").read_bytes() == before


def test_a_beginning_that_two_records_share_forgets_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more keys than hexadecimal digits, two keys begin alike."""
    store = Store(folder, "cora")
    for seed in range(3, 20):
        store.append(make_record(make_cell(seed=seed)))
    first = [record.key[0] for record in store.records()]
    monkeypatch.setattr("fedsub.benchmark.records.folder.LEAST", 1)
    shared = next(letter for letter in first if first.count(letter) > 1)
    with pytest.raises(UserError, match=f"^{first.count(shared)} records in .* begins with '{shared}'"):
        forget(Records(folder), [shared])
    assert len(Store(folder, "cora").records()) == len(first)


def test_six_letters_of_a_key_are_enough_and_five_are_not(folder: Path) -> None:
    alone = make_cell(rounds=7)
    Store(folder, "cora").append(make_record(alone))
    with pytest.raises(UserError, match="no records in"):
        forget(Records(folder), [alone.key[:5]])
    assert len(forget(Records(folder), [alone.key[:6]])) == 1


@pytest.mark.parametrize(
    "curve", [{"round": [1, 2], "test": [50.0]}, {"test": [50.0, 51.0]}, {"round": [], "loss": [0.1]}]
)
def test_curves_that_do_not_belong_together_are_refused(curve: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="one value per round"):
        Result(curve=curve)


def test_seconds_are_of_a_round_and_of_a_core() -> None:
    seconds = {"setup": 5.0, "train": 6.0, "evaluate": 2.0}
    environment = {**ENVIRONMENT, "threads": 4}
    record = make_record(make_cell(rounds=4), environment=environment, seconds=seconds)
    assert record.seconds_per_round == 2.0
    assert record.core_seconds == {"setup": 20.0, "train": 24.0, "evaluate": 8.0}
    # The measured processor share takes precedence over the requested threads.
    shared = replace(record, outcome=replace(record.result, core_share=0.5))
    assert shared.core_seconds == {"setup": 2.5, "train": 3.0, "evaluate": 1.0}
    assert failed(make_cell(), "it broke").seconds_per_round == 0


def test_settings_that_came_later_are_at_their_default_in_records_from_before() -> None:
    cell = make_cell()
    values = make_record(cell).to_dict()
    for name in ("versions", "kernel", "data_seed", "hops"):
        del values[name]
    assert cell_of(values) == cell
    assert Record.of(cell, values) == make_record(cell)
