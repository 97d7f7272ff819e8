"""The product that carries message passing and bags of words."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsub.methods.stacked import kernels

NARROW = 64
"""Below this width MKL's CSR product is taken, from it on numba's, the faster one: 1.7 times at 64, 2.1
at 128 (`tests/performance/test_kernels.py`)."""


def sparse_product(matrix: Tensor, h: Tensor) -> Tensor:
    """A CSR matrix (rows, n) times a dense (n, width), on the CPU and on CUDA."""
    out = h.new_empty(matrix.shape[0], h.shape[1])
    if h.shape[1] < NARROW or not (kernels.compiled(h) and matrix.dtype is torch.float32):
        # `addmm_` with beta 0 into fresh memory: `torch.mm` of a CSR matrix fills its result with zeros
        # and copies it twice besides, which costs more than the product (results/performance.md).
        return out.addmm_(matrix, h, beta=0)
    kernels.sparse_product(
        matrix.crow_indices().numpy(),
        matrix.col_indices().numpy(),
        matrix.values().detach().numpy(),
        h.detach().contiguous().numpy(),
        out.numpy(),
    )
    return out
