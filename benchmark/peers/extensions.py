"""Stand-ins for compiled code that cannot be had here.

torch_scatter and torch_sparse have no wheels for this torch. Other people's code imports them by name: one
function of the first, for the nodes' degrees, and of the second only a class that it never meets here.
openfgl-lib's AdaFGL loads a library from a folder of its author's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix


def stand_in_for_missing_extensions() -> None:
    """Replace torch_scatter and torch_sparse where they are not installed."""
    nothing = dict.fromkeys(("fill_diag", "matmul", "mul", "sum"))
    contents: dict[str, dict[str, Any]] = {
        "torch_scatter": {"scatter_add": _scatter_add},
        "torch_sparse": {"SparseTensor": type("SparseTensor", (), {}), **nothing},
    }
    for name, content in contents.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(content)


def stand_in_for_product(module: str) -> None:
    """Replace `csr_sparse_dense_matmul` of the module by scipy's product, single precision as that one's."""

    def product(sparse: csr_matrix, dense: np.ndarray) -> np.ndarray:
        found: np.ndarray = sparse.astype(np.float32) @ dense
        return found

    importlib.import_module(module).__dict__["csr_sparse_dense_matmul"] = product


def _scatter_add(source: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int) -> torch.Tensor:
    return source.new_zeros(dim_size).scatter_add_(dim, index, source)
