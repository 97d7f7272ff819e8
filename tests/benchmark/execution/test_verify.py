import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution import verify
from fedsub.benchmark.execution.runner import attempt
from fedsub.benchmark.execution.verify import FEW_TOLERANCE, SCORE_TOLERANCE, START_TOLERANCE, draw
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.latest import FILE, verified_by
from fedsub.benchmark.records.record import Record, cell_of
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import Spec
from fedsub.methods.stacked.architecture import Architecture
from tests.benchmark.fakes import failed, make_record, write_method

CELLS = ("--dataset", "community[nodes=200]", "--method", "fedavg,local", "--clients", "3", "--rounds", "3")
HERE = ("--engine", "in-process")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two records."""
    folder = tmp_path_factory.mktemp("made")
    assert main(parse([*CELLS, *HERE, "--results", str(folder)])) == 0
    return [record.to_json() for record in Records(folder).every()]


def write(results: Path, *records: dict[str, Any]) -> list[str]:
    """Makes a results folder; returns the command that verifies it."""
    for name in ("runs", "curves"):
        shutil.rmtree(results / name, ignore_errors=True)
    for values in records:
        Records(results).append(Record.of(cell_of(values), values), replace=True)
    return ["verify", "5", *HERE, "--results", str(results)]


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the records as made by the present code: git cannot tell in an edited working tree."""
    monkeypatch.setattr(verify, "same_code", lambda commit, *folders: True)


def test_records_come_out_again_and_a_changed_figure_is_named(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [*map(json.loads, made)]
    command = write(tmp_path, *records)
    assert main(parse(command)) == 0
    assert "2 records run again: no differences, 2 equal to the digit" in capsys.readouterr().err
    records[0]["metrics"]["accuracy"] += 1e-4
    records[1]["curve"]["test"][1] += 1e-3
    assert main(parse(write(tmp_path, *records))) == 1
    captured = capsys.readouterr()
    assert "2 records run again: 2 differences, 0 equal to the digit" in captured.err
    first, second = sorted(captured.out.splitlines())
    assert "metrics accuracy was" in first
    assert "test curve from evaluation 2 was" in second
    assert "recorded on " in first


def test_who_verified_a_record_is_kept_unless_a_figure_moved(made: list[str], tmp_path: Path) -> None:
    records = [*map(json.loads, made)]
    records[0]["metrics"]["accuracy"] += 1e-4
    assert main(parse([*write(tmp_path, *records), "--by", "Ada"])) == 1
    assert verified_by(tmp_path) == {records[1]["key"]: {"Ada"}}

    def interrupted(cell: Cell, **beside: Any) -> Record:
        if verified:
            raise KeyboardInterrupt
        verified.append(cell.key)
        return attempt(cell)

    verified: list[str] = []
    (tmp_path / FILE).unlink()
    again = [*write(tmp_path, *map(json.loads, made)), "--by", "Ada"]
    assert main(parse(again), interrupted) == 130
    assert [*verified_by(tmp_path)] == verified


def test_what_a_record_does_not_hold_yet_is_no_difference(made: list[str], tmp_path: Path) -> None:
    records = [*map(json.loads, made)]
    for record in records:
        assert record.pop("by_client")["test"]
    assert main(parse(write(tmp_path, *records))) == 0
    records[0]["extras"]["gone"] = 1.0
    assert main(parse(write(tmp_path, *records))) == 1


@pytest.mark.parametrize("name", ["cpu", "torch", "code"])
def test_another_processor_version_or_code_may_round_otherwise(
    made: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    records = [*map(json.loads, made)]
    if name == "code":
        monkeypatch.setattr(verify, "same_code", lambda commit, *folders: False)
    else:
        for record in records:
            record["environment"][name] = "another"
    monkeypatch.setattr(verify, "SMALL", 0)
    records[0]["metrics"]["accuracy"] += SCORE_TOLERANCE - 0.01
    records[0]["metrics"]["accuracy_worst_client"] += 3 * SCORE_TOLERANCE
    for score in (few := ("minority_accuracy", "accuracy_last")):
        records[0]["metrics"][score] += FEW_TOLERANCE - 0.01
    records[0]["by_client"]["test"][0] += 1.0
    assert main(parse(write(tmp_path, *records))) == 0
    assert "no differences, 1 equal to the digit" in (said := capsys.readouterr().err)
    assert "2 from other machines or code" in said
    for score in ("accuracy", *few):
        records[0]["metrics"][score] += 0.02
    records[1]["curve"]["loss"][0] *= 1 + 2 * START_TOLERANCE
    assert main(parse(write(tmp_path, *records))) == 1
    found = capsys.readouterr().out.splitlines()
    for words in ("metrics accuracy", *(f"metrics {score}" for score in few), "loss in round 1"):
        assert sum(f"{words} was" in line for line in found) == 1
    assert len(found) == 4
    records[0]["metrics"] = json.loads(made[1])["metrics"]
    records[1]["extras"][verify.SET_UP] = 4434.0
    records[1]["selected_round"] = 4
    records[1]["metrics"]["accuracy"] += FEW_TOLERANCE - 0.01
    records[1]["metrics"]["minority_accuracy"] += 2 * FEW_TOLERANCE - 0.01
    assert main(parse(write(tmp_path, *records))) == 0
    monkeypatch.setattr(verify, "SMALL", 1000)
    records[1]["selected_round"] = json.loads(made[1])["selected_round"]
    assert main(parse(write(tmp_path, *records))) == 0
    for score in ("accuracy", "minority_accuracy"):
        records[1]["metrics"][score] += 0.02
    assert main(parse(write(tmp_path, *records))) == 1
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[-5] for line in found] == ["accuracy", "minority_accuracy"]


def test_records_of_earlier_versions_and_long_ones_are_not_drawn(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [*map(json.loads, made)]
    records[0]["seconds"]["train"] = 7.0
    command = write(tmp_path, *records)
    (first, _), store = Records(tmp_path).every(), Records(tmp_path)
    store.append(failed(replace(first.cell, seed=1), "out of memory"))
    assert len(draw(Records(tmp_path).every(), 5)) == 2
    (short,) = draw(Records(tmp_path).every(), 5, max_seconds=5.0)
    assert short.seconds["train"] < 5
    assert main(parse([*command, "--max-seconds", "0.000001"])) == 2
    assert "2 took longer than 1e-06 seconds" in capsys.readouterr().err
    old = replace(short.cell, versions="")
    assert old.key != short.key
    write(tmp_path, {**short.to_dict(), **old.to_dict(), "options": {}, "key": old.key})
    assert [record.key for record in [*Records(tmp_path).every()]] == [old.key]
    assert main(parse(command)) == 2


def test_methods_are_drawn_in_turn(tmp_path: Path) -> None:
    asked = ["--dataset", "community[nodes=60]", "--clients", "2", "--rounds", "1"]
    for method, seeds in (("local", "6"), ("fedavg", "2"), ("fedprox", "1")):
        for cell in make_plan(parse([*asked, "--method", method, "--seeds", seeds]).request).cells:
            Records(tmp_path).append(make_record(cell))
    methods = [record.cell.method for record in draw(Records(tmp_path).every(), 9)]
    assert sorted(methods[:3]) == ["fedavg", "fedprox", "local"]
    assert sorted(methods[3:5]) == ["fedavg", "local"]


def test_a_table_of_ones_own_is_named_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('title = "Mine"\nextends = "quick"\n')
    cells = ("--method", "local", "--seeds", "1", "--rounds", "2", "--dataset", "community[nodes=200]")
    assert main(parse(["--table", "./mine.toml", *cells, *HERE])) == 0
    for name in ("./mine.toml", "mine"):
        assert main(parse(["verify", "1", "--table", name, *HERE])) == 0
        assert "1 records run again: no differences" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": "a" * 64}, "1 of an edited method"),
        ({"files": "a" * 64, "paths": ("method=x.py",)}, "1 of the code in x.py, .* --trust"),
        ({"method": "./x.py"}, "1 of the code in ./x.py, .* --trust"),
        ({"dataset": Spec("x.py[a=1]")}, "1 of the code in x.py, .* --trust"),
        ({"architecture": Architecture(backbone="x.py")}, "1 of the code in x.py, .* --trust"),
        ({"further_metrics": ("x.py",)}, "1 of the code in x.py, .* --trust"),
        ({"versions": "metis=1"}, "1 of earlier versions of the code"),
        ({"dataset": Spec("cora")}, "1 on cora, which is not on this machine"),
    ],
)
def test_why_none_can_be_run_again_is_said(
    changes: dict[str, Any], words: str, made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("FEDSUB_DATA", "FEDSUB_CACHE"):
        monkeypatch.setenv(folder, str(tmp_path))
    write(tmp_path, *map(json.loads, made))
    (first, *_), elsewhere = [*Records(tmp_path).every()], tmp_path / "elsewhere"
    Records(elsewhere).append(replace(first, cell=replace(first.cell, **changes)))
    with pytest.raises(UserError, match=f"can be run again here: {words}"):
        draw(Records(elsewhere).every(), 1)


def test_a_federations_record_is_passed_over(made: list[str], tmp_path: Path) -> None:
    records = [{**record, "extras": {"engine": "flower"}} for record in map(json.loads, made)]
    write(tmp_path, *records)
    with pytest.raises(UserError, match="can be run again here: 2 made by --engine flower"):
        draw(Records(tmp_path).every(), 1)


def test_code_that_a_record_names_runs_only_when_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = write_method(tmp_path / "mine.py", above=f"open({str(tmp_path / 'ran')!r}, 'a').close()")
    cells = [*CELLS[:2], "--method", f"fedavg,{mine}", *CELLS[4:]]
    assert main(parse([*cells, *HERE, "--results", str(tmp_path)])) == 0
    (tmp_path / "ran").unlink()
    passed_over: Counter[str] = Counter()
    (record,) = draw(Records(tmp_path).every(), 5, passed_over=passed_over)
    assert record.cell.method == "fedavg"
    assert any("mine.py, which runs only with --trust" in reason for reason in passed_over)
    assert not (tmp_path / "ran").exists()
    records = draw(Records(tmp_path).every(), 5, trust=True)
    assert len(records) == 2
    # Even if a record is stored under another name, the output names the file that runs.
    hidden = [replace(record, cell=replace(record.cell, label="local")) for record in records]
    moved = [replace(each, outcome=replace(each.result, metrics={"accuracy": -1.0})) for each in hidden]
    command = write(tmp_path / "other", *(record.to_dict() for record in moved))
    for wanted in ([], ["--dry-run"]):
        main(parse([*command, "--trust", *wanted]))
        lines = [line for line in capsys.readouterr().out.splitlines() if " local gcn " in line]
        assert sum(str(mine) in line for line in lines) == 1
    write_method(mine, "edited = 1")
    draw(Records(tmp_path).every(), 5, trust=True, passed_over=passed_over)
    assert passed_over[verify.CHANGED] == 1


def test_filters_choose_the_records(
    made: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [*map(json.loads, made)]
    command = [*write(tmp_path, *records), "--dry-run"]

    def never(cell: Any) -> Any:
        raise AssertionError("a cell ran")

    assert main(parse([*command, "--method", "local", "--clients", "3", "--seeds", "1"]), never) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "local" in line
    assert main(parse([*command, "--method", "locl"])) == 2
    assert "unknown method in the records 'locl': did you mean local" in capsys.readouterr().err
