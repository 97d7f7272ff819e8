"""What tells two states of something of one's own apart: its content, of code what the interpreter sees.

A comment, a docstring or a blank line changes no figure, and so no fingerprint.
"""

from __future__ import annotations

import ast
import hashlib
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from datasets.files import explained
from datasets.graph import Dataset, as_scipy
from datasets.paths import PLUGIN

_LEFT_BY_PYTHON = ("__doc__", "__module__", "__dict__", "__weakref__", "__firstlineno__", "__slotnames__")
"""Attributes of a class that say nothing of what it does; some come only when it is used, as by copyreg."""


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
            waiting += _imported(tree, each.parent)
            found[each] = _code(tree)
    return _digest(found[each] for each in sorted(found))


def of_files(paths: Iterable[Path]) -> str:
    """SHA-256 over several files. Raises UserError if one cannot be read."""
    return _digest(of_file(path).encode() for path in paths)


def of_dataset(dataset: Dataset) -> str:
    """SHA-256 over edges, features and labels, and official splits and attributes where there are any."""
    features = as_scipy(dataset.features)
    ends = [end.numpy() for end in dataset.graph.edges()]
    parts = (np.array(features.shape), features.indptr, features.indices, features.data)
    named = ((np.array(name), values) for name, values in sorted(dataset.attributes.items()))
    further = [each for pair in named for each in pair]
    if dataset.official is not None:
        further.append(dataset.official)
    return of_arrays((*ends, *parts, dataset.labels.numpy(), *further))


def of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 over arrays of numbers or text."""
    return _digest(f"{each.dtype}{each.shape}".encode() + each.tobytes() for each in arrays)


def of_object(found: Any) -> str:
    """SHA-256 over the code of a class or a function, with what it uses of its own module: functions, classes
    and plain values. What it takes from other modules counts by its name."""
    return _digest(repr(each).encode() for each in _seen(found, found.__module__, set()))


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


def _imported(tree: ast.Module, folder: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names] + base
        for name in names:
            place = folder.joinpath(*name.split("."))
            yield from filter(Path.is_file, (place.with_name(f"{place.name}.py"), place / "__init__.py"))


def _seen(found: Any, module: str, before: set[int]) -> Iterator[Any]:
    """Everything plain that decides what a function or a class of `module` does, in a fixed order."""
    if isinstance(found, (types.FunctionType, type)):
        if id(found) in before:
            return
        before.add(id(found))
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    if isinstance(found, property):
        for part in (found.fget, found.fset):
            yield from _seen(part, module, before)
    elif isinstance(found, types.FunctionType):
        if found.__module__ != module:
            yield (found.__module__, found.__qualname__)
            return
        yield from _plain((found.__defaults__, found.__kwdefaults__))
        yield from _in_code(found.__code__, found.__doc__)
        used = {name: found.__globals__[name] for name in _names(found.__code__) if name in found.__globals__}
        cells = zip(found.__code__.co_freevars, found.__closure__ or (), strict=True)
        # An empty cell is that of a name to be bound later, as `__class__` while its class is made.
        used |= {name: cell.cell_contents for name, cell in cells if name != "__class__"}
        for name, value in sorted(used.items()):
            yield name
            yield from _seen(value, module, before)
    elif isinstance(found, type):
        own = found.__module__ == module
        yield found.__qualname__ if own else (found.__module__, found.__qualname__)
        if own:
            for base in found.__bases__:
                yield from _seen(base, module, before)
            for name, value in sorted(vars(found).items()):
                if name not in _LEFT_BY_PYTHON:
                    yield name
                    yield from _seen(value, module, before)
    elif hasattr(found, "__dataclass_fields__"):
        for name in found.__dataclass_fields__:
            yield name
            yield from _seen(getattr(found, name), module, before)
    else:
        yield from _plain(found)


def _names(code: types.CodeType) -> set[str]:
    """The names that a function and those inside it look up beyond themselves."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _in_code(code: types.CodeType, doc: str | None) -> Iterator[Any]:
    yield (code.co_code, code.co_names, code.co_varnames)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _in_code(each, each.co_consts[0] if each.co_consts else None)
        elif each != doc:
            yield from _plain(each)


def _plain(value: Any) -> Iterator[Any]:
    """A value whose text says all of it; of any other its type."""
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), range)):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _plain(each)
    elif isinstance(value, (set, frozenset)):
        yield sorted(map(repr, value))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _plain((key, each))
    else:
        yield type(value).__qualname__
