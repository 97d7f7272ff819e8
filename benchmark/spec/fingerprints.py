"""What tells two states of something of one's own apart: its content, of code what the interpreter sees.

A comment, a docstring or a blank line changes no figure, and so no fingerprint.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedsub.benchmark.spec.inside import seen_in
from fedsub.datasets.files import explained
from fedsub.datasets.graph import Dataset, as_scipy
from fedsub.datasets.paths import PLUGIN


def of_file(path: Path) -> str:
    """SHA-256 of a file's content; of a `.py` file that of its code and of the modules beside it that it
    imports. Raises UserError if it cannot be read."""
    path = path.expanduser()
    if path.suffix != PLUGIN:
        return _digest([_content(path)])
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each not in found:
            content = _content(each)
            try:
                tree = ast.parse(content)
            except (SyntaxError, ValueError):
                # Whoever runs it says what is wrong.
                found[each] = content
                continue
            waiting += _imported(tree, each.parent, path.parent)
            found[each] = _code(tree)
    return _digest(found[each] for each in sorted(found))


def of_files(paths: Iterable[Path]) -> str:
    """SHA-256 over several files. Raises UserError if one cannot be read."""
    return _digest(of_file(path).encode() for path in paths)


def of_dataset(dataset: Dataset) -> str:
    """SHA-256 over edges, features and labels, official splits and attributes where there are any, and the
    number of classes where the labels do not say it."""
    features = as_scipy(dataset.features)
    ends = [end.numpy() for end in dataset.graph.edges()]
    parts = (np.array(features.shape), features.indptr, features.indices, features.data)
    named = ((np.array(name), values) for name, values in sorted(dataset.attributes.items()))
    further = [each for pair in named for each in pair]
    if dataset.official is not None:
        further.append(dataset.official)
    labels = dataset.labels.numpy()
    if dataset.classes != labels.max(initial=-1) + 1:
        # Only then, so that the other graphs keep the digests that their records have.
        further.append(np.array(("classes", str(dataset.classes))))
    return of_arrays((*ends, *parts, labels, *further))


def of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 over arrays of numbers or text."""
    return _digest(f"{each.dtype}{each.shape}".encode() + each.tobytes() for each in arrays)


def of_object(found: Any) -> str:
    """SHA-256 over a class, a function or another callable, as `benchmark.inside` reads it. Raises UserError
    where it holds something that cannot be read."""
    return _digest(repr(each).encode() for each in seen_in(found))


def _content(path: Path) -> bytes:
    with explained("read", path, "check its permissions"):
        return path.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def _code(tree: ast.Module) -> bytes:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and body:
            node.body = [each for each in body if not _is_text(each)]
    return ast.dump(tree).encode()


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a text alone: a docstring, of a field too."""
    return (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and type(node.value.value) is str
    )


def _imported(tree: ast.Module, folder: Path, top: Path) -> Iterator[Path]:
    """The files of all modules that one in `folder` imports from there or from `top`, the folder of the file
    that is run, with the packages that they lie in."""
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
        for place in (place.joinpath(*part) for name in names for part in _parts(name) for place in places):
            yield from filter(Path.is_file, (place.with_name(f"{place.name}.py"), place / "__init__.py"))


def _parts(name: str) -> Iterator[list[str]]:
    """`a.b.c` → a, a.b and a.b.c, each as a list."""
    parts = name.split(".")
    yield from (parts[:count] for count in range(1, len(parts) + 1))
