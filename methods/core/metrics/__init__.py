"""Every metric by name: one function in one file of this package or of a user's, named alike."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from fedsub.datasets import plugins
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.paths import PLUGIN
from fedsub.methods.core.metrics.base import Items, Metric, Score, metric

__all__ = ["Items", "Metric", "Score", "find", "metric", "names"]


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")


def find(name: str) -> Metric:
    """The metric of this name, or in the .py file at this path, where it is called as the file is.

    Raises UserError with the nearest names, and for a file that holds no such metric.
    """
    if name.endswith(PLUGIN):
        path = Path(name)
        given = getattr(plugins.load_file("metric", path), path.stem, None)
        if not isinstance(given, Metric):
            raise UserError(f"{name} holds no metric {path.stem}: put @metric(task=…) above that function")
        return given
    if name not in names():
        raise unknown("metric", name, names())
    found: Metric = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return found
