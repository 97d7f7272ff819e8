"""Callbacks: functions of a `Round`, called after every round of a cell.

`TensorBoard`, `WandB` and `MLflow` log the rounds to these programs, one run for every cell. Each needs the
extra of its name (`pip install -e '.[tensorboard]'`) and imports it at its first round. `fedsub.run` closes
them at its end. A callback that raises `Stop` ends its cell early.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.extras import needed
from fedsub.methods.core import rounds


@dataclass(frozen=True, kw_only=True)
class Round(rounds.RoundDone):
    """The state of a cell after one of its rounds."""

    cell: Cell

    @property
    def figures(self) -> dict[str, float]:
        """Group and name, such as `scores/test` → figure."""
        groups = {"losses": self.losses, "scores": self.scores, "bytes": self.bytes, "seconds": self.seconds}
        return {f"{group}/{name}": value for group, found in groups.items() for name, value in found.items()}


class Stop(Exception):
    """Raised by a callback to end its cell as stopped, not failed; a later run runs the cell again."""


Callback = Callable[[Round], None]
"""Function called after every round, in the process of the run. `Stop` ends the cell as stopped, any other
exception as failed. A cell in a worker process may by then be some rounds further, which are lost."""


def _needed(module: str) -> Any:
    return needed(module, module, "this callback", "leave the callback out")


class _Run(NamedTuple):
    write: Callable[[Round], object]
    end: Callable[[bool], object]
    """Its argument is whether the cell has failed."""


@dataclass
class CellLogger:
    """Writes the rounds of each cell into a separate run, which ends with the cell's last round."""

    _open: dict[str, _Run] = field(default_factory=dict, init=False, repr=False)
    """Key of a cell that has not ended → its run."""

    def __call__(self, done: Round) -> None:
        """Write one round. Raises UserError if the library is not installed."""
        key = done.cell.key
        if key not in self._open:
            self._open[key] = self._begin(done)
        self._open[key].write(done)
        if done.round == done.rounds:
            self._open.pop(key).end(False)

    def close(self) -> None:
        """End the runs of failed cells."""
        while self._open:
            self._open.popitem()[1].end(True)

    def _begin(self, done: Round) -> _Run:
        raise NotImplementedError


@dataclass
class TensorBoard(CellLogger):
    """Event files for TensorBoard, one folder per cell, named by the cell's key."""

    folder: str | Path = "tensorboard"

    def _begin(self, done: Round) -> _Run:
        _needed("tensorboard")
        writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        run = writer(str(Path(self.folder) / done.cell.key))
        run.add_text("cell", done.cell.title)

        def write(done: Round) -> None:
            for name, value in done.figures.items():
                run.add_scalar(name, value, done.round)

        return _Run(write, lambda has_failed: run.close())


@dataclass
class WandB(CellLogger):
    """Runs of a project in Weights & Biases, one per cell."""

    project: str = "fedsub-bench"
    mode: str | None = None
    """`online`, `offline` or `disabled`; None for W&B's own setting (WANDB_MODE)."""

    def _begin(self, done: Round) -> _Run:
        run = _needed("wandb").init(
            project=self.project,
            name=done.cell.title,
            config=done.cell.to_dict(),
            mode=self.mode,
            reinit="create_new",
        )
        return _Run(
            lambda done: run.log(done.figures, step=done.round),
            lambda has_failed: run.finish(exit_code=int(has_failed)),
        )


@dataclass
class MLflow(CellLogger):
    """Runs of an experiment in MLflow, one per cell."""

    experiment: str = "fedsub-bench"
    uri: str | None = None
    """Address of the tracking server or folder; None for MLflow's own setting."""

    def _begin(self, done: Round) -> _Run:
        client = _needed("mlflow").MlflowClient(tracking_uri=self.uri)
        entities = importlib.import_module("mlflow.entities")
        found = client.get_experiment_by_name(self.experiment)
        place = found.experiment_id if found else client.create_experiment(self.experiment)
        run = client.create_run(place, run_name=done.cell.title).info.run_id
        chosen = [entities.Param(name, str(value)) for name, value in done.cell.to_dict().items()]
        client.log_batch(run, params=chosen)

        def write(done: Round) -> None:
            now, figures = int(1000 * time.time()), done.figures.items()
            reached = [entities.Metric(name, value, now, done.round) for name, value in figures]
            client.log_batch(run, metrics=reached)

        return _Run(write, lambda failed: client.set_terminated(run, "FAILED" if failed else "FINISHED"))
