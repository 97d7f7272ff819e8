"""Products with AdaFGL's Ā that do not read all of its m × m entries.

    Ā = D^−½ (αA + (1 − α)B + I) D^−½ = D^−½ (α(A + I) + (1 − α)(B + I)) D^−½

A + I has few entries. B + I has many, but nodes with nearly equal predictions have nearly equal rows. In an
order where each node is followed by the remaining node of the nearest prediction, a row of the product is the
previous row plus the terms of the entries in which the two differ: on the graphs tried 0.6 to 2 % of all.
"""

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.graph import csr_tensor
from fedsub.methods.compiled import compile_pass
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.propagation import propagate, with_self_loops
from fedsub.methods.stacked.segments import LinearMap, Segments


class Smoothing:
    """h → Ā h, (n, width)."""

    def __init__(
        self, graph: dgl.DGLGraph, alike: Tensor, predicted: Tensor, alpha: float, segments: Segments
    ) -> None:
        """`alike` is B, (K, m, m) bool; rows of B differ little between near rows of `predicted`, (n, C)."""
        self.segments = segments
        self.looped = with_self_loops(graph)
        source, target = (end.to(alike.device) for end in self.looped.edges())
        # One client after the other: an int32 copy of all clients' matrices at once may not fit in memory.
        counts = torch.stack([square.sum(dim=1, dtype=torch.int32) for square in alike])
        far = segments.unpad(counts.unsqueeze(2)).squeeze(1) + 1
        near = torch.bincount(target, minlength=segments.rows)
        self.scale = (alpha * near + (1 - alpha) * far).rsqrt()
        """(n,) the diagonal of D^−½."""
        self.weight = alpha * self.scale[source] * self.scale[target]
        """(edges,) weights of A + I in Ā."""
        self.order, self.changes = _chain(alike, predicted, (1 - alpha) * self.scale.double(), segments)

    def __call__(self, h: Tensor) -> Tensor:
        # B is symmetric.
        return propagate(self.looped, h, self.weight) + LinearMap.apply(h.contiguous(), self.far, self.far)

    def far(self, h: Tensor) -> Tensor:
        """The term of B + I, (n, width), summed in float64 so that rounding errors do not accumulate."""
        if not kernels.compiled(h):
            total = self.segments.pad(kernels.sparse_product(self.changes, h.double())).cumsum(dim=1)
            total = self.segments.unpad(total) * self.scale[self.order].unsqueeze(1)
            return torch.empty_like(h).index_copy_(0, self.order, total.to(h.dtype))
        out = torch.empty_like(h)
        parts = self.changes.crow_indices(), self.changes.col_indices(), self.changes.values(), self.scale
        _sum_along(*(part.numpy() for part in (self.segments.sizes, self.order, *parts, h.detach(), out)))
        return out


def _chain(alike: Tensor, predicted: Tensor, scale: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """The order of the rows, (n,), client by client, and the (n, n) matrix of the differences in B + I
    between each row and the previous one, its columns multiplied by `scale`, (n,)."""
    parts, sizes = [], segments.sizes.tolist()
    starts = (segments.sizes.cumsum(0) - segments.sizes).tolist()
    for square, own, start in zip(alike, predicted.split(sizes), starts, strict=True):
        places = torch.from_numpy(_nearest_next(torch.cdist(own, own).cpu().numpy())).to(alike.device)
        both = square[: len(own), : len(own)].to(torch.int8).fill_diagonal_(1)[places]
        both[1:] -= both[:-1].clone()
        row, column = both.nonzero(as_tuple=True)
        parts.append((start + places, start + row, start + column, both[row, column]))
    order, row, column, value = (torch.cat(each) for each in zip(*parts, strict=True))
    pointer = torch.searchsorted(row, torch.arange(len(order) + 1, device=row.device), out_int32=True)
    return order, csr_tensor(pointer, column.int(), value * scale[column], (len(order), len(order)))


def _nearest_next(distance: np.ndarray) -> np.ndarray:
    """Order that starts at row 0 and goes on to the nearest remaining row, (m,); `distance` is (m, m)."""
    order = np.zeros(len(distance), dtype=np.int64)
    taken = np.zeros(len(distance), distance.dtype)
    for place in range(1, len(order)):
        taken[order[place - 1]] = np.inf
        order[place] = (distance[order[place - 1]] + taken).argmin()
    return order


@compile_pass
def _sum_along(
    sizes: np.ndarray,
    order: np.ndarray,
    pointer: np.ndarray,
    column: np.ndarray,
    value: np.ndarray,
    scale: np.ndarray,
    h: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[order[i]] = scale[order[i]] · Σ_j (row j of the CSR matrix) · h over the client's j ≤ i; h, out
    (n, width)."""
    total, start = np.empty(h.shape[1]), 0
    for size in sizes:
        total[:] = 0
        for place in range(start, start + size):
            for entry in range(pointer[place], pointer[place + 1]):
                factor, source = value[entry], h[column[entry]]
                for position in range(len(total)):
                    total[position] += factor * source[position]
            row = order[place]
            target = out[row]
            for position in range(len(total)):
                target[position] = scale[row] * total[position]
        start += size
