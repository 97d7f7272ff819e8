"""Node structure features: vectors that depend only on a node's position in the graph, or are learned."""

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation

DEVIATION = 0.05
"""Standard deviation of Hop2Vec's initial features; with 1, Cora loses nine points."""


def global_graph(federation: Federation) -> tuple[sp.csr_matrix, Tensor]:
    """Return the adjacency matrix (m, m) of all nodes that some client holds, and its row for each of the
    federation's nodes, (n,) int64 on the CPU."""
    nodes, row = np.unique(federation.origin.numpy(), return_inverse=True)
    adjacency = federation.source.adjacency()[nodes][:, nodes]
    return sp.csr_matrix(adjacency), torch.from_numpy(row.reshape(-1))


def one_hot_degrees(adjacency: sp.csr_matrix, width: int) -> Tensor:
    """Deg features (FedStruct, appendix A): one-hot degrees; degrees from width − 1 on share the last column.
    `adjacency` is a symmetric (n, n) 0/1 matrix; returns (n, width) float32."""
    degree = torch.from_numpy(np.diff(adjacency.indptr)).long().clamp(max=width - 1)
    return functional.one_hot(degree, width).float()


def random_start(nodes: int, width: int, generator: torch.Generator) -> Tensor:
    """Initial Hop2Vec features, (nodes, width) float32, which are learned with the model.

    FedStruct, section 5.1. The paper leaves the initialisation open; its code draws from N(0, 0.05²).
    """
    return torch.empty(nodes, width).normal_(0, DEVIATION, generator=generator)
