"""Measurements on disk, in processes of their own, and the page made of them."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsub.benchmark.analysis.measurements import Measurements
from fedsub.benchmark.cli.arguments import parse
from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.store import Store
from fedsub.benchmark.report.performance import geometric_mean, write_performance_page
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.studies.performance import parts, roofline
from fedsub.benchmark.studies.performance.parts import in_fresh_process, measure
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_record

RATIO = {"rounds": 2, "ours": [1.0, 2.0], "peer": [4.0, 10.0]}
COMPARED = {
    "method": "fedavg",
    "dataset": "cora",
    "clients": 10,
    "status": "ok",
    "phases": {"round": RATIO},
    "versions": {"torch": "2"},
}
ROUND: dict[str, Any] = {
    "dataset": "cora",
    "clients": 5,
    "seconds": 3.0,
    "fastest": 3.0,
    "slowest": 3.0,
    "limit": 1.0,
    "touched": 1e6,
    "operations": {"Adam": {"limit": 1.0, "bound": "bandwidth"}},
    "ceilings": {"flops": 1e9, "copy": {"1024": 1e9}},
}


def die() -> None:
    assert torch.get_num_threads() == 1
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_fresh_process_has_one_thread_and_its_death_is_survived() -> None:
    with pytest.raises(BrokenProcessPool):
        in_fresh_process(die)


def test_measurements_are_taken_once_and_resumed(tmp_path: Path) -> None:
    kept = Measurements(tmp_path, "things")
    taken: list[str] = []

    def measure(name: str) -> dict[str, Any]:
        taken.append(name)
        return {"value": float("nan")}

    keys = {name: lambda name=name: measure(name) for name in ("a", "b")}
    assert [record["key"] for record in kept.missing(keys, rerun=False)] == ["a", "b"]
    with (tmp_path / "performance" / "things.jsonl").open("a") as file:
        file.write('{"key": "b", "val')
    assert list(Measurements(tmp_path, "things").missing(keys, rerun=False)) == []
    assert taken == ["a", "b"]
    kept.add("c", {"value": 1})
    assert [record["key"] for record in kept.records()] == ["a", "b", "c"]
    assert len(list(kept.missing(keys, rerun=True))) == 2


def test_a_line_without_a_machine_is_passed_over(tmp_path: Path) -> None:
    measured = Measurements(tmp_path, "rounds")
    measured.add("a", {"seconds": 1.0})
    with (tmp_path / "performance" / "rounds.jsonl").open("a") as file:
        file.write('{"key":"b","made":{}}\n{"key":"c","made":3}\n{"key":["d"],"made":{"cpu":"x"}}\n')
    assert [record["key"] for record in Measurements(tmp_path, "rounds").records()] == ["a"]


def test_a_failure_on_this_side_is_measured_again(tmp_path: Path) -> None:
    kept = Measurements(tmp_path, "things")
    kept.add("a", {"status": "ours failed", "error": "no"})
    kept.add("b", {"status": "peer failed", "error": "no"})
    keys = {name: lambda: {"status": "ok"} for name in ("a", "b")}
    assert [record["key"] for record in kept.missing(keys, rerun=False)] == ["a"]


def elsewhere(results: Path, part: str) -> None:
    """Make what is kept another machine's."""
    path = results / "performance" / f"{part}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for record in lines:
        record["made"]["cpu"] = "Abacus"
    path.write_text("".join(json.dumps(record) + "\n" for record in lines))


def test_what_another_machine_measured_is_still_missing_here(tmp_path: Path) -> None:
    Measurements(tmp_path, "things").add("a", {"value": 1})
    elsewhere(tmp_path, "things")
    fresh = Measurements(tmp_path, "things")
    assert [record["value"] for record in fresh.missing({"a": lambda: {"value": 2}}, rerun=False)] == [2]
    assert [record["value"] for record in fresh.records()] == [1, 2]
    assert fresh.own()["a"]["value"] == 2


def test_the_roofline_is_measured_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program really measures is what the page reads."""
    ceilings = roofline.Ceilings(1e9, {2**10: 8e9, 2**20: 4e9, 2**30: 1e9})
    monkeypatch.setattr(roofline, "measure_ceilings", lambda: ceilings)
    monkeypatch.setattr(parts, "in_fresh_process", lambda function, *arguments: function(*arguments))
    graphs = ("community[nodes=200,features=60]", "no such graph")
    monkeypatch.setattr(roofline, "DATASETS", graphs)
    arguments = parse(["--performance", "roofline", "--clients", "4", "--results", str(tmp_path)])
    text = measure(arguments).read_text()
    found = Measurements(tmp_path, "roofline").own()
    assert "error" not in found[f"{graphs[0]} 4"]
    assert f"- {graphs[1]} 4: UserError: unknown" in text
    shown = found[f"{graphs[0]} 4"]
    assert f"{shown['seconds'] / shown['limit']:.2f}×" in text


def test_the_page_tells_ratios_failures_and_targets(tmp_path: Path) -> None:
    peers = Measurements(tmp_path, "peers")
    peers.add("fedavg cora 10", COMPARED)
    broken = {"status": "peer failed", "error": "IndexError: mask", "phases": {}}
    peers.add("gcfl+ cora 10", {"method": "gcfl+", "dataset": "cora", "clients": 10, **broken})
    peers.add("fedgb fedavg cora 10", {**COMPARED, "versions": {"FedGB": "7557f37"}})
    personal = {"personal": {"ours": [2.0], "peer": [4.0]}}
    peers.add("adafgl cora 10", {**COMPARED, "method": "adafgl", "phases": personal})
    Measurements(tmp_path, "roofline").add("cora 5", {"status": "ours failed", "error": "no room"})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "performance.md").write_text("Noted.\n")
    page = write_performance_page(tmp_path)
    text = " ".join(page.read_text().split())
    assert "| FedAvg | 4.5× |" in text
    assert "| FedAvg (FedGB) | 4.5×" in text
    assert "| a round beside openfgl-lib's | 2.0× and 4.5× |" in text
    assert "lowest 2.00× (adafgl cora 10): **not met** |" in text
    assert "| a round beside FedGB's | 4.5× |" in text
    assert "## Beside FedGB The peer: FedGB 7557f37." in text
    assert "shared with FedGB, Cora, 5 and 10 clients: ≥ 4× FedGB | 4.50×: not yet measured" in text
    assert "| GCFL+ | the peer cannot run it |" in text
    assert "| FedAvg | cora | | 4.5× (4.0–5.0), 1500 ms |" in text
    assert "The peer's GCFL+ fails on cora (10): `IndexError: mask`" in text
    assert "| FedAvg, Cora, 10 clients: ≥ 4× openfgl-lib | 4.50×: met |" in text
    assert "- cora 5: no room" in text
    assert "Noted." in text
    again = page.read_bytes()
    assert write_performance_page(tmp_path).read_bytes() == again


def test_the_page_tells_whether_trained_suites_are_as_accurate(tmp_path: Path) -> None:
    """By hand: 81, 82, 83 beside 80, 81, 82: a point, ± t(0.95; 4) √(1/3 + 1/3) = 2.132 · 0.816 = 1.74."""
    kept = Measurements(tmp_path, "trained")
    shared = {"method": "fedavg", "dataset": "cora", "clients": 5, "rounds": 100, "versions": {"torch": "2"}}
    for pairing, off in (("fedavg", 1.0), ("fedgb fedavg", 40.0)):
        for seed, theirs in enumerate((80.0, 81.0, 82.0)):
            values = {**shared, "pairing": pairing, "seed": seed, "status": "ok"}
            accuracy = {"ours": (theirs + off) / 100, "peer": theirs / 100}
            kept.add(f"{pairing} cora 5 seed {seed}", {**values, "accuracy": accuracy})
    broken = {**shared, "pairing": "gcfl+", "method": "gcfl+", "seed": 0}
    kept.add("gcfl+ cora 5 seed 0", {**broken, "status": "peer failed", "error": "IndexError: mask"})
    kept.add("moon cora 5 seed 0", {**broken, "pairing": "moon", "status": "ours failed", "error": "no"})
    text = " ".join(write_performance_page(tmp_path).read_text().split())
    row = "| FedAvg | cora, 5 | 100 | 3 | 82.0 | 81.0 | +1.00 (-0.74 to +2.74): undecided |"
    assert row in text.replace("−", "-")
    assert "| FedAvg (FedGB) | cora, 5 | 100 | 3 | 121.0 | 81.0 | +40.00" in text
    assert "| accuracy beside openfgl-lib's, methods | undecided: 1 |" in text
    assert "| accuracy beside FedGB's, methods | differs: 1 |" in text
    assert "| GCFL+ | cora, 5 | 100 | 0 | | | IndexError: mask |" in text
    assert "- moon cora 5 seed 0: no" in text


def test_every_machine_has_its_own_column_and_part(tmp_path: Path) -> None:
    Measurements(tmp_path, "roofline").add("cora 5", ROUND)
    elsewhere(tmp_path, "roofline")
    Measurements(tmp_path, "roofline").add("cora 5", {**ROUND, "seconds": 2.0})
    text = " ".join(write_performance_page(tmp_path).read_text().split())
    assert "| cora | 3.0× (3.0–3.0) | 2.0× (2.0–2.0) |" in text
    assert "the speed of its limit | 0.33×: **not met** | 0.50×: met |" in text
    first, second = text.split(" # On ")[1:]
    assert first.startswith("Abacus")
    assert "3.00×" in first
    assert "2.00×" not in first
    assert "2.00×" in second


def half_a_core(cell: Cell) -> Record:
    seconds = {"setup": 30.0, "train": 60.0 * (1 + cell.seed), "evaluate": 30.0}
    return make_record(cell, seconds=seconds, core_share=0.5)


def test_a_table_costs_the_seconds_of_a_core_that_its_records_took(tmp_path: Path) -> None:
    asked = ["--dataset", "community[nodes=60]", "--method", "local", "--clients", "2", "--seeds", "4"]
    assert main(parse([*asked, "--engine", "in-process", "--results", str(tmp_path)]), half_a_core) == 0
    text = write_performance_page(tmp_path).read_text()
    assert "| default | community[nodes=60] | 3 cells: 4.5 min |" in text
    assert "| default | all, every seed | 4 cells: 7.0 min |" in text
    assert "| a whole table | 7.0 min (7.0–7.0), all 1: " in text


def test_the_figures_of_a_paper_cost_what_their_records_took_once(tmp_path: Path) -> None:
    """Of the first three seeds."""
    asked = ["--table", "fedpub-2", "--dataset", "cora", "--clients", "10", "--seeds", "5"]
    store = Store(tmp_path, "fedpub-2")
    for cell in make_plan(parse([*asked, "--method", "local"])).cells:
        store.append(make_record(cell, 66.0, seconds={"train": 3600.0}, core_share=0.5))
    text = write_performance_page(tmp_path).read_text()
    assert re.search(r"^\| FED-PUB \| [1-9] of [0-9]+ \| 3 cells: 1\.50 h \|$", text, re.MULTILINE)
    assert "| FedStruct |" not in text
    assert re.search(r"^\| these four \| .* \| 3 cells: 1\.50 h \|$", text, re.MULTILINE)


def test_the_total_adds_what_the_campaign_reckons_for_the_rest(tmp_path: Path) -> None:
    """Five seeds of one row, of an hour each, of which three count."""
    asked = ["--table", "fedpub-2", "--dataset", "cora", "--clients", "10", "--seeds", "5"]
    store = Store(tmp_path, "fedpub-2")
    for cell in make_plan(parse([*asked, "--method", "local"])).cells:
        store.append(make_record(cell, 66.0, seconds={"train": 3600.0}))
    text = write_performance_page(tmp_path).read_text()
    found = re.search(
        r"^With three seeds the (\S+) measurable figures of these four take (\S+) core-hours, 3\.0 on record "
        r"for (\d) of them and about (\S+), as the campaign reckons, for the (\S+) cells that are left, "
        r"beside an aim of 20; those of all papers take (\S+), of which (\S+) are left\.$",
        text,
        re.MULTILINE,
    )
    assert found is not None
    assert f"| these four | {found[3]} of {found[1]} |" in text
    total, left, cells, whole, whole_left = (float(found[k].replace(",", "")) for k in (2, 4, 5, 6, 7))
    assert total == pytest.approx(3 + left, abs=0.11)
    assert whole == pytest.approx(3 + whole_left, abs=0.11)
    assert whole_left > left > 100
    assert cells > 1000
    assert cells % 3 == 0


def test_intervals_hold_the_mean_and_shrink_to_one_value() -> None:
    low, mean, high = geometric_mean([2.0, 8.0, 4.0])
    assert mean == pytest.approx(4.0)
    assert low < mean < high
    assert geometric_mean([3.0]) == pytest.approx((3.0, 3.0, 3.0))


def test_an_empty_folder_makes_an_empty_page(tmp_path: Path) -> None:
    assert "Nothing is on record" in write_performance_page(tmp_path).read_text()


def test_the_committed_page_answers_in_its_first_screen() -> None:
    results = Path(__file__).parents[3] / "results"
    text = (results / "performance.md").read_text()
    # What is read; the details of each machine grow with what is timed on it.
    assert len(text.split("\n# On ")[0].splitlines()) <= 160
    screen, targets = "\n".join(text.splitlines()[:40]).split("# Targets")
    for question in ("beside openfgl-lib's", "beside the machine's limit", "a whole table"):
        assert f"{question} | " in screen
    assert "# How much faster" in targets


def test_parts_are_checked_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="part of the performance page"):
        measure(parse(["--performance", "roofine", "--results", str(tmp_path)]))


def test_the_command_line_names_parts_and_peers() -> None:
    assert parse([]).performance is None
    assert parse(["--performance"]).performance == ()
    assert parse(["--performance", "peers,roofline"]).performance == ("peers", "roofline")
    assert parse(["--peers", "--pairs", "3"]).performance == ("peers",)


def test_a_dry_run_names_what_is_missing_and_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Measurements(tmp_path, "roofline")
    wanted = ["--performance", "roofline", "--clients", "4,5", "--dataset", "cora"]
    kept.add("cora 4", {"status": "ok"})
    assert main(parse([*wanted, "--dry-run", "--results", str(tmp_path)])) == 0
    assert capsys.readouterr().out == "roofline: cora 5\n"
    assert len(kept.records()) == 1


def test_a_comparison_that_is_no_longer_made_has_no_row(tmp_path: Path) -> None:
    peers = Measurements(tmp_path, "peers")
    for key in ("fedavg cora 10", "fedavg cora 7", "gone cora 10"):
        peers.add(key, COMPARED)
    assert "| FedAvg | 4.5× |" in write_performance_page(tmp_path).read_text()


def test_a_folder_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match="--results"):
        Measurements(file, "peers").add("fedavg cora 10", COMPARED)
