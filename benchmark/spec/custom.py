"""User-supplied methods, graphs, partitions, splits and backbones: their names and paths.

A cell holds the names, one digest in `files`, and the paths in `paths`. The digest is part of the cell's key,
the paths are not. Code is hashed as a syntax tree without comments and docstrings, which change no result.
"""

import ast
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fedsub.benchmark.spec import catalog, sources
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.digests import content_of, digest, of_files, with_modules
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import expanded
from fedsub.datasets.options import Spec, format_name
from fedsub.datasets.paths import PLUGIN, is_path
from fedsub.datasets.plugins import UserObjects, user_object

NOUNS: Mapping[str, str] = {
    "dataset": "dataset",
    "method": "method",
    "partition": "partition scheme",
    "split": "split",
    "backbone": "backbone",
}
"""Part of a cell → noun of its kind in the registries."""
FILE = "file"
"""Name of the partition scheme, and of the split, that reads a file."""


@dataclass
class NamedFiles:
    """Names and digests of user-supplied parts; each file is read once."""

    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Noun and name → digest of objects that a program passes."""
    _read: dict[Path, str] = field(default_factory=dict)

    def named(self, cell: Cell) -> Cell:
        """Return the cell with the names, digest and paths of its user-supplied parts.

        A part whose file is missing keeps its path as its name, so that the run reports it. Raises UserError
        for a file that cannot be read.
        """
        method, backbone = Spec(cell.method), Spec(cell.architecture.backbone)
        named = zip(NOUNS, (cell.dataset, method, cell.partition, cell.split, backbone), strict=True)
        paths = {part: path for part, spec in named if (path := _path_in(part, spec)) is not None}
        for part, path in paths.items():
            cell = renamed(cell, part, _name_of(part, path))
        if paths:
            cell = replace(cell, paths=tuple(f"{part}={path}" for part, path in sorted(paths.items())))
        if any(name.endswith(PLUGIN) for name in metrics_of(cell)):
            cell = with_metrics(cell, self.measured)
        content = self.digest(cell)
        return replace(cell, files=content) if content else cell

    def measured(self, metric: str) -> str:
        """Return a metric, a user's file with the start of its content's digest in brackets: scores of an
        earlier state of the file are not scores of this one."""
        path = Path(metric)
        if not metric.endswith(PLUGIN) or not expanded(path).exists():
            return metric
        return f"{metric}[{self._content('metric', path)[:8]}]"

    def digest(self, cell: Cell) -> str:
        """Return SHA-256 over the present content of the cell's user-supplied parts; empty if there are none.

        A method of the benchmark counts as user-supplied if its code, or that of a method it imports, is not
        as listed (`sources`): earlier records do not hold for it. A partition or split in the folder of
        archives is data and does not count. Raises UserError for a file that cannot be read.
        """
        keys = {part: (NOUNS[part], name) for part, name in names_of(cell).items()}
        found = {part: self.digests[key] for part, key in keys.items() if key in self.digests}
        found |= {part: self._content(part, path) for part, path in paths_of(cell).items()}
        if "method" not in found and (edited := self._edited(cell.method)):
            found["method"] = edited
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""

    @cached_property
    def _sources(self) -> dict[str, bytes]:
        """Path → code of the methods' files that differ from the list."""
        return sources.edited()

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        return sources.imports()

    def _edited(self, method: str) -> str:
        if not self._sources:
            return ""
        from fedsub.methods.core import registry

        if method not in registry.names():
            return ""
        own = {
            kind.__module__.removeprefix("fedsub.methods.").split(".")[0]
            for kind in registry.find(method).__mro__
        }
        while further := {each for name in own for each in self._imports.get(name, ())} - own:
            own |= further
        found = [code for name, code in self._sources.items() if sources.module_of(name) in own]
        return digest(found) if found else ""

    def _content(self, part: str, path: Path) -> str:
        if path not in self._read:
            self._read[path] = of_files(_files_of(part, path))
        return self._read[path]


def paths_of(cell: Cell) -> dict[str, Path]:
    """User-supplied part → its path."""
    found = (each.partition("=") for each in cell.paths)
    return {part: Path(path) for part, _, path in found if part in NOUNS}


def code_of(cell: Cell) -> list[str]:
    """Return the user's .py files that a run of the cell executes."""
    parts = (*map(str, paths_of(cell).values()), *names_of(cell).values())
    named = (*parts, *(metric.partition("[")[0] for metric in metrics_of(cell)))
    return [*dict.fromkeys(path for path in named if path.endswith(PLUGIN))]


def metrics_of(cell: Cell) -> tuple[str, ...]:
    """Return the further metrics and the selection metric; a user's file as `NamedFiles.measured`."""
    return *cell.further_metrics, cell.schedule.selection_metric


def with_metrics(cell: Cell, form: Callable[[str], str]) -> Cell:
    """Return the cell with its metrics (`metrics_of`) in another form."""
    *further, selection = map(form, metrics_of(cell))
    schedule = replace(cell.schedule, selection_metric=selection)
    return replace(cell, schedule=schedule, further_metrics=tuple(further))


def sources_of(part: str, path: Path) -> list[Path]:
    """Return the files that make up a user-supplied part. Raises UserError if one cannot be read."""
    return [each for file in _files_of(part, path) for each in with_modules(file)]


def _files_of(part: str, path: Path) -> list[Path]:
    from fedsub.datasets import own

    return own.files_of(path) if part == "dataset" else [path]


def user_objects_of(cell: Cell) -> UserObjects:
    """Noun and name → user-supplied part of the cell, for `datasets.plugins.user_objects`."""
    names = names_of(cell)
    found: dict[tuple[str, str], Any] = {}
    for part, path in paths_of(cell).items():
        reads = part in ("partition", "split") and path.suffix != PLUGIN
        given = partial(catalog.registries()[part].find(FILE), path=str(path)) if reads else written(path)
        found[NOUNS[part], names[part]] = given
    return found


def written(path: Path) -> str:
    """Return a path as text. Without `./`, a folder in the working folder would be read as a name."""
    return str(path if path.is_absolute() else f"./{path}")


def given_as(part: str, text: str, cell: Cell) -> str:
    """Return a part or setting of the cell, `text`, as a request gives it: a user's file by its path."""
    if part == "selection_metric":
        return text.partition("[")[0]
    if (path := paths_of(cell).get(part)) is None:
        return text
    spec = Spec(text)
    if part in ("partition", "split") and path.suffix != PLUGIN:
        return format_name(FILE, {**spec.written, "path": str(path)})
    return format_name(written(path), spec.written)


def check_unchanged(cell: Cell) -> None:
    """Raises UserError if a user's file has changed since the cell was planned."""
    paths = paths_of(cell)
    if not paths or any(
        user_object(NOUNS[part], name) is not None
        for part, name in names_of(cell).items()
        if part not in paths
    ):
        # The digest also covers an object that only the calling program can hash.
        return
    if NamedFiles().digest(cell) != cell.files:
        raise UserError(
            f"{' or '.join(map(str, paths.values()))} has changed since the cells were planned: give the "
            "same command again"
        )


def _path_in(part: str, spec: Spec) -> Path | None:
    """Return the user's file or folder that a part names, if it exists and is no data (`_is_data`)."""
    if spec.name.endswith(PLUGIN) or (part == "dataset" and is_path(spec.name)):
        path = Path(spec.name)
    elif part in ("partition", "split") and spec.name == FILE and "path" in spec.written:
        path = Path(spec.written["path"])
        if _is_data(expanded(path)):
            return None
    else:
        return None
    return path if expanded(path).exists() else None


def names_of(cell: Cell) -> dict[str, str]:
    """Part of a cell → its name, without options."""
    return {
        "dataset": cell.dataset.name,
        "method": cell.method,
        "partition": cell.partition.name,
        "split": cell.split.name,
        "backbone": cell.architecture.backbone,
    }


def _name_of(part: str, path: Path) -> str:
    """Return a name for a file without running its code: a method's registered name, else the file's stem. If
    the name is taken, and for a partition or split that is data: the whole file name; a folder whose name is
    taken gets ` (own)`."""
    if part == "method":
        name = _registered(path)
    elif part == "dataset":
        from fedsub.datasets import own

        name = own.name_of(path)
    elif path.suffix == PLUGIN:
        name = path.stem.replace("_", "-")
    else:
        return path.name
    known = catalog.names(part)
    return name if name not in known else f"{name} (own)" if path.name in known else path.name


def _registered(path: Path) -> str:
    """Return the name that a file registers its method under, or the stem if the name is no literal."""
    try:
        tree = ast.parse(content_of(expanded(path)))
    except (SyntaxError, ValueError):
        # Importing it reports the error.
        return path.stem
    for node in ast.walk(tree):
        for mark in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            if isinstance(mark, ast.Call) and ast.unparse(mark.func).split(".")[-1] == "register":
                name = mark.args[0] if mark.args else None
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    return name.value
    return path.stem


def by_name(part: str, text: Any) -> Any:
    """Return a value of a grid's axis, or a split, with the path of a user's file replaced by the name of its
    content."""
    if part not in NOUNS:
        return text
    path = _path_in(part, spec := Spec(text))
    return text if path is None else _spec_named(spec, _name_of(part, path)).text


def renamed(cell: Cell, part: str, name: str) -> Cell:
    """Return the cell with a part under another name, its options kept."""
    if part == "method":
        label = cell.label.replace(cell.method, name, 1) if cell.label.startswith(cell.method) else cell.label
        return replace(cell, method=name, label=label)
    if part == "backbone":
        return replace(cell, architecture=replace(cell.architecture, backbone=name))
    changed: dict[str, Any] = {part: _spec_named(getattr(cell, part), name)}
    return replace(cell, **changed)


def _spec_named(spec: Spec, name: str) -> Spec:
    """Return a spec under another name; of its options only the path of FILE is dropped."""
    written = {key: text for key, text in spec.written.items() if spec.name != FILE or key != "path"}
    return Spec(format_name(name, written))


def _is_data(path: Path) -> bool:
    """Whether a relative path names the same file in the working folder and in the folder of archives."""
    folder = os.environ.get("FEDSUB_DATA")
    if path.is_absolute() or not folder or not path.is_file():
        return False
    stored = Path(folder) / path
    return stored.is_file() and stored.samefile(path)
