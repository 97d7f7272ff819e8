"""Checkpoints of cells, `checkpoints/KEY.pt` in the results folder, from which interrupted cells continue.

A cell continues only with the code, data, versions and processor with which it began: its record must equal
that of an uninterrupted run to the last bit. A file holds plain data and tensors; reading it runs no code.
"""

import io
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch

from fedsub.benchmark.machine import digest_of_sources, environment
from fedsub.benchmark.spec import digests
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.files import write_atomically
from fedsub.datasets.paths import PLUGIN
from fedsub.datasets.plugins import entry_points, load_entry_point, user_object
from fedsub.methods.core import registry
from fedsub.methods.core.state import CheckpointError, State
from fedsub.methods.stacked.backbones import BACKBONES


def path_of(results: Path, key: str) -> Path:
    """Return the path of a cell's checkpoint."""
    return results / "checkpoints" / f"{key}.pt"


def forget(results: Path, key: str) -> None:
    """Remove the checkpoint of a cell whose record is stored, and partial files of killed processes. One that
    cannot be removed does no harm."""
    path = path_of(results, key)
    with suppress(OSError):
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink(missing_ok=True)


def describe(results: Path, cells: Iterable[Cell]) -> Iterator[str]:
    """Yield a sentence for each cell with a checkpoint: whether it continues from there."""
    kept = {path.stem for path in path_of(results, "").parent.glob("*.pt")}
    for cell in cells:
        if cell.key in kept:
            try:
                # These three are known only on the machine that will run the cell.
                check(_read(path_of(results, cell.key))["stamp"], stamp(cell), ("cpu", "threads", "gpu"))
            except CheckpointError as error:
                yield f"{cell.title}: its checkpoint cannot be used ({error}); it starts from round 1"
            else:
                yield f"{cell.title}: continues from its checkpoint"


class CellCheckpoint:
    """The checkpoint of a cell that starts now (`methods.core.state.Checkpoint`)."""

    def __init__(self, results: Path, every: float, cell: Cell, federation: Federation) -> None:
        """`results` is absolute, since a worker may start elsewhere. `every`, above 0: seconds between two
        checkpoints."""
        self._path, self._every = path_of(results, cell.key), every
        # Code is read now, as files may be edited while the cell runs.
        self._at_start, self._federation = stamp(cell), federation
        self._due = time.monotonic() + every
        self._is_tried = self._has_warned = False

    @cached_property
    def _stamp(self) -> dict[str, Any]:
        # Hashing all data takes time; most cells end before their first checkpoint.
        return {**self._at_start, "graph": digests.of_federation(self._federation)}

    def restore(self, state: State) -> None:
        """See `methods.core.state.Checkpoint`; a second call does nothing."""
        if self._is_tried or not self._path.exists():
            return
        self._is_tried = True
        try:
            found = _read(self._path)
            check(found["stamp"], self._stamp)
            state.load(found.get("state"))
        except CheckpointError as error:
            raise CheckpointError(f"cannot continue from {self._path}: {error}") from error
        self._due = time.monotonic() + self._every

    def after_round(self, state: State) -> None:
        """Write the checkpoint if it is due; warn once if it cannot be written."""
        if time.monotonic() < self._due:
            return
        try:
            content = io.BytesIO()
            torch.save({"stamp": self._stamp, "state": state.save()}, content)
            write_atomically(self._path, content.getbuffer())
        except (OSError, UserError) as error:
            if not self._has_warned:
                warnings.warn(f"cannot write the checkpoint {self._path}: {error}", stacklevel=2)
            self._has_warned = True
        self._due = time.monotonic() + self._every


def stamp(cell: Cell) -> dict[str, Any]:
    """Return what a record depends on: cell, metrics, code, versions, processor, threads, device."""
    known = environment(cell.kernel, cell.device)
    # No figure depends on it.
    del known["machine"]
    for noun, group, name in (
        (registry.NOUN, registry.GROUP, cell.method),
        (BACKBONES.noun, BACKBONES.group, cell.architecture.backbone),
    ):
        if user_object(noun, name) is None and (code := _installed_code(group, name)):
            known[f"{noun}'s plug-in"] = code
    own = {"cell": cell.key, "metrics": ", ".join(cell.further_metrics), "code": digest_of_sources(".py")}
    return {**own, **known, "threads": torch.get_num_threads()}


@cache
def _installed_code(group: str, name: str) -> str:
    """Return SHA-256 over the files of the package that provides a part by an entry point, at this process's
    first call. Empty for any other part: a cell's key already covers user-supplied files."""
    point = entry_points(group).get(name)
    if point is None:
        return ""
    with suppress(UserError):
        load_entry_point(point)
    module = sys.modules.get(point.module.partition(".")[0])
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    files = [path for folder in folders for path in sorted(folder.rglob(f"*{PLUGIN}"))]
    return digests.of_files(files or [Path(getattr(module, "__file__", None) or os.devnull)])


def check(found: Mapping[str, Any], now: Mapping[str, Any], unknown: Iterable[str] = ()) -> None:
    """Compare a stamp with the present one, except for `unknown` entries. Raises CheckpointError naming the
    first entry that differs."""
    for name, value in now.items():
        if name not in unknown and found.get(name) != value:
            is_digest = name in ("cell", "code", "graph") or name.endswith("plug-in")
            here = "" if is_digest else f" ({found.get(name)}, here {value})"
            raise CheckpointError(f"it was made with a different {name}{here}")


def _read(path: Path) -> dict[str, Any]:
    """Return a file's content. Raises CheckpointError if it is no checkpoint or is damaged."""
    try:
        # torch.load does not compare the checksums that torch.save writes.
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        found = torch.load(path, weights_only=True)
    except Exception as error:
        # A file of another origin may raise any exception.
        said = " ".join(str(error).split())[:200]
        raise CheckpointError(f"it cannot be read ({type(error).__name__}: {said})") from error
    if damaged is not None:
        raise CheckpointError("it is damaged: a checksum does not match")
    if not isinstance(found, dict) or not isinstance(found.get("stamp"), dict):
        raise CheckpointError("it is not a checkpoint")
    return found
