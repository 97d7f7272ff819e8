"""What the apps of clients and server share: the cell that they run, and Flower's records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, RecordDict

from fedsub.benchmark.execution.flower.wire import Wire
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.federation import Federation
from fedsub.methods.core.setting import Setting, make_setting

METHOD_FILE = "method.py"
"""A user's own method, in the app's folder."""


def cell_of(context: Context, folder: Path) -> Cell:
    """The cell that the app's configuration holds."""
    cell = Cell.from_dict(json.loads(str(context.run_config["cell"])))
    own = folder / METHOD_FILE
    return replace(cell, method=str(own)) if own.exists() else cell


def setting_of(cell: Cell, federation: Federation) -> Setting:
    """The cell's setting on these clients."""
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


def arrays_of(wire: Wire) -> ArrayRecord:
    """The arrays as Flower sends them."""
    return ArrayRecord({name: Array(np.ascontiguousarray(each)) for name, each in wire.arrays.items()})


def wire_of(content: RecordDict) -> Wire:
    """The message in a record."""
    arrays = {name: array.numpy() for name, array in content["sent"].items()}
    return Wire(arrays, str(content["told"]["form"]))
