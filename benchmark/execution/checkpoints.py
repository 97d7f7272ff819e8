"""Checkpoints of cells in the results folder; a cell continues only to the record of an uninterrupted run."""

from contextlib import suppress
from functools import cache
from pathlib import Path

from fedsub.benchmark.machine import digest_of_sources, environment
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.digests import of_federation, of_package
from fedsub.datasets.federation import Federation
from fedsub.datasets.plugins import entry_points
from fedsub.methods.core import registry
from fedsub.methods.core.state import Checkpoint
from fedsub.methods.stacked.backbones import BACKBONES


def path_of(results: Path, key: str) -> Path:
    """Return the path of a cell's checkpoint."""
    return results / "checkpoints" / f"{key}.pt"


def checkpoint_of(results: Path, every: float, cell: Cell, federation: Federation) -> Checkpoint:
    """Return a starting cell's checkpoint, stamped with what its figures depend on; `results` is absolute."""
    now = {"cell": cell.key, "metrics": list(cell.further_metrics), "code": digest_of_sources(".py")}
    for group, name in ((registry.GROUP, cell.method), (BACKBONES.group, cell.architecture.backbone)):
        if point := entry_points(group).get(name):
            now[f"code of {name}"] = of_package(point.module)
    now |= environment(cell.kernel, cell.device) | {"machine": None}  # No figure depends on it.
    stamp = cache(lambda: {**now, "graph": of_federation(federation)})  # Hashing all data takes time.
    return Checkpoint(path_of(results, cell.key), every, stamp)


def forget(results: Path, key: str) -> None:
    """Remove a cell's checkpoint and partial files of killed processes. One that stays does no harm."""
    with suppress(OSError):
        for each in path_of(results, "").parent.glob(f"{key}.pt*"):
            each.unlink(missing_ok=True)
