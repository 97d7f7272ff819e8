"""Random-walk features of every client's nodes."""

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.propagation import propagate, symmetric_weight
from fedsub.methods.stacked.segments import Segments, ranks

CHUNK_ENTRIES = 2**25
"""Maximum number of entries of a dense matrix (128 MB)."""


def return_probabilities(graph: dgl.DGLGraph, sizes: Tensor, steps: int) -> Tensor:
    """Probability that a random walk from v is at v after 1…steps steps, (n, steps) float32.

    The probabilities are the diagonals of (D⁻¹A)^t, hence of N^t with the symmetric N = D^−½ A D^−½. Since
    diag(N^(a+b)) sums the entries of N^a ∘ N^b by columns, half the powers suffice. Columns are propagated in
    blocks, the same local columns of all clients at once, so that no (n, n) matrix is stored.
    """
    segments = Segments(sizes)
    nodes, local, weight = segments.rows, ranks(segments.sizes), symmetric_weight(graph)
    result = torch.zeros(nodes, steps)
    width = max(1, min(segments.longest, CHUNK_ENTRIES // nodes))
    for start in range(0, segments.longest, width):
        rows = ((local >= start) & (local < start + width)).nonzero().squeeze(1)
        cell = (segments.client[rows], local[rows] - start)
        power = torch.zeros(nodes, width)
        power[rows, cell[1]] = 1.0
        for step in range(1, steps + 1):
            if step % 2:
                half, power = power, propagate(graph, power, weight)
                product = half * power
            else:
                product = power * power
            result[rows, step - 1] = segments.sum(product)[cell]
    return result
