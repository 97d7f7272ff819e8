"""Runs every method on every graph under one protocol, keeps the records and writes the leaderboards."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsub.benchmark.analysis.frame import Results
    from fedsub.benchmark.api import results, run

__all__ = ["Results", "results", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("fedsub"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
