"""Node structure features: vectors that a node's place in the graph alone determines, or that are learned."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation

DEVIATION = 0.05
"""Standard deviation of Hop2Vec's start; with 1 Cora loses nine points."""


def global_graph(federation: Federation) -> tuple[sp.csr_matrix, Tensor]:
    """The adjacency matrix (m, m) of all nodes that some client holds, and the row there of each of the
    federation's nodes, (n,) int64 on the CPU."""
    nodes, row = np.unique(federation.origin.numpy(), return_inverse=True)
    adjacency = federation.source.adjacency()[nodes][:, nodes]
    return sp.csr_matrix(adjacency), torch.from_numpy(row.reshape(-1))


def one_hot_degrees(adjacency: sp.csr_matrix, width: int) -> Tensor:
    """Deg (FedStruct, appendix A): a single 1 at the node's degree; degrees of width − 1 and more share the
    last column. `adjacency` is a symmetric (n, n) 0/1 matrix; returns (n, width) float32."""
    degree = torch.from_numpy(np.diff(adjacency.indptr)).long().clamp(max=width - 1)
    return functional.one_hot(degree, width).float()


def random_start(nodes: int, width: int, generator: torch.Generator) -> Tensor:
    """Hop2Vec's start, (nodes, width) float32: features that are learned with the model.

    FedStruct, section 5.1. The paper leaves the start open; its code draws from N(0, 0.05²).
    """
    return torch.empty(nodes, width).normal_(0, DEVIATION, generator=generator)
