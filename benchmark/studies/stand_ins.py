"""Replacements of compiled extensions without wheels for this torch, for other people's code."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import torch


def stand_in_for_missing_extensions() -> None:
    """Replace torch_scatter and torch_sparse where they are not installed: one function, which adds up
    degrees, and a class that is imported and never used."""
    nothing = dict.fromkeys(("fill_diag", "matmul", "mul", "sum"))
    contents: dict[str, dict[str, Any]] = {
        "torch_scatter": {"scatter_add": _scatter_add},
        "torch_sparse": {"SparseTensor": type("SparseTensor", (), {}), **nothing},
    }
    for name, content in contents.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(content)


def _scatter_add(source: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int) -> torch.Tensor:
    return source.new_zeros(dim_size).scatter_add_(dim, index, source)
