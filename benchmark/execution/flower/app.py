"""Code that the client app and the server app share: the cell and its setting."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flwr.app import Context

from fedsub.benchmark.execution.flower import OWN, OWN_PARTS
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import names_of, renamed, with_metrics
from fedsub.datasets.federation import Federation
from fedsub.datasets.paths import PLUGIN
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.setting import Setting, make_setting


def cell_of(context: Context, folder: Path) -> Cell:
    """Return the cell in the app's configuration."""
    cell = Cell.from_dict(json.loads(str(context.run_config["cell"])))
    # A user's file may import modules beside it.
    sys.path.append(str(folder / OWN))
    for part in OWN_PARTS:
        if (name := names_of(cell)[part]).endswith(PLUGIN):
            cell = renamed(cell, part, str(folder / OWN / name))
    return with_metrics(cell, lambda name: str(folder / OWN / name) if "[" in name else name)


def scores_received(method: FederatedMethod) -> bool:
    """Whether clients are scored after they received the server's answer, not after local training."""
    return method.schedule.evaluate == "received" or method.every_epoch


def setting_of(cell: Cell, federation: Federation) -> Setting:
    """Return the cell's setting on these clients."""
    return make_setting(
        federation,
        cell.architecture,
        cell.schedule,
        cell.seed,
        task=cell.task,
        metrics=cell.further_metrics,
        kernel=cell.kernel,
        device=cell.device,
    )
