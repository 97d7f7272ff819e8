"""The variational bound's sum over all pairs of a client's nodes, without storing a matrix of all pairs.

With p_ij = z_i · z_j, and a_ij 1 if there is an edge, the cross-entropy of σ(p_ij) with a_ij is

    ln(1 + e^p_ij) − a_ij p_ij

The second term only involves edges. The sum of the first has the gradient 2 Σ_j σ(p_ij) z_j for z_i. Sum and
gradient are computed from one block of rows of p at a time.
"""

from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.segments import Segments, large_product

ROWS = 256
"""Number of rows of p that are computed at a time."""


class PairwiseSoftplus(torch.autograd.Function):
    """Σ_ij ln(1 + e^(z_i · z_j)) over each client's nodes, i = j included; (n, width) → (K,)."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, segments: Segments) -> Tensor:
        # Computes the gradient together with the sum. The loop over clients costs little beside the products.
        total, slope, sizes = z.new_zeros(segments.clients), torch.empty_like(z), segments.sizes.tolist()
        for client, (own, to_own) in enumerate(zip(z.split(sizes), slope.split(sizes), strict=True)):
            for some, to_some in zip(own.split(ROWS), to_own.split(ROWS), strict=True):
                pairs = large_product(some, own.t())
                total[client] += functional.softplus(pairs).sum()
                to_some.copy_(large_product(pairs.sigmoid_(), own))
        ctx.segments = segments
        ctx.save_for_backward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return 2 * slope * gradient.index_select(0, ctx.segments.client).unsqueeze(1), None
