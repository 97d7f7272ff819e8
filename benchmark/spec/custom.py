"""User-supplied methods, graphs, partitions, splits and networks: their names, and digests of their content.

A cell holds the names, one digest in `files` and the paths in `paths`. The digest belongs to the cell's key,
the paths do not. Code is hashed as a syntax tree without comments and docstrings, which change no figure.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import linecache
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from fedsub.benchmark.machine import edited
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained
from fedsub.datasets.options import Spec, format_name
from fedsub.datasets.paths import PLUGIN, is_path
from fedsub.datasets.plugins import UserObjects, user_object

if TYPE_CHECKING:
    import numpy as np

    from fedsub.datasets.graph import Dataset

NOUNS = MappingProxyType(
    {
        "dataset": "dataset",
        "method": "method",
        "partition": "partition scheme",
        "split": "split",
        "backbone": "backbone",
    }
)
"""Part of a cell → noun of its kind in the registries."""
FILE = "file"
"""Name of the partition scheme and the split that read a file."""


@dataclass
class NamedFiles:
    """Names and digests of user-supplied parts; each file is read once."""

    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Noun and name → digest of objects that a program passes."""
    _read: dict[Path, str] = field(default_factory=dict)

    def named(self, cell: Cell) -> Cell:
        """The cell with the names, digest and paths of its user-supplied parts.

        A missing file stays named by its path, so that the run reports it. Raises UserError for a file that
        cannot be read.
        """
        paths = {part: path for part, path in _paths(cell).items() if path.expanduser().exists()}
        for part, path in paths.items():
            cell = renamed(cell, part, _name_of(part, path))
        cell = replace(cell, paths=tuple(f"{part}={path}" for part, path in sorted(paths.items())))
        return replace(cell, files=self.digest(cell))

    def digest(self, cell: Cell) -> str:
        """SHA-256 over the present content of the cell's user-supplied parts; empty if it has none.

        So counts a method of the tree whose code, or that of one it extends, is not that of the checked-out
        commit: earlier records do not answer for it.
        A partition or split in the folder of archives is data and does not count. Raises UserError for a
        file that cannot be read.
        """
        keys = {part: (NOUNS[part], name) for part, name in names_of(cell).items()}
        found = {part: self.digests[key] for part, key in keys.items() if key in self.digests}
        found |= {part: self._content(part, path) for part, path in paths_of(cell).items()}
        if "method" not in found and (edited := self._edited(cell.method)):
            found["method"] = edited
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""

    @cached_property
    def _sources(self) -> dict[str, bytes]:
        """Path → code of the methods that were edited since the checked-out commit."""
        texts = {name: tuple(map(_code_in, pair)) for name, pair in edited("methods").items()}
        return {name: now for name, (before, now) in sorted(texts.items()) if now != before}

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
        found = [
            code
            for name, code in self._sources.items()
            if Path(name).parts[1].removesuffix(PLUGIN) in own.difference(registry.SHARED)
        ]
        return _digest(found) if found else ""

    def _content(self, part: str, path: Path) -> str:
        if path not in self._read:
            from fedsub.datasets import own

            self._read[path] = of_files(own.files_of(path) if part == "dataset" else [path])
        return self._read[path]


def paths_of(cell: Cell) -> dict[str, Path]:
    """User-supplied part → its path."""
    return {part: Path(path) for part, _, path in (each.partition("=") for each in cell.paths)}


def user_objects_of(cell: Cell) -> UserObjects:
    """The cell's user-supplied parts by noun and name, for `datasets.plugins.user_objects`."""
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
    """Raises UserError if a user's file has changed since the cell was planned."""
    paths = paths_of(cell)
    if not paths or any(
        user_object(NOUNS[part], name) is not None
        for part, name in names_of(cell).items()
        if part not in paths
    ):
        # The same digest covers an object that only the calling program can hash.
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
    if cell.architecture.backbone.endswith(PLUGIN):
        found["backbone"] = Path(cell.architecture.backbone)
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
        "backbone": cell.architecture.backbone,
    }


def known_names(part: str) -> list[str]:
    """All registered names of a part's kind, plug-ins included."""
    from fedsub.datasets import partition, registry, splits
    from fedsub.methods.core import registry as methods
    from fedsub.methods.stacked.backbones import BACKBONES

    names: dict[str, Callable[[], list[str]]] = {
        "dataset": registry.names,
        "method": methods.names,
        "partition": partition.SCHEMES.names,
        "split": splits.SCHEMES.names,
        "backbone": BACKBONES.names,
    }
    return names[part]()


def _reader(part: str) -> Callable[..., Any]:
    """The partition scheme or split that reads a file."""
    from fedsub.datasets.partition import file as partition_file
    from fedsub.datasets.splits import file as split_file

    return partition_file.partition if part == "partition" else split_file.split


def _name_of(part: str, path: Path) -> str:
    """A method's registered name, else the stem of the file; the whole file name where that is taken, and
    for a partition or split that is data. Runs no code of the file."""
    if part == "method":
        name = _registered(path)
    elif part == "dataset":
        from fedsub.datasets import own

        name = own.name_of(path)
    elif path.suffix == PLUGIN:
        name = path.stem.replace("_", "-")
    else:
        return path.name
    return path.name if name in known_names(part) else name


def _registered(path: Path) -> str:
    """The name that a file gives its method, or the stem where it is no literal."""
    try:
        tree = ast.parse(_content(path.expanduser()))
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
    """A value on an axis of a grid, with the path of a user's file replaced by the name of what it holds."""
    path, bracket, options = text.partition("[") if isinstance(text, str) else ("", "", "")
    if part not in NOUNS or not is_path(path) or not Path(path).expanduser().exists():
        return text
    return f"{_name_of(part, Path(path))}{bracket}{options}"


def renamed(cell: Cell, part: str, name: str) -> Cell:
    """The cell with a part under another name, its options kept."""
    if part == "method":
        label = cell.label.replace(cell.method, name, 1) if cell.label.startswith(cell.method) else cell.label
        return replace(cell, method=name, label=label)
    if part == "backbone":
        return replace(cell, architecture=replace(cell.architecture, backbone=name))
    spec: Spec = getattr(cell, part)
    written = {key: text for key, text in spec.written.items() if spec.name != FILE or key != "path"}
    changed: dict[str, Any] = {part: Spec(format_name(name, written))}
    return replace(cell, **changed)


def _is_data(path: Path) -> bool:
    """Whether a relative path in the working folder lies in the folder of archives."""
    folder = os.environ.get("FEDSUB_DATA")
    if path.is_absolute() or not folder or not path.is_file():
        return False
    stored = Path(folder) / path
    return stored.is_file() and stored.samefile(path)


def of_file(path: Path) -> str:
    """SHA-256 of a file; of a `.py` file, of its code and of the modules beside it that it imports.

    Raises UserError if it cannot be read.
    """
    found = _with_modules(path)
    return _digest(found[each] for each in sorted(found))


def sources_of(part: str, path: Path) -> list[Path]:
    """The files that make up a user-supplied part. Raises UserError if one cannot be read."""
    from fedsub.datasets import own

    files = own.files_of(path) if part == "dataset" else [path]
    return [each for file in files for each in _with_modules(file)]


def _with_modules(path: Path) -> dict[Path, bytes]:
    """File → content, or code, of a file and of the modules beside it that it imports."""
    path = path.expanduser()
    if path.suffix != PLUGIN:
        return {path: _content(path)}
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = content = _content(each)
            try:
                tree = ast.parse(content)
            except (SyntaxError, ValueError):
                # Importing it reports the error.
                continue
            waiting += _imported(tree, each.parent, path.parent)
            found[each] = _code(tree)
    return found


def of_files(paths: Iterable[Path]) -> str:
    """SHA-256 over several files. Raises UserError if one cannot be read."""
    return _digest(of_file(path).encode() for path in paths)


def of_dataset(dataset: Dataset) -> str:
    """SHA-256 over edges, features, labels, official splits, attributes and unlabelled classes."""
    import numpy as np

    from fedsub.datasets.graph import as_scipy

    features, labels = as_scipy(dataset.features), dataset.labels.numpy()
    parts = [end.numpy() for end in dataset.graph.edges()]
    parts += [np.array(features.shape), features.indptr, features.indices, features.data, labels]
    for name, values in sorted(dataset.attributes.items()):
        parts += [np.array(name), values]
    if dataset.official is not None:
        parts.append(dataset.official)
    if dataset.classes != labels.max(initial=-1) + 1:
        # Only then, so that other graphs keep the digests of their records.
        parts.append(np.array(("classes", str(dataset.classes))))
    return of_arrays(parts)


def of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 over arrays of numbers or text."""
    return _digest(f"{each.dtype}{each.shape}".encode() + each.tobytes() for each in arrays)


def of_object(found: Any) -> str:
    """SHA-256 over a class or function: its module's source, and the plain values that it refers to.

    Raises UserError where source or values cannot be read.
    """
    return _digest([_seen(found, ()).encode()])


def _seen(value: Any, above: tuple[Any, ...]) -> str:
    """Text that identifies a value; `above` holds the functions and classes that refer to it."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[_seen(each, above) for each in value]}"
    if isinstance(value, dict):
        return _seen([*value.items()], above)
    if isinstance(value, partial):
        return _seen([value.func, value.args, value.keywords], above)
    if hasattr(value, "dtype") and hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "dtype") and hasattr(value, "tobytes") and not value.dtype.hasobject:
        return of_arrays([value])
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, (FunctionType, type)):
        raise UserError(
            f"{above[0].__name__ if above else 'what was given'} cannot be identified: it holds a "
            f"{type(value).__name__}; pass a function or class, with plain values or arrays as arguments"
        )
    if value in above:
        return value.__qualname__
    return _source(value) + _seen([*_referred(value)], (*above, value))


def _source(found: Any) -> str:
    """Name and code of a function's or class's module, or its own where that module is no file."""
    file = getattr(inspect.getmodule(found), "__file__", None)
    try:
        if file and Path(file).is_file():
            return f"{found.__qualname__} {of_file(Path(file))}"
        return f"{found.__qualname__} {_code(ast.parse(textwrap.dedent(_typed(found))))!r}"
    except (OSError, TypeError, SyntaxError) as error:
        raise UserError(
            f"the source of {found.__qualname__} cannot be read, so an edited one could not be told from it: "
            "put it in a .py file"
        ) from error


def _typed(found: Any) -> str:
    """Source of a function or class. `inspect` finds no class of a notebook; `linecache` keeps its cells."""
    if isinstance(found, type):
        for name, entry in reversed(linecache.cache.items()):
            text = "" if Path(name).is_file() else "".join(entry[2] if len(entry) > 2 else ())
            for node in ast.walk(ast.parse(text)) if f"class {found.__name__}" in text else ():
                if isinstance(node, ast.ClassDef) and node.name == found.__name__:
                    return ast.unparse(node)
    return inspect.getsource(found)


def _referred(found: Any) -> Iterator[Any]:
    """Closure, defaults and plain module variables of a function or of a class's functions; where the module
    is no file, as in a notebook, also its functions and classes."""
    for name, each in vars(found).items() if isinstance(found, type) else [("", found)]:
        if isinstance(each, (int, float, str)) and not name.startswith("__"):
            yield [name, each]
        function = inspect.unwrap(getattr(each, "__func__", each))
        if not isinstance(function, FunctionType):
            continue
        names = inspect.getclosurevars(function)
        # The cell of `__class__` leads back to the class.
        yield [value for name, value in sorted(names.nonlocals.items()) if name != "__class__"]
        yield [function.__defaults__, function.__kwdefaults__]
        in_file = Path(function.__code__.co_filename).is_file()
        for name, value in sorted(names.globals.items()):
            is_code = isinstance(value, (FunctionType, type)) and value.__module__ == found.__module__
            if isinstance(value, (int, float, str)) or (is_code and not in_file):
                yield [name, value]


def _content(path: Path) -> bytes:
    with explained("read", path, "check its permissions"):
        return path.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def _code_in(text: str) -> bytes:
    """Code of a module, or its text where it has none."""
    try:
        return _code(ast.parse(text))
    except (SyntaxError, ValueError):
        return text.encode()


def _code(tree: ast.Module) -> bytes:
    """The syntax tree without docstrings, of fields too."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and body:
            node.body = [each for each in body if not _is_text(each)]
    return ast.dump(tree).encode()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _imported(tree: ast.Module, folder: Path, top: Path) -> Iterator[Path]:
    """Files of the modules and packages that a module imports from its `folder` or from `top`, the folder of
    the file that is run."""
    for node in ast.walk(tree):
        names: list[str] = []
        places = dict.fromkeys((folder, top))
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names] + base
            if node.level:
                places = {[folder, *folder.parents][min(node.level - 1, len(folder.parents))]: None}
        for place, parts in ((place, name.split(".")) for name in names for place in places):
            for count in range(1, len(parts) + 1):
                part = place.joinpath(*parts[:count])
                yield from filter(Path.is_file, (part.with_name(f"{part.name}.py"), part / "__init__.py"))
