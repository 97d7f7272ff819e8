"""Every metric by name: one function in one file of this package, named alike."""

from __future__ import annotations

import importlib
import pkgutil

from fedsub.datasets.errors import unknown
from fedsub.methods.core.metrics.base import Items, Metric, Score, metric

__all__ = ["Items", "Metric", "Score", "find", "metric", "names"]


def names() -> list[str]:
    """Names of all metrics."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")


def find(name: str) -> Metric:
    """The metric of this name. Raises UserError with the nearest names."""
    if name not in names():
        raise unknown("metric", name, names())
    found: Metric = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return found
