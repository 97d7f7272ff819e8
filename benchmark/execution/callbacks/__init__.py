"""Callbacks: functions of a `Round`, called after every round of a cell.

`TensorBoard`, `WandB` and `MLflow` log the rounds to these programs. Each needs the extra of its name
(`pip install -e '.[tensorboard]'`) and imports it at its first round. `fedsub.run` closes them at its end. A
callback that raises `Stop` ends its cell early.
"""

from __future__ import annotations

from fedsub.benchmark.execution.callbacks.base import Callback, Round, Stop
from fedsub.benchmark.execution.callbacks.loggers import CellLogger, MLflow, TensorBoard, WandB

__all__ = ["Callback", "CellLogger", "MLflow", "Round", "Stop", "TensorBoard", "WandB"]
