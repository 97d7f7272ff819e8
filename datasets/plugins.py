"""Lookup of methods, graphs, partition schemes and splits by name: built-in modules, entry points, .py files.

Code from outside the package is loaded only here. Its exceptions become UserErrors with file and line.
"""

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
from fedsub.datasets.files import expanded, explained
from fedsub.datasets.options import OptionValue, Spec, checked_options, defaults_of
from fedsub.datasets.paths import PLUGIN

UserObjects = Mapping[tuple[str, str], Any]
"""Noun and name → what a program passes under that name: a path, or the object itself."""
_OBJECTS: ContextVar[UserObjects] = ContextVar("objects", default=MappingProxyType({}))


_MAY_RUN: ContextVar[frozenset[Path] | None] = ContextVar("may_run", default=None)


@contextmanager
def running_only(paths: Iterable[str]) -> Iterator[None]:
    """Allow code to run only from these files within the block."""
    token = _MAY_RUN.set(frozenset(expanded(path).resolve() for path in paths))
    try:
        yield
    finally:
        _MAY_RUN.reset(token)


def may_run(path: str | Path) -> bool:
    """Whether code from a file may run; see `running_only`."""
    allowed = _MAY_RUN.get()
    return allowed is None or expanded(path).resolve() in allowed


@contextmanager
def user_objects(found: UserObjects) -> Iterator[None]:
    """Give the names in `found` precedence over all others of their kind within the block."""
    token = _OBJECTS.set({**_OBJECTS.get(), **found})
    try:
        yield
    finally:
        _OBJECTS.reset(token)


def user_object(noun: str, name: str) -> Any:
    """Return the object or path (as text) that a program passed under a name, or None."""
    return _OBJECTS.get().get((noun, name))


def user_object_names(noun: str) -> list[str]:
    """Return the names of the objects of a kind that a program passed."""
    return [name for kind, name in _OBJECTS.get() if kind == noun]


def has_user_objects() -> bool:
    """Whether a program passed any object."""
    return bool(_OBJECTS.get())


def entry_points(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    """Name → entry point that an installed package provides in a group."""
    return dict(_read_once(importlib.metadata.entry_points, group, tuple(sys.path)))


@cache
def _read_once(
    read: Callable[..., Any], group: str, path: tuple[str, ...]
) -> Mapping[str, importlib.metadata.EntryPoint]:
    """Return the entry points on a search path; cached, as reading them takes longer than planning a cell."""
    return {point.name: point for point in read(group=group)}


def load_entry_point(point: importlib.metadata.EntryPoint) -> Any:
    """Return the object that an entry point names. Raises UserError if it cannot be imported."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise broken(f"the plug-in {point.name} cannot be imported from {point.value}", error) from error


NOT_RUN = "runs only if you name the file or give --trust (trust=True in Python)"
LOADED = "fedsub_plugin_"
"""Prefix of the names of modules from files."""
OURS = ("fedsub", "benchmark", "datasets", "methods", "tests")
_BESIDE: dict[str, dict[str, tuple[int, int] | None]] = {}
"""Module from a file → states of the modules that it imported from its folder; global, as `sys.modules`."""


def load_file(noun: str, path: Path) -> ModuleType:
    """Import a .py file; it runs again only if it, or a module that it imports from its folder, changed.

    `noun` names its kind in errors. The module is entered into `sys.modules`, where dataclasses and type
    hints look up their module by name. Raises UserError if the file does not exist, may not run or cannot be
    imported.
    """
    path = expanded(path)
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
        # Unchanged modules are removed too: they may hold objects of the changed ones.
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
    """Whether an imported module is a user's module in a folder and not the running script."""
    place = getattr(sys.modules[name], "__file__", None)
    own = name.partition(".")[0] not in (*OURS, "__main__") and not name.startswith(LOADED)
    if not own or place is None or Path(place).is_relative_to(sys.prefix):
        return False
    return Path(place).resolve().is_relative_to(folder.resolve())


def _state(name: str) -> tuple[int, int] | None:
    """Return modification time and size of an imported module's file; None without a file."""
    try:
        found = Path(str(sys.modules[name].__file__)).stat()
    except (KeyError, OSError):
        return None
    return found.st_mtime_ns, found.st_size


def modules_of(package: str, shared: tuple[str, ...] = ()) -> dict[str, str]:
    """Name → module of every module in a package except the `shared` ones; 'a_b.py' is called 'a-b'."""
    path = tuple(importlib.import_module(package).__path__)
    found = _module_names(path, tuple(Path(folder).stat().st_mtime_ns for folder in path))
    return {name.replace("_", "-"): f"{package}.{name}" for name in found if name not in shared}


@lru_cache
def _module_names(path: tuple[str, ...], changed: tuple[int, ...]) -> tuple[str, ...]:
    """Return the module names in alphabetical order; cached until a folder's time `changed` differs."""
    return tuple(sorted(each.name for each in pkgutil.iter_modules(path)))


@dataclass(frozen=True)
class Kind:
    """A kind of function that is looked up by name."""

    noun: str
    """Name of the kind in errors, such as 'partition scheme'."""
    function: str
    """Name of the function in a module of this kind."""
    group: str
    """Group of entry points; each names such a module or the function itself."""
    package: str = ""
    """Package with the built-in functions, one per module; empty if there is no such package."""
    shared: tuple[str, ...] = ()
    """Modules of `package` that hold no such function."""
    given: int = 0
    """Number of positional arguments before the options."""

    def built_in(self) -> dict[str, str]:
        """Name → module of the built-in functions, which are imported at their first use."""
        return modules_of(self.package, self.shared) if self.package else {}

    def names(self) -> list[str]:
        """Return all names except paths: built-in, of installed plug-ins, and of passed objects."""
        return sorted({*self.built_in(), *entry_points(self.group), *user_object_names(self.noun)})

    def find(self, name: str) -> Callable[..., Any]:
        """Return the function of a name or of a path to a .py file.

        Raises UserError with the nearest names, or for a plug-in that cannot be imported or lacks the
        function.
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
        """Return a name's options with their defaults. Raises UserError for an unknown name."""
        return defaults_of(self.find(name), self.given)

    def check(self, spec: str | Spec, **further: OptionValue) -> dict[str, Any]:
        """Return the options of a spec and `further` ones in the types that the function states.

        The function's module may have a `check_options(**options)`, which gets all options, defaults
        included, and raises UserError if they contradict each other. Raises UserError for that, an unknown
        name, an unknown option and an invalid value.
        """
        spec = Spec.of(spec)
        function = self.find(spec.name)
        checked = checked_options(spec.name, function, {**spec.written, **further}, self.given)
        together = getattr(inspect.getmodule(function), "check_options", None)
        if together is not None:
            together(**{**self.options_of(spec.name), **checked})
        return checked

    def summary(self, name: str) -> str:
        """Return one line on what a function does. Raises UserError for an unknown name."""
        function = self.find(name)
        text = inspect.getdoc(inspect.getmodule(function)) if name in self.built_in() else None
        first = (text or inspect.getdoc(function) or "").partition("\n")[0]
        return first.partition(": ")[2] or first

    def version(self, name: str) -> int:
        """Return `VERSION` of a function's module, which is raised whenever its results change; else 1."""
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
