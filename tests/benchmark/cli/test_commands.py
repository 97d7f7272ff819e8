"""The command line as its user sees it: exit codes, sentences, and what is written."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.artifacts import Saving
from fedsub.benchmark.execution.verify import draw
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets import registry
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import Spec
from tests.benchmark.fakes import METRIC, failed, failing_run, quick_run, run, stored, write_method

ONE = ("--method", "fedavg", "--engine", "in-process")


def test_json_goes_to_standard_output_and_all_else_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *ONE) == 0
    assert "FedAvg" in capsys.readouterr().out
    assert "| FedAvg |" in (tmp_path / "leaderboards" / "default.md").read_text()
    assert run(tmp_path, *ONE, "--seeds", "2", "--format", "json") == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["seed"] for record in records] == [0, 1]
    wanted = "key status protocol task dataset partition clients method options backbone seed metrics seconds"
    wanted += " rounds peak_memory_mb bytes environment commit note"
    assert set(wanted.split()) <= set(records[0])


def test_without_seeds_the_rows_are_those_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shows all recorded seeds of a row, even beyond the table's own; other rows are not requested."""
    assert run(tmp_path, *ONE, "--seeds", "5") == 0
    assert run(tmp_path, *ONE, "--seeds", "5", "--method", "fedper") == 0
    capsys.readouterr()
    assert run(tmp_path, *ONE, "--format", "json") == 0
    assert [record["seed"] for record in json.loads(capsys.readouterr().out)] == [0, 1, 2, 3, 4]
    assert run(tmp_path, *ONE, "--seeds", "2", "--format", "json") == 0
    assert [record["seed"] for record in json.loads(capsys.readouterr().out)] == [0, 1]


def test_a_dry_run_lists_the_cells_and_leaves_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "new", *ONE, "--seeds", "2", "--dry-run") == 0
    captured = capsys.readouterr()
    assert captured.out.count("to run") == 2
    assert "2 cells: 0 done before, 2 to run" in captured.err
    assert not (tmp_path / "new").exists()
    assert run(tmp_path / "new", *ONE, "--dry-run", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["method"] == "fedavg"


def test_reports_build_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record may name a graph that would fill the memory."""
    assert run(tmp_path, *ONE) == 0
    (made,) = [*Records(tmp_path).every()]
    for scheme in ("metis", "attribute[key=site]"):
        cell = replace(made.cell, dataset=Spec("community[nodes=40000000]"), partition=Spec(scheme))
        Records(tmp_path).append(replace(made, cell=cell))
    monkeypatch.setattr(registry, "load", lambda *_, **__: pytest.fail("a graph is built"))
    for argv in (["show"], ["report"], ["export", str(tmp_path / "table.csv")]):
        assert main(parse([*argv, "--results", str(tmp_path)])) == 0
    assert "40000000" in (tmp_path / "leaderboards/default.md").read_text()


def test_a_dry_run_names_cells_without_their_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSUB_DATA", str(tmp_path))
    monkeypatch.setenv("FEDSUB_CACHE", str(tmp_path / "cache"))
    argv = ("--dataset", "cora", "community", "--method", "fedavg", "--clients", "3", "--dry-run")
    assert run(tmp_path, *argv) == 0
    captured = capsys.readouterr()
    assert "no data  default: cora" in captured.out
    assert "2 cells: 0 done before, 1 to run, 1 without their graph" in captured.err


def test_lines_that_hold_no_record_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, *ONE) == 0
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"protocol":', b'"rounds":1e999,"protocol":'))
    capsys.readouterr()
    for command in ("show", f"export {tmp_path}/a.csv", "verify 1 --dry-run", "records forget 000000"):
        assert main(parse([*command.split(), "--results", str(tmp_path)])) == 2 * (command != "show")
        assert capsys.readouterr().err.startswith(f"{path}: skipped unreadable records in line ")
    number = path.read_bytes().count(b"\n") + 1
    path.write_bytes(path.read_bytes() + b"not json\n")
    assert run(tmp_path, *ONE) == 0
    assert f", {number}; restore the file" in capsys.readouterr().err


def test_a_failed_cell_gives_exit_code_1_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "fail"
    switch.touch()
    monkeypatch.setenv("FAKE_FAILS", str(switch))
    one = ("--method", "fedavg", "--workers", "1")
    assert run(tmp_path, *one, "--seeds", "3", work=failing_run) == 1
    said = capsys.readouterr().err
    assert "1 of 3 cells failed" in said
    (log,) = tmp_path.glob("**/logs/*.log")
    assert f"(log: {log})" in said
    assert [record["status"] for record in stored(tmp_path)] == ["ok", "failed", "ok"]
    switch.unlink()
    assert run(tmp_path, *ONE, "--seeds", "3", work=failing_run) == 0
    assert [record["seed"] for record in stored(tmp_path)] == [0, 1, 2, 1]
    assert not log.exists()


def test_an_interrupted_download_is_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsub.datasets.registry.obtain", Mock(side_effect=KeyboardInterrupt))
    assert main(parse(["data", "fetch", "cora"])) == 130
    assert capsys.readouterr().err == "fedsub: interrupted\n"


def test_what_has_no_figures_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, *ONE, "--seeds", "1", work=lambda cell: failed(cell, "it broke")) == 1
    capsys.readouterr()
    assert main(parse(["show", "--results", str(tmp_path)])) == 0
    assert "it broke" in capsys.readouterr().err
    assert main(parse(["show", "--table", "fedpub-2", "--results", str(tmp_path)])) == 2
    assert "no records of fedpub-2" in capsys.readouterr().err
    assert main(parse(["report", "--table", "nope", "--results", str(tmp_path)])) == 2
    assert "unknown table 'nope'" in capsys.readouterr().err


def test_a_reader_may_close_the_output(tmp_path: Path) -> None:
    assert run(tmp_path, *ONE, "--seeds", "1") == 0
    command = [sys.executable, "-m", "fedsub.benchmark", "show", "--results", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as shown:
        assert shown.stdout is not None
        shown.stdout.close()
        assert shown.wait() == 0


def test_a_failed_rerun_is_reported_and_leaves_the_result_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "fail"
    monkeypatch.setenv("FAKE_FAILS", str(switch))
    assert run(tmp_path, *ONE, "--seeds", "2", work=failing_run) == 0
    page = (tmp_path / "leaderboards" / "default.md").read_bytes()
    switch.touch()
    capsys.readouterr()
    assert run(tmp_path, *ONE, "--seeds", "2", "--rerun", work=failing_run) == 1
    errors = capsys.readouterr().err
    assert "1 of 2 cells failed" in errors
    assert "it was told to fail (its earlier result is kept)" in errors
    assert [record["status"] for record in stored(tmp_path)] == ["ok", "ok", "ok", "failed"]
    assert (tmp_path / "leaderboards" / "default.md").read_bytes() == page


def test_the_shards_divide_the_cells_and_keep_equal_work_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def keys(*argv: str) -> list[str]:
        tables = ("--table", "fedpub-2", "fedpub-2-once", "--dataset", "cora", "--method", "local,fedavg")
        assert run(tmp_path, *tables, "--dry-run", *argv) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    for seeds, count in (("1", 2), ("5", 5), ("5", 8)):
        parts = [keys("--seeds", seeds, "--shard", f"{part}/{count}") for part in range(1, count + 1)]
        assert sorted(key for part in parts for key in part) == sorted(keys("--seeds", seeds))
        assert all(parts)


def test_the_debugger_opens_where_a_cell_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr("pdb.post_mortem", opened.append)
    method = write_method(tmp_path / "broken.py", "def objective(self, logits):\n    return 1 / 0")
    cell = ["--dataset", "community[nodes=200]", "--clients", "2", "--rounds", "1", "--seeds", "1"]
    argv = ["--pdb", "--results", str(tmp_path / "results"), *cell]
    assert main(parse([*argv, "--method", str(method)])) == 1
    (trace,) = opened
    while trace.tb_next:
        trace = trace.tb_next
    assert trace.tb_frame.f_code.co_filename == str(method)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_files_are_saved_in_the_results_folder_wherever_a_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    def elsewhere(cell: Cell, save: Saving) -> Record:
        places.append(save.results)
        return quick_run(cell)

    monkeypatch.chdir(tmp_path)
    assert run(Path("results"), *ONE, "--save", "model", work=elsewhere) == 0  # type: ignore[arg-type]
    assert places == [tmp_path / "results"]


@pytest.mark.usefixtures("data_directory")
def test_a_cell_of_two_tables_is_shown_in_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = ("--table", "fedpub-2", "fedpub-2-once", "--dataset", "cora", "--clients", "10")
    for seeds in ((), ("--seeds", "1")):
        run(tmp_path, *tables, "--method", "local", *seeds, "--format", "json")
        captured = capsys.readouterr()
        shown = {record["protocol"] for record in json.loads(captured.out)}
        assert shown == {"fedpub-2", "fedpub-2-once"}
    assert "no run has the score" not in captured.err


def test_a_metric_of_ones_own_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "share_right.py").write_text(METRIC)
    grid = '[grid]\ndataset = "community[nodes=200]"\nclients = 3\nmethod = "local"\n'
    (tmp_path / "mine.toml").write_text(
        f'extends = "default"\nmetrics = ["accuracy", "./share_right.py"]\n{grid}'
    )
    argv = ["--table", "mine.toml", "--rounds", "2", "--seeds", "2", "--engine", "in-process", "--trust"]
    assert main(parse([*argv, "--format", "json"])) == 0
    for record in json.loads(capsys.readouterr().out):
        assert record["metrics"]["share_right"] == record["metrics"]["accuracy"]
    assert main(parse([*argv, "--wide"])) == 0
    assert "share right" in capsys.readouterr().out
    (tmp_path / "share_right.py").write_text(METRIC.replace("items.right(output)", "0 * items.right(output)"))
    with pytest.raises(UserError, match="files that have changed"):
        draw(Records(Path("results")).every(), 1, trust=True)
    assert main(parse([*argv, "--format", "json"])) == 0
    for record in json.loads(capsys.readouterr().out):
        assert record["metrics"]["share_right"] == 0 < record["metrics"]["accuracy"]
    selecting = [*argv, "--set", "selection_metric=./share_right.py"]
    assert main(parse([*selecting, "--format", "json"])) == 0
    (tmp_path / "share_right.py").write_text(METRIC)
    assert main(parse([*selecting, "--format", "json"])) == 0
    scores = [record.score for record in Records(Path("results")).every() if record.cell.selects_by]
    assert scores[:2] == [0, 0]
    assert all(scores[2:])
    (tmp_path / "share_right.py").write_text("share_right = 3\n")
    assert main(parse([*argv, "--rerun"])) == 1
    assert "share_right.py has no metric share_right" in capsys.readouterr().err


def test_a_graph_in_the_folder_of_archives_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(parse(["data", "export", "community[nodes=90]", "--output", str(tmp_path / "bank.npz")])) == 0
    monkeypatch.setenv("FEDSUB_DATA", str(tmp_path))
    capsys.readouterr()
    assert run(tmp_path / "results", *ONE, "--dataset", "bank", "--dry-run", "--format", "json") == 0
    assert {cell["dataset"] for cell in json.loads(capsys.readouterr().out)} == {"bank"}
    assert run(tmp_path / "results", *ONE, "--dataset", "bnk", "--dry-run") == 2


def test_a_finished_table_is_shown_where_no_page_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *ONE) == 0
    shutil.rmtree(tmp_path / "leaderboards")
    (tmp_path / "leaderboards").touch()
    capsys.readouterr()
    run(tmp_path, *ONE)
    captured = capsys.readouterr()
    assert "cannot write" in captured.err
    assert "FedAvg" in captured.out


def test_a_results_folder_that_cannot_be_written_is_found_before_any_cell_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(tmp_path / "file", *ONE, work=lambda cell: pytest.fail("a cell ran")) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("results_full", [False, True])
def test_a_disk_that_fills_up_loses_no_record(
    results_full: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results, temporary = tmp_path / "results", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    sync, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        # The first record is synced twice, its curve and its line; the second has the same curve.
        if len(calls) == 3 or (results_full and len(calls) == 4):
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    # Nor is there room for the page.
    results.mkdir()
    (results / "leaderboards").touch()
    assert run(results, *ONE, "--seeds", "3") == 2
    page, last = capsys.readouterr().err.splitlines()[-2:]
    assert "cannot write" in page
    assert "No space left on device" in last
    (refuge,) = (temporary if results_full else results).glob("unsaved-default-*.jsonl")
    assert str(refuge) in last
    assert json.loads(refuge.read_text())["seed"] == 1
    (results / "leaderboards").unlink()
    assert [record["seed"] for record in stored(results)] == [0]
    assert main(parse(["records", "add", str(refuge), "--results", str(results)])) == 0
    assert [record["seed"] for record in stored(results)] == [0, 1]
    assert run(results, *ONE, "--seeds", "3") == 0
    assert [record["seed"] for record in stored(results)] == [0, 1, 2]


def test_the_listing_names_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDSUB_DATA", "nowhere")
    (tmp_path / "cora.npz").touch()
    assert main(parse(["list", "--data", str(tmp_path)])) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ *cora .* yes *$", out, re.MULTILINE)
    for name in ("fedprox", "community", "cora", "metis-overlapping", "fedpub-2", "breaks privacy"):
        assert name in out
    # These methods have networks of their own: no backbone applies.
    for own in ("fediih", "fedlap", "fedstruct"):
        assert "its own" in next(line for line in out.splitlines() if line.split()[:1] == [own]), own
    assert "gcn, sgc" in next(line for line in out.splitlines() if line.split()[:1] == ["fedavg"])
    for options in (r"^ *fedprox +mu=0.01 *$", r"^ *community +nodes=\d+, ", r"^ *metis .* recursive=false"):
        assert re.search(options, out, re.MULTILINE)


def test_a_method_is_described_with_its_options_and_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(parse(["list", "community"])) == 0
    assert "Generated communities" in capsys.readouterr().out
    assert main(parse(["list", "fedprox"])) == 0
    out = capsys.readouterr().out
    assert re.search(r"(?m)^ *mu +0\.01 +0\.0001 to 10, log-uniform +Weight of the proximal term", out)
    assert re.search(r"^ *learning_rate +0\.001 to 0\.1, log-uniform", out, re.MULTILINE)
    assert main(parse(["list", "fedprx"])) == 2
    assert "did you mean fedprox" in capsys.readouterr().err


def test_check_names_every_check_and_the_rule_that_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "limitless.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from fedsub.methods.core.base import Options, register\n"
        "from fedsub.methods.fedavg import FedAvg\n"
        "@dataclass(frozen=True)\n"
        "class Free(Options):\n"
        "    mu: float = 1.0\n"
        "@register('free', title='Free', paper='none', options=Free)\n"
        "class Free(FedAvg):\n"
        "    pass\n"
    )
    assert main(parse(["check", "local", str(path)])) == 1
    said = capsys.readouterr().out
    assert "no gradient between clients: passed" in said
    assert "FAILED: free: option mu states no limits" in said


def test_a_method_that_raises_fails_its_check_and_the_next_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_method(tmp_path / "broken.py", "def send(self):\n    return {'x': self.missing}")
    assert main(parse(["check", str(path), "local"])) == 1
    said = capsys.readouterr()
    assert "FAILED: broken, trains with every network and task it lists: AttributeError" in said.out
    assert "no gradient between clients: passed" in said.out
    assert "return {'x': self.missing}" in said.err


def test_records_are_packed_and_added_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert [run(folder, *ONE, "--seeds", seeds) for folder, seeds in ((here, "1"), (there, "2"))] == [0, 0]
    assert run(there, *ONE, "--seeds", "2,", work=lambda cell: failed(cell, "it broke")) == 1
    edit = lambda *given: main(parse(["records", *given, "--results", str(here)]))  # noqa: E731
    assert edit("pack") == 0
    for added in (1, 0):
        capsys.readouterr()
        assert edit("add", str(there)) == 0
        assert f"records added: {added}" in capsys.readouterr().out
    assert [len(record.curve["test"]) for record in Records(here).every()] == [2, 2]
    for wrong in (("pack", "0-0"), ("add",), ("add", str(tmp_path / "typo")), ("forget",)):
        assert edit(*wrong) == 2
    assert main(parse(["records", "pack", "--results", str(tmp_path / "typo")])) == 2
    assert "holds no records" in capsys.readouterr().err
