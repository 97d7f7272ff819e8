"""The graph of all clients together."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation


def global_graph(federation: Federation) -> tuple[sp.csr_matrix, Tensor]:
    """The adjacency matrix (m, m) of all nodes that some client holds, and the row there of each of the
    federation's nodes, (n,) int64 on the CPU."""
    nodes, row = np.unique(federation.origin.numpy(), return_inverse=True)
    adjacency = federation.source.adjacency()[nodes][:, nodes]
    return sp.csr_matrix(adjacency), torch.from_numpy(row.reshape(-1))
