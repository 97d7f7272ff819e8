"""Callbacks after every round: what they receive, and that they change no result."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from fedsub import run
from fedsub.benchmark.execution.artifacts import Saving
from fedsub.benchmark.execution.callbacks import MLflow, Round, Stop, TensorBoard, WandB
from fedsub.benchmark.execution.runner import attempt
from tests.benchmark.fakes import comparable, make_cell

CELL = make_cell(dataset="community[nodes=300]", clients=3, rounds=4, hidden=[8], evaluate_every=2)


def test_every_round_is_told_and_changes_nothing() -> None:
    seen: list[Round] = []
    record = attempt(CELL, callbacks=[seen.append])
    assert [each.round for each in seen] == [1, 2, 3, 4]
    assert {each.rounds for each in seen} == {4}
    assert {each.cell for each in seen} == {CELL}
    assert [bool(each.scores) for each in seen] == [False, True, False, True]
    evaluated = [each for each in seen if each.scores]
    assert [each.scores["test"] for each in evaluated] == pytest.approx(record.curve["test"], abs=1e-3)
    assert [each.losses["train"] for each in evaluated] == pytest.approx(record.curve["loss"], abs=1e-3)
    assert seen[-1].bytes["up"] == record.bytes["up"] * 4
    assert seen[-1].seconds["train"] == pytest.approx(record.seconds["train"], rel=1e-3)
    assert comparable(record) == comparable(attempt(CELL))


def test_a_callback_ends_cells_of_worker_processes_too() -> None:
    def early(done: Round) -> None:
        if done.cell.seed < 2:
            raise Stop("enough") if done.cell.seed else ValueError("a fault")

    asked: dict[str, Any] = {"dataset": "community[nodes=60]", "method": "fedavg", "clients": 2, "rounds": 2}
    with pytest.warns(UserWarning, match="1 of 3 cells failed"):
        found = run(**asked, seeds=3, workers=2, callbacks=[early])
    ends = {record.cell.seed: (record.status, record.error) for record in found}
    assert (ends[1], ends[2]) == (("stopped", "enough"), ("ok", None))
    assert (ends[0][1] or "").startswith("ValueError: a fault (test_callbacks.py line ")


@pytest.mark.parametrize(
    ("callback", "extra"), [(TensorBoard(), "tensorboard"), (WandB(), "wandb"), (MLflow(), "mlflow")]
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    callback: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    error = attempt(CELL, callbacks=[callback]).error
    assert f"pip install -e '.[{extra}]'" in (error or "")


TINY: dict[str, Any] = {"dataset": "community[nodes=300]", "clients": 2, "method": "fedavg"}
TINY |= {"rounds": 3, "evaluate_every": 2, "hidden": (8,)}


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    events = "tensorboard.backend.event_processing.event_accumulator"
    reader = pytest.importorskip(events, reason="TensorBoard is an optional extra")
    seen: list[Round] = []
    run(**TINY, callbacks=[TensorBoard(tmp_path), seen.append])
    (folder,) = tmp_path.iterdir()
    assert folder.name == seen[0].cell.key
    written = reader.EventAccumulator(str(folder))
    written.Reload()
    for name in seen[1].figures:
        found = {event.step: event.value for event in written.Scalars(name)}
        expected = {each.round: each.figures[name] for each in seen if name in each.figures}
        assert found == pytest.approx(expected)


def test_mlflow_reads_what_was_written(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is an optional extra")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    seen: list[Round] = []
    run(**TINY, callbacks=[MLflow("mine", uri), seen.append])
    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (found.info.status, found.info.run_name) == ("FINISHED", seen[0].cell.title)
    assert found.data.params["method"] == "fedavg"
    for name in seen[1].figures:
        history = {each.step: each.value for each in client.get_metric_history(found.info.run_id, name)}
        expected = {each.round: each.figures[name] for each in seen if name in each.figures}
        assert history == pytest.approx(expected)


def test_weights_and_biases_gets_a_run_for_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[Mock] = []

    def init(**given: Any) -> Mock:
        began.append(Mock(given=given))
        return began[-1]

    monkeypatch.setitem(sys.modules, "wandb", Mock(init=init))
    run(**TINY, seeds=2, callbacks=[WandB(project="mine")])
    assert [each.log.call_count for each in began] == [3, 3]
    for each in began:
        assert each.given["project"] == "mine"
        each.finish.assert_called_once_with(exit_code=0)
        (figures,), how = each.log.call_args
        assert how == {"step": 3}
        assert {"losses/train", "bytes/up", "seconds/train"} <= set(figures)
        assert "scores/test" in each.log.call_args_list[1][0][0]


def test_a_file_that_cannot_be_written_costs_no_record(tmp_path: Path) -> None:
    saving = Saving(tmp_path, ("predictions", "model"))
    folder = tmp_path / "saved" / CELL.key
    (folder / "model.pt").mkdir(parents=True)
    with pytest.warns(UserWarning, match=r"model\.pt.*without its model"):
        record = attempt(CELL, save=saving)
    assert record.status == "ok"
    assert (folder / "predictions.npz").is_file()
    assert saving.lacks(record)
    (folder / "model.pt").rmdir()
    assert not saving.lacks(attempt(CELL, save=saving))


def test_per_client_scores_and_macro_f1_are_in_every_record() -> None:
    record = attempt(CELL)
    scores = [score for score in record.result.by_client["test"] if score is not None]
    found = record.metrics
    names = ("worst_client", "client_q1", "client_median", "client_q3")
    wanted = np.quantile(scores, (0, 0.25, 0.5, 0.75))
    assert [found[f"accuracy_{name}"] for name in names] == pytest.approx(wanted.tolist(), abs=1e-3)
    assert found["macro_f1"] is not None
