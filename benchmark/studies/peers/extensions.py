"""Stand-ins for compiled code that cannot be had here.

torch_scatter and torch_sparse have no wheels for this torch. Other people's code imports them by name: one
function of the first, for the nodes' degrees, and of the second only a class that it never meets here.
node2vec of torch_geometric walks by an operator of pyg-lib, which has no wheels for it either. openfgl-lib's
AdaFGL loads a library from a folder of its author's.
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


def stand_in_for_walks() -> None:
    """Let torch_geometric's node2vec walk by `random_walks` where pyg-lib is not installed."""
    if importlib.util.find_spec("pyg_lib") is not None:
        return
    library = torch.library.Library("pyg", "FRAGMENT")
    library.define(
        "random_walk(Tensor rowptr, Tensor col, Tensor seed, int length, float p, float q) -> Tensor"
    )
    library.impl("random_walk", random_walks, "CPU")
    module = importlib.import_module("torch_geometric.nn.models.node2vec")
    # The operator goes with the library object.
    module.__dict__.update(WITH_PYG_LIB=True, walks=library)


def random_walks(
    pointer: torch.Tensor, column: torch.Tensor, starts: torch.Tensor, length: int, p: float, q: float
) -> torch.Tensor:
    """Second-order walks of `length` steps over a graph in CSR, columns ascending in a row; (w, length + 1).

    A neighbour is drawn evenly and taken with its weight over the largest: 1/p for the node before, 1 for its
    neighbours, 1/q for others (Grover and Leskovec, "node2vec", 2016). A node without neighbours stays.
    """
    nodes = len(pointer) - 1
    degree = pointer.diff()
    edges = torch.repeat_interleave(torch.arange(nodes), degree) * nodes + column
    walks = starts.repeat(length + 1, 1)
    largest = max(1.0, 1 / p, 1 / q)
    for step in range(length):
        here, before = walks[step], walks[max(step - 1, 0)]
        walks[step + 1] = here
        waiting = (degree[here] > 0).nonzero().squeeze(1)
        while len(waiting):
            place = (torch.rand(len(waiting), dtype=torch.float64) * degree[here[waiting]]).long()
            drawn, last = column[pointer[here[waiting]] + place], before[waiting]
            edge = last * nodes + drawn
            joined = edges[torch.searchsorted(edges, edge).clamp(max=len(edges) - 1)] == edge
            weight = torch.where(drawn == last, 1 / p, torch.where(joined, 1.0, 1 / q))
            taken = torch.rand(len(waiting)) * largest <= weight if step else torch.ones_like(joined)
            walks[step + 1, waiting[taken]] = drawn[taken]
            waiting = waiting[~taken]
    return walks.T


def _scatter_add(source: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int) -> torch.Tensor:
    return source.new_zeros(dim_size).scatter_add_(dim, index, source)
