"""Every method by name: the files of `fedsub.methods`, entry points of that name, and paths to files."""

import importlib
import types
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from fedsub.datasets import plugins
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.options import checked_options
from fedsub.datasets.paths import PLUGIN
from fedsub.methods import SHARED
from fedsub.methods.core.base import FederatedMethod, MethodInfo, Options
from fedsub.methods.core.setting import Setting

GROUP = "fedsub.methods"
NOUN = "method"


@cache
def _built_in() -> Mapping[str, type[FederatedMethod]]:
    """Name → class, in alphabetical order of the files."""
    found: dict[str, type[FederatedMethod]] = {}
    for module in plugins.modules_of("fedsub.methods", SHARED).values():
        for kind in _registered(importlib.import_module(module)):
            if found.setdefault(kind.info.name, kind) is not kind:
                raise UserError(f"two methods are called {kind.info.name!r}: rename one in its @register")
    return types.MappingProxyType(found)


def _plugged_in() -> Mapping[str, EntryPoint]:
    """Name → entry point, loaded when its method is asked for. Warns if the name of one is taken."""
    found = plugins.entry_points(GROUP)
    for name in found.keys() & _built_in().keys():
        value = found.pop(name).value
        warnings.warn(f"{value} is left out, since a method {name} exists: rename it", stacklevel=3)
    return found


def _loaded(point: EntryPoint) -> type[FederatedMethod]:
    """Load an entry point. Raises UserError if it cannot be imported, or is no method of that name."""
    method = plugins.load_entry_point(point)
    if not isinstance(method, type) or not issubclass(method, FederatedMethod) or "info" not in vars(method):
        raise UserError(f"the plug-in {point.name} is not a method: {point.value} must be an @register class")
    if method.info.name != point.name:
        raise UserError(
            f"the plug-in {point.name} registers the method {method.info.name}: give both the same name"
        )
    return method


def _registered(module: types.ModuleType) -> list[type[FederatedMethod]]:
    """The methods that a module registers itself."""
    kinds = [each for each in vars(module).values() if isinstance(each, type)]
    own = [each for each in kinds if each.__module__ == module.__name__ and "info" in vars(each)]
    return [each for each in dict.fromkeys(own) if issubclass(each, FederatedMethod)]


def _from_file(path: Path) -> type[FederatedMethod]:
    """The one method that a Python file registers. Raises UserError if it cannot be imported."""
    found = _registered(plugins.load_file(NOUN, path))
    if len(found) != 1:
        raise UserError(
            f"{path} registers {len(found)} methods: it must register exactly one, a FederatedMethod below"
            " @register(name, title=…, paper=…)"
        )
    return found[0]


def names() -> list[str]:
    return [*_built_in(), *_plugged_in(), *plugins.user_object_names(NOUN)]


def find(name: str) -> type[FederatedMethod]:
    """Return the method class of a name or of a path to a .py file. Raises UserError with the nearest names,
    and for a plug-in that cannot be imported or is no method."""
    given = plugins.user_object(NOUN, name)
    if isinstance(given, type) and issubclass(given, FederatedMethod):
        return given
    name = given or name
    if name.endswith(PLUGIN):
        return _from_file(Path(name))
    if name in _built_in():
        return _built_in()[name]
    if name in (points := _plugged_in()):
        return _loaded(points[name])
    raise unknown("method", name, names())


def describe(name: str) -> MethodInfo:
    return find(name).info


def make_options(name: str, values: Mapping[str, Any]) -> Options:
    """Make the method's options from plain values, with defaults filled in. Raises UserError for an unknown
    option, a value of the wrong type, one outside its choices and a number that is not finite."""
    kind = describe(name).options
    return kind(**checked_options(name, kind, values))


def create(name: str, options: Mapping[str, Any], setting: Setting) -> FederatedMethod:
    """Create a method for `methods.core.training.train`. Raises UserError for bad names and options."""
    method = find(name)
    info, task = method.info, setting.task.name
    if task not in info.tasks:
        raise UserError(f"{name} does not do {task}: it does {', '.join(info.tasks)}")
    if info.merged is (setting.rows is None):
        raise ValueError(f"{name} needs a setting made by make_setting with merged={info.merged}")
    return method(make_options(name, options), setting)
