"""Lookup of methods, graphs, partition schemes and splits by name: built-in modules, entry points, .py files.

Code from outside the package is loaded only here. Its exceptions become one sentence with file and line.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

from fedsub.datasets.errors import UserError, broken, unknown
from fedsub.datasets.files import explained
from fedsub.datasets.options import OptionValue, Spec, checked_options, defaults_of
from fedsub.datasets.paths import PLUGIN

UserObjects = Mapping[tuple[str, str], Any]
"""Noun and name → what a program hands over under that name: a path, or the object itself."""
_OBJECTS: ContextVar[UserObjects] = ContextVar("objects", default=MappingProxyType({}))


_MAY_RUN: ContextVar[frozenset[Path] | None] = ContextVar("may_run", default=None)


@contextmanager
def running_only(paths: Iterable[str]) -> Iterator[None]:
    """Inside the block no code runs from files but these."""
    token = _MAY_RUN.set(frozenset(Path(path).expanduser().resolve() for path in paths))
    try:
        yield
    finally:
        _MAY_RUN.reset(token)


def may_run(path: str | Path) -> bool:
    """Whether code from a file may run here."""
    allowed = _MAY_RUN.get()
    return allowed is None or Path(path).expanduser().resolve() in allowed


@contextmanager
def user_objects(found: UserObjects) -> Iterator[None]:
    """Within the block the names in `found` take precedence over all others of their kind."""
    token = _OBJECTS.set({**_OBJECTS.get(), **found})
    try:
        yield
    finally:
        _OBJECTS.reset(token)


def user_object(noun: str, name: str) -> Any:
    """The object or path (as text) that a program passed under a name; None if there is none."""
    return _OBJECTS.get().get((noun, name))


def user_object_names(noun: str) -> list[str]:
    """Names of the objects of a kind that a program passed."""
    return [name for kind, name in _OBJECTS.get() if kind == noun]


def has_user_objects() -> bool:
    """Whether a program passed any object."""
    return bool(_OBJECTS.get())


def entry_points(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    """What installed packages offer in a group, by name."""
    return dict(_read_once(importlib.metadata.entry_points, group, tuple(sys.path)))


@cache
def _read_once(
    read: Callable[..., Any], group: str, path: tuple[str, ...]
) -> Mapping[str, importlib.metadata.EntryPoint]:
    """The entry points on a search path; reading them takes longer than planning a cell."""
    return {point.name: point for point in read(group=group)}


def load_entry_point(point: importlib.metadata.EntryPoint) -> Any:
    """The object an entry point names. Raises UserError if it cannot be imported."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise broken(f"the plug-in {point.name} cannot be imported from {point.value}", error) from error


NOT_RUN = "runs only where you name the file or say --trust (trust=True in Python)"
LOADED = "fedsub_plugin_"
"""Begins the names of modules from files."""
OURS = ("fedsub", "benchmark", "datasets", "methods", "tests")
_BESIDE: dict[str, dict[str, tuple[int, int] | None]] = {}
"""Module from a file → states of the modules it imported from its folder; one for the process, as
`sys.modules`."""


def load_file(noun: str, path: Path) -> ModuleType:
    """The module in a .py file, executed once for each content that it, and what it imports from its folder,
    has had.

    `noun` says in errors what it should have been. The module is entered into `sys.modules`: dataclasses
    and type hints look theirs up by its name.
    Raises UserError if there is no such file or it cannot be imported.
    """
    path = path.expanduser()
    if not path.is_file():
        raise UserError(f"there is no {noun} at {path}: check the path")
    if not may_run(path):
        raise UserError(f"the code in {path} {NOT_RUN}")
    with explained("read", path, "check its permissions"):
        source = path.read_bytes()
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + source).hexdigest()
    name = f"{LOADED}{digest[:16]}"
    if name in sys.modules:
        beside = _BESIDE.get(name, {})
        if all(_state(each) == state for each, state in beside.items()):
            return sys.modules[name]
        # All of them: those that are as they were may hold what the others were.
        for each in beside:
            sys.modules.pop(each, None)
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (Exception, SystemExit)):
            raise broken(f"the {noun} {path} cannot be imported", error) from error
        raise
    _BESIDE[name] = {each: _state(each) for each in [*sys.modules] if _is_beside(each, path.parent)}
    return module


def _is_beside(name: str, folder: Path) -> bool:
    """Whether an imported module is the user's, lies in a folder, and is not the running script."""
    place = getattr(sys.modules[name], "__file__", None)
    own = name.partition(".")[0] not in (*OURS, "__main__") and not name.startswith(LOADED)
    if not own or place is None or Path(place).is_relative_to(sys.prefix):
        return False
    return Path(place).resolve().is_relative_to(folder.resolve())


def _state(name: str) -> tuple[int, int] | None:
    """State of the file of an imported module, which changes with it; None without a file."""
    try:
        found = Path(str(sys.modules[name].__file__)).stat()
    except (KeyError, OSError):
        return None
    return found.st_mtime_ns, found.st_size


def modules_of(package: str, shared: tuple[str, ...] = ()) -> dict[str, str]:
    """Name → module of every file or folder in a package but the `shared` ones: 'a_b.py' is called 'a-b'."""
    path = tuple(importlib.import_module(package).__path__)
    found = _module_names(path, tuple(Path(folder).stat().st_mtime_ns for folder in path))
    return {name.replace("_", "-"): f"{package}.{name}" for name in found if name not in shared}


@lru_cache
def _module_names(path: tuple[str, ...], changed: tuple[int, ...]) -> tuple[str, ...]:
    """In alphabetical order; `changed` says when the folders of the path were, so that they are read once."""
    return tuple(sorted(each.name for each in pkgutil.iter_modules(path)))


@dataclass(frozen=True)
class Kind:
    """A kind of function that is looked up by name."""

    noun: str
    """In errors: 'partition scheme'."""
    function: str
    """Name of the function in a module of this kind."""
    group: str
    """Group of entry points; each names such a module or the function itself."""
    package: str = ""
    """Package with the built-in ones, one a module; empty if they lie elsewhere."""
    shared: tuple[str, ...] = ()
    """Modules of `package` that hold no such function."""
    given: int = 0
    """Number of positional arguments before the options."""

    def built_in(self) -> dict[str, str]:
        """Name → module of the built-in ones, which are imported when first used."""
        return modules_of(self.package, self.shared) if self.package else {}

    def names(self) -> list[str]:
        """Every name, paths aside: those of the tree and of installed plug-ins."""
        return sorted({*self.built_in(), *entry_points(self.group), *user_object_names(self.noun)})

    def find(self, name: str) -> Callable[..., Any]:
        """The function of a name or of a path to a .py file.

        Raises UserError with the nearest names, or for a plug-in that cannot be imported or lacks it.
        """
        given = user_object(self.noun, name)
        if given is not None and not isinstance(given, str):
            return cast("Callable[..., Any]", given)
        name, built_in = given or name, self.built_in()
        if name in built_in:
            found: Any = importlib.import_module(built_in[name])
        elif name.endswith(PLUGIN):
            found = load_file(self.noun, Path(name))
        elif name in (points := entry_points(self.group)):
            found = load_entry_point(points[name])
        else:
            raise unknown(self.noun, name, self.names())
        function = getattr(found, self.function, found)
        if not callable(function):
            raise UserError(f"{name} has no function {self.function}(): a {self.noun} needs one")
        return function

    def options_of(self, name: str) -> dict[str, Any]:
        """The options of a name with their defaults. Raises UserError if there is no such name."""
        return defaults_of(self.find(name), self.given)

    def check(self, spec: str | Spec, **further: OptionValue) -> dict[str, Any]:
        """The options that a spec gives and `further` ones, in the types that the function states.

        Beside the function there may be a `check_options(**options)`, which is given all options, defaults
        too, and raises UserError for those that cannot stand together.
        Raises UserError for that, an unknown name, an unknown option and a value that it cannot take.
        """
        spec = Spec.of(spec)
        function = self.find(spec.name)
        checked = checked_options(spec.name, function, {**spec.written, **further}, self.given)
        together = getattr(inspect.getmodule(function), "check_options", None)
        if together is not None:
            together(**{**self.options_of(spec.name), **checked})
        return checked

    def summary(self, name: str) -> str:
        """One line on what it does. Raises UserError if there is no such name."""
        function = self.find(name)
        text = inspect.getdoc(inspect.getmodule(function)) if name in self.built_in() else None
        first = (text or inspect.getdoc(function) or "").partition("\n")[0]
        return first.partition(": ")[2] or first

    def version(self, name: str) -> int:
        """`VERSION` of its module, raised whenever its results change; 1 by default."""
        return int(getattr(inspect.getmodule(self.find(name)), "VERSION", 1))

    def call(self, name: str, *given: Any, **options: Any) -> Any:
        """Call the function. Raises UserError for any exception of a plug-in."""
        function = self.find(name)
        try:
            return function(*given, **options)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            if name in self.built_in():
                raise
            raise broken(f"{self.function}() of the plug-in {name} fails", error) from error
