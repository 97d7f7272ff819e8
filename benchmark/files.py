"""The files that cells name by their path: what they hold belongs to the cell, as their name does."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from benchmark.cell import Cell
from datasets.errors import UserError

PLUGIN = ".py"
ARCHIVE = ".npz"


class NamedFiles:
    """Digests of files, each file read once."""

    def __init__(self) -> None:
        self._read: dict[Path, str] = {}

    def digest(self, cell: Cell) -> str:
        """SHA-256 over the files that `cell` names by their path, or an empty text if it names none.

        A file that is not there does not count: the run says what is missing. Nor does a partition or split
        in the folder of archives, which is data, as the graphs beside it are. Raises UserError for a
        name or a file that cannot be read.
        """
        found = {part: self._content(path) for part, path in _paths(cell).items() if path.is_file()}
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""

    def _content(self, path: Path) -> str:
        if path not in self._read:
            try:
                with path.open("rb") as file:
                    self._read[path] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise UserError(f"cannot read {path}: {error.strerror}; check its permissions") from error
        return self._read[path]


def _paths(cell: Cell) -> dict[str, Path]:
    """Part of the cell → the file that it names."""
    found: dict[str, Path] = {}
    if cell.dataset.name.endswith((PLUGIN, ARCHIVE)):
        found["dataset"] = Path(cell.dataset.name)
    if cell.method.endswith(PLUGIN):
        found["method"] = Path(cell.method)
    for part, spec in (("partition", cell.partition), ("split", cell.split)):
        if spec.name.endswith(PLUGIN):
            found[part] = Path(spec.name).expanduser()
        elif spec.name == "file" and "path" in spec.written:
            path = Path(spec.written["path"]).expanduser()
            if not _is_data(path):
                found[part] = path
    return found


def _is_data(path: Path) -> bool:
    """Whether a relative path, found in the working folder, lies in the folder of archives all the same."""
    folder = os.environ.get("FEDSUB_DATA")
    if path.is_absolute() or not folder or not path.is_file():
        return False
    stored = Path(folder) / path
    return stored.is_file() and stored.samefile(path)
