"""Deg: the one-hot degree of every node (FedStruct, appendix A)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def one_hot_degrees(adjacency: sp.csr_matrix, width: int) -> np.ndarray:
    """A single 1 at the node's degree; degrees of width − 1 and more share the last column.

    `adjacency` is a symmetric (n, n) 0/1 matrix; returns (n, width) float32.
    """
    degree = np.diff(adjacency.indptr)
    features = np.zeros((adjacency.shape[0], width), dtype=np.float32)
    features[np.arange(len(degree)), np.minimum(degree, width - 1)] = 1
    return features
