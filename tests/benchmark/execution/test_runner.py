from dataclasses import replace
from pathlib import Path

import pytest

from fedsub.benchmark.execution import runner
from fedsub.benchmark.execution.runner import attempt, prepare, run
from fedsub.benchmark.records.record import Failure
from fedsub.datasets.errors import UserError
from fedsub.methods.core import training
from tests.benchmark.fakes import make_cell, with_settings

SMALL = make_cell(
    dataset="community[nodes=300,communities=12]", clients=3, rounds=3, hidden=[16], features="row-normalised"
)


class PlayedTime:
    """A fake `time`: both clocks advance at every read, the wall clock also while something waits."""

    def __init__(self) -> None:
        self.worked = self.waited = 0

    def process_time(self) -> float:
        self.worked += 1
        return float(self.worked)

    def perf_counter(self) -> float:
        return self.process_time() + self.waited

    def wait(self, done: object) -> None:
        self.waited += 1000


def test_the_share_of_a_core_is_of_the_seconds_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting outside of them, here in a callback, does not count."""
    time = PlayedTime()
    for module in (runner, training):
        monkeypatch.setattr(module, "time", time)
    record = run(SMALL, callbacks=[time.wait])
    assert time.waited == 3000
    assert record.result.core_share == 1.0
    assert sum(record.seconds.values()) < 1000


def test_a_record_holds_what_came_out() -> None:
    cell = with_settings(SMALL, method="fedprox")
    record = run(cell)
    assert (record.status, record.cell, record.options) == ("ok", cell, {"mu": 0.01})
    accuracy = record.metrics["accuracy"]
    assert accuracy is not None
    assert 0 <= accuracy <= 100
    assert set(record.result.seconds) == {"setup", "train", "evaluate"}
    assert all(value > 0 for value in record.result.seconds.values())
    assert set(record.bytes) == {"up", "down", "once"}
    assert record.rounds == 3
    assert record.curve["round"] == [1, 2, 3]
    best = record.curve["round"].index(record.result.selected_round)
    assert record.curve["test"][best] == pytest.approx(accuracy, abs=5e-5)
    assert record.result.partition_statistics["clients"] == 3
    assert record.result.peak_memory_mb > 50
    told = {"python", "dgl", "torch", "cpu", "threads", "machine", "kernel", "device"}
    assert told <= set(record.environment)


def test_a_run_that_diverges_is_one_sentence_in_a_failed_record() -> None:
    record = attempt(with_settings(SMALL, learning_rate=1e30, rounds=10, dropout=0.0))
    assert record.status == "failed"
    assert "diverged" in (record.error or "")
    assert isinstance(record.outcome, Failure)
    assert record.outcome.traceback is None
    assert record.metrics == {}


def test_an_error_of_our_own_is_recorded_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("fedsub.benchmark.execution.runner.train", broken)
    record = attempt(SMALL)
    assert (record.error or "").startswith("RuntimeError: two lines (test_runner.py line ")
    assert isinstance(record.outcome, Failure)
    assert "in broken" in (record.outcome.traceback or "")


def test_a_seed_of_its_own_holds_the_data_still() -> None:
    cell = with_settings(SMALL, seed=1, data_seed=0)
    own, other = run(cell), run(with_settings(SMALL, seed=0))
    assert own.result.partition_statistics == other.result.partition_statistics
    assert own.curve["test"] != other.curve["test"]
    assert with_settings(cell, data_seed=-1).key == with_settings(SMALL, seed=1).key != cell.key
    assert run(with_settings(SMALL, seed=0, data_seed=0)).curve["test"] == other.curve["test"]


def test_what_preparing_takes_from_a_graph_of_ones_own_is_said(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("label,f1\n0,1\n1,2\n0,3\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    own = make_cell(dataset=str(tmp_path), largest_component=True, features="row-normalised")
    for said in ("1 of 3 nodes lie outside", "2 classes (0: 2, 1: 1)", "rows of features are divided"):
        assert said in prepare(own).note
    kept = replace(own, largest_component=False, feature_transform="raw")
    assert prepare(kept).note.endswith("0 nodes without a label")


def test_negative_features_of_a_users_graph_are_not_divided_by_sums(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("label,f1\n0,1\n1,-2\n0,4\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    own = make_cell(dataset=str(tmp_path), features="row-normalised")
    with pytest.raises(UserError, match=r"are negative: .* set features=standardised .* or features=raw"):
        prepare(own)
    scaled = prepare(replace(own, feature_transform="standardised")).features
    assert scaled.flatten().tolist() == pytest.approx([0, -1.224745, 1.224745], abs=1e-5)
