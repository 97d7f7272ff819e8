"""What an app holds, and code that the client app and the server app share."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.custom import names_of, renamed, with_metrics
from fedsub.datasets.paths import PLUGIN
from fedsub.methods.core.base import FederatedMethod

OWN, OWN_PARTS = "own", {"method", "backbone"}
"""Folder in the app for user-supplied parts, and the parts of a cell whose files are copied there."""


def cell_of(config: Mapping[str, Any], folder: Path) -> Cell:
    """Return the cell in the app's configuration."""
    cell = Cell.from_dict(json.loads(config["cell"]))
    # A user's file may import modules beside it.
    sys.path.append(str(folder / OWN))
    for part in OWN_PARTS:
        if (name := names_of(cell)[part]).endswith(PLUGIN):
            cell = renamed(cell, part, str(folder / OWN / name))
    return with_metrics(cell, lambda name: str(folder / OWN / name) if "[" in name else name)


def scores_received(method: FederatedMethod) -> bool:
    """Whether clients are scored after they received the server's answer, not after local training."""
    return method.schedule.evaluate == "received" or method.every_epoch
