"""Rounds written where TensorBoard, Weights & Biases and MLflow show them: a run for every cell."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.callbacks.base import Round
from datasets.extras import needed


def _needed(module: str) -> Any:
    return needed(module, module, "this callback", "leave the callback out")


@dataclass
class TensorBoard:
    """Event files for TensorBoard, a folder for every cell, named by its key."""

    folder: str | Path = "tensorboard"
    _writers: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, done: Round) -> None:
        """Write one round. Raises UserError where TensorBoard is not installed."""
        key = done.cell.key
        if key not in self._writers:
            _needed("tensorboard")
            writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
            self._writers[key] = writer(str(Path(self.folder) / key))
            self._writers[key].add_text("cell", done.cell.title)
        for name, value in done.figures.items():
            self._writers[key].add_scalar(name, value, done.round)
        if done.round == done.rounds:
            self._writers.pop(key).close()


@dataclass
class WandB:
    """Runs of a project in Weights & Biases, one for every cell."""

    project: str = "fedsub-bench"
    mode: str = "online"
    """Or `offline`, or `disabled`."""
    _runs: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, done: Round) -> None:
        """Log one round. Raises UserError where wandb is not installed."""
        key = done.cell.key
        if key not in self._runs:
            wandb = _needed("wandb")
            self._runs[key] = wandb.init(
                project=self.project,
                name=done.cell.title,
                config=done.cell.to_dict(),
                mode=self.mode,
                reinit="create_new",
            )
        self._runs[key].log(done.figures, step=done.round)
        if done.round == done.rounds:
            self._runs.pop(key).finish()


@dataclass
class MLflow:
    """Runs of an experiment in MLflow, one for every cell."""

    experiment: str = "fedsub-bench"
    uri: str | None = None
    """Of the tracking server or folder; None: as MLflow is set up."""
    _runs: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, done: Round) -> None:
        """Log one round. Raises UserError where MLflow is not installed."""
        client = _needed("mlflow").MlflowClient(tracking_uri=self.uri)
        entities = importlib.import_module("mlflow.entities")
        key = done.cell.key
        if key not in self._runs:
            found = client.get_experiment_by_name(self.experiment)
            place = found.experiment_id if found else client.create_experiment(self.experiment)
            self._runs[key] = client.create_run(place, run_name=done.cell.title).info.run_id
            chosen = [entities.Param(name, str(value)) for name, value in done.cell.to_dict().items()]
            client.log_batch(self._runs[key], params=chosen)
        now = int(1000 * time.time())
        reached = [entities.Metric(name, value, now, done.round) for name, value in done.figures.items()]
        client.log_batch(self._runs[key], metrics=reached)
        if done.round == done.rounds:
            client.set_terminated(self._runs.pop(key))
