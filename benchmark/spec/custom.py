"""Parts of one's own: methods, graphs, partitions and splits that a path names or a program hands over.

A cell holds them by their names, the digest of what they hold in `files` and their paths in `paths`: what
they do belongs to the cell's key, where they lie does not.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.options import Spec, format_name
from fedsub.datasets.paths import PLUGIN, is_path
from fedsub.datasets.plugins import Handed, handed

NOUNS = MappingProxyType(
    {"dataset": "dataset", "method": "method", "partition": "partition scheme", "split": "split"}
)
"""Part of a cell → what its kind is called where names are looked up."""
FILE = "file"
"""The partition scheme, and the split, that reads a file."""


@dataclass
class NamedFiles:
    """Names and digests of parts of one's own, each file read once."""

    handed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Noun and name → digest, of what a program hands over as objects."""
    _read: dict[Path, str] = field(default_factory=dict)

    def named(self, cell: Cell) -> Cell:
        """The cell with its parts of one's own under their names, with their digest and their paths.

        A file that is not there stays named by its path: the run says what is missing. Raises UserError
        for a name or a file that cannot be read.
        """
        paths = {part: path for part, path in _paths(cell).items() if path.expanduser().exists()}
        for part, path in paths.items():
            cell = renamed(cell, part, _name_of(part, path))
        cell = replace(cell, paths=tuple(f"{part}={path}" for part, path in sorted(paths.items())))
        return replace(cell, files=self.digest(cell))

    def digest(self, cell: Cell) -> str:
        """SHA-256 over what the cell's parts of one's own hold now, or an empty text if it has none.

        A partition or split in the folder of archives does not count, which is data, as the graphs beside it
        are. Raises UserError for a file that cannot be read.
        """
        keys = {part: (NOUNS[part], name) for part, name in names_of(cell).items()}
        found = {part: self.handed[key] for part, key in keys.items() if key in self.handed}
        found |= {part: self._content(part, path) for part, path in paths_of(cell).items()}
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""

    def _content(self, part: str, path: Path) -> str:
        if path not in self._read:
            from fedsub.benchmark.spec import fingerprints
            from fedsub.datasets import own

            files = own.files_of(path) if part == "dataset" else [path]
            self._read[path] = fingerprints.of_files(files)
        return self._read[path]


def paths_of(cell: Cell) -> dict[str, Path]:
    """Part of one's own → where it lies."""
    return {part: Path(path) for part, _, path in (each.partition("=") for each in cell.paths)}


def handed_by(cell: Cell) -> Handed:
    """What makes the names of a cell's parts known where it runs (`datasets.plugins.handed_over`)."""
    names = names_of(cell)
    found: dict[tuple[str, str], Any] = {}
    for part, path in paths_of(cell).items():
        reads = part in ("partition", "split") and path.suffix != PLUGIN
        # A folder in the working folder would be taken for a name.
        given = (
            partial(_reader(part), path=str(path))
            if reads
            else str(path if path.is_absolute() else f"./{path}")
        )
        found[NOUNS[part], names[part]] = given
    return found


def check_unchanged(cell: Cell) -> None:
    """To be asked when the cell's parts are loaded. Raises UserError if a file of one's own holds something
    else than when the cell was planned: its record would stand for what was not run."""
    paths = paths_of(cell)
    if not paths or any(
        handed(NOUNS[part], name) is not None for part, name in names_of(cell).items() if part not in paths
    ):
        # An object beside them, whose digest is known to the program alone, is in the same sum.
        return
    if NamedFiles().digest(cell) != cell.files:
        raise UserError(
            f"{' or '.join(map(str, paths.values()))} has changed since the cells were planned: give the "
            "same command again"
        )


def _paths(cell: Cell) -> dict[str, Path]:
    """Part of the cell → the file or folder that it names."""
    found: dict[str, Path] = {}
    if is_path(cell.dataset.name):
        found["dataset"] = Path(cell.dataset.name)
    if cell.method.endswith(PLUGIN):
        found["method"] = Path(cell.method)
    for part, spec in (("partition", cell.partition), ("split", cell.split)):
        if spec.name.endswith(PLUGIN):
            found[part] = Path(spec.name)
        elif spec.name == FILE and "path" in spec.written:
            path = Path(spec.written["path"])
            if not _is_data(path.expanduser()):
                found[part] = path
    return found


def names_of(cell: Cell) -> dict[str, str]:
    """Part of a cell → its name, without options."""
    return {
        "dataset": cell.dataset.name,
        "method": cell.method,
        "partition": cell.partition.name,
        "split": cell.split.name,
    }


def known_names(part: str) -> list[str]:
    """The names that are taken for a part: the benchmark's, those of plug-ins and of what is handed over."""
    from fedsub.datasets import partition, registry, splits
    from fedsub.methods.core import registry as methods

    names: dict[str, Callable[[], list[str]]] = {
        "dataset": registry.names,
        "method": methods.names,
        "partition": partition.SCHEMES.names,
        "split": splits.SCHEMES.names,
    }
    return names[part]()


def _reader(part: str) -> Callable[..., Any]:
    """The partition scheme or split that reads a file."""
    from fedsub.datasets.partition import file as partition_file
    from fedsub.datasets.splits import file as split_file

    return partition_file.partition if part == "partition" else split_file.split


def _name_of(part: str, path: Path) -> str:
    """What a part of one's own is called: its registered name, a graph's or a scheme's as its file; the whole
    name of the file where that name is another's, and of a partition or split that is only read."""
    if part == "method":
        from fedsub.methods.core import registry

        name = registry.describe(str(path)).name
    elif part == "dataset":
        from fedsub.datasets import own

        name = own.name_of(path)
    elif path.suffix == PLUGIN:
        name = path.stem.replace("_", "-")
    else:
        return path.name
    return path.name if name in known_names(part) else name


def renamed(cell: Cell, part: str, name: str) -> Cell:
    """The cell with a part under another name, its options kept."""
    if part == "method":
        label = cell.label.replace(cell.method, name, 1) if cell.label.startswith(cell.method) else cell.label
        return replace(cell, method=name, label=label)
    spec: Spec = getattr(cell, part)
    written = {key: text for key, text in spec.written.items() if spec.name != FILE or key != "path"}
    changed: dict[str, Any] = {part: Spec(format_name(name, written))}
    return replace(cell, **changed)


def _is_data(path: Path) -> bool:
    """Whether a relative path, found in the working folder, lies in the folder of archives all the same."""
    folder = os.environ.get("FEDSUB_DATA")
    if path.is_absolute() or not folder or not path.is_file():
        return False
    stored = Path(folder) / path
    return stored.is_file() and stored.samefile(path)
