"""Digests of users' files, classes, functions and graphs; another digest makes another cell."""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import os
import textwrap
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import expanded, explained
from fedsub.datasets.paths import PLUGIN

if TYPE_CHECKING:
    import numpy as np

    from fedsub.datasets.federation import Federation
    from fedsub.datasets.graph import Dataset

_PLAIN = (int, float, str)


def of_file(path: Path) -> str:
    """SHA-256 of a file; for a `.py` file, of its code and of the modules beside it that it imports.

    Raises UserError if a file cannot be read.
    """
    found = with_modules(path)
    return digest(found[each] for each in sorted(found))


def with_modules(path: Path) -> dict[Path, bytes]:
    """File → content, or code of a `.py` file, for a file and the modules beside it that it imports."""
    path = expanded(path)
    if path.suffix != PLUGIN:
        return {path: content_of(path)}
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = content = content_of(each)
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
    return digest(of_file(path).encode() for path in paths)


def of_package(module: str) -> str:
    """SHA-256 over the installed package, or the module outside of packages, that holds a module."""
    spec = find_spec(module.partition(".")[0])
    files = [] if spec is None else [Path(spec.origin or os.devnull)]
    for folder in (spec and spec.submodule_search_locations) or ():
        files += sorted(Path(folder).rglob(f"*{PLUGIN}"))
    return of_files(files)


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
        # Adding it to all graphs would change the digests in their records.
        parts.append(np.array(("classes", str(dataset.classes))))
    return of_arrays(parts)


def of_federation(federation: Federation) -> str:
    """SHA-256 over the graph, the clients' nodes and the nodes' roles."""
    held = federation
    parts = (held.client, held.origin, held.train, held.validation, held.test)
    return digest([of_dataset(held.source).encode(), of_arrays(each.numpy() for each in parts).encode()])


def of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 over arrays of numbers or text."""
    return digest(f"{each.dtype}{each.shape}".encode() + each.tobytes() for each in arrays)


def of_object(found: Any) -> str:
    """SHA-256 over a class or function: its module's source and the plain values that it refers to.

    Raises UserError if source or values cannot be read.
    """
    return digest([_seen(found, ()).encode()])


def _seen(value: Any, above: tuple[Any, ...]) -> str:
    """Return text that identifies a value; `above` holds the functions and classes that refer to it."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[_seen(each, above) for each in value]}"
    if isinstance(value, dict):
        return _seen([*value.items()], above)
    if isinstance(value, partial):
        return _seen([value.func, value.args, value.keywords], above)
    if _is_array(value):
        value = value.detach().cpu().numpy() if hasattr(value, "numpy") else value
        if not value.dtype.hasobject:
            return of_arrays([value])
    if getattr(value, "__module__", "") == "builtins":
        return str(value.__qualname__)
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, (FunctionType, type)):
        raise UserError(
            f"{above[0].__name__ if above else 'the given object'} cannot be identified: it holds a "
            f"{type(value).__name__}; pass a function or class, with plain values or arrays as arguments"
        )
    if value in above:
        return value.__qualname__
    return _source(value) + _seen([*_referred(value)], (*above, value))


def _source(found: Any) -> str:
    """Name of a function or class, and its module's code; its own code if the module is no file."""
    file = getattr(inspect.getmodule(found), "__file__", None)
    try:
        if file and Path(file).is_file():
            return f"{found.__qualname__} {of_file(Path(file))}"
        return f"{found.__qualname__} {_code(ast.parse(textwrap.dedent(_typed(found))))!r}"
    except (OSError, TypeError, SyntaxError) as error:
        raise UserError(
            f"cannot read the source of {found.__qualname__}, so edits would go unnoticed: "
            "put it in a .py file"
        ) from error


def _typed(found: Any) -> str:
    """Source of a function or class. `inspect` finds no class of a notebook, `linecache` has its cells."""
    if isinstance(found, type):
        for name, entry in reversed(linecache.cache.items()):
            text = "" if Path(name).is_file() else "".join(entry[2] if len(entry) > 2 else ())
            for node in ast.walk(ast.parse(text)) if f"class {found.__name__}" in text else ():
                if isinstance(node, ast.ClassDef) and node.name == found.__name__:
                    return ast.unparse(node)
    return inspect.getsource(found)


def _referred(found: Any) -> Iterator[Any]:
    """Yield closure, defaults and plain module variables of a function or of a class's functions. If the
    module is no file, as in a notebook, also a class's bases and options from there, and the functions,
    classes, lists and arrays there that they use."""
    if isinstance(found, type) and not getattr(inspect.getmodule(found), "__file__", None):
        options = getattr(vars(found).get("info"), "options", None)
        yield [each for each in (*found.__bases__, options) if _is_from(each, found)]
    for name, each in vars(found).items() if isinstance(found, type) else [("", found)]:
        if isinstance(each, _PLAIN) and not name.startswith("__"):
            yield [name, each]
        function = inspect.unwrap(getattr(each, "__func__", each))
        if not isinstance(function, FunctionType):
            continue
        names = inspect.getclosurevars(function)
        # The closure's `__class__` is the class itself.
        yield [value for name, value in sorted(names.nonlocals.items()) if name != "__class__"]
        yield [function.__defaults__, function.__kwdefaults__]
        if Path(function.__code__.co_filename).is_file():
            yield [[name, each] for name, each in sorted(names.globals.items()) if isinstance(each, _PLAIN)]
            continue
        # Unlike `getclosurevars`, also what inner functions and comprehensions use.
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            is_data = isinstance(value, (*_PLAIN, list, tuple, dict)) or _is_array(value)
            if is_data or _is_from(value, found):
                yield [name, value]


def _is_array(value: Any) -> bool:
    """Whether it is an array or a number of numpy, or a tensor of torch; neither is imported here."""
    named = hasattr(value, "numpy") or hasattr(value, "tobytes")
    return named and hasattr(value, "__array__") and not isinstance(value, type)


def _is_from(value: Any, found: Any) -> bool:
    """Whether a value is a function or class of the module of `found`."""
    return isinstance(value, (FunctionType, type)) and value.__module__ == found.__module__


def _names(code: CodeType) -> set[str]:
    """Names that a function and its inner functions read."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def content_of(path: Path) -> bytes:
    with explained("read", path, "check its permissions"):
        return path.read_bytes()


def digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def code_in(text: str) -> bytes:
    """Return a module's code as a syntax tree without docstrings; its text if it cannot be parsed."""
    try:
        return _code(ast.parse(text))
    except (SyntaxError, ValueError):
        return text.encode()


def _code(tree: ast.Module) -> bytes:
    """Return the syntax tree without docstrings, including those of fields."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [
                each
                for each in node.body
                if not (isinstance(each, ast.Expr) and isinstance(getattr(each.value, "value", None), str))
            ]
    return ast.dump(tree).encode()


def _imported(tree: ast.Module, folder: Path, top: Path) -> Iterator[Path]:
    """Yield the files of the modules and packages that a module imports from its `folder` or from `top`, the
    folder of the file that is run."""
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
