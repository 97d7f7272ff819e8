"""Bytes that tensors take on a network."""

from __future__ import annotations

import torch
from torch import Tensor

FLOAT = INDEX = 4
"""Bytes of a float32 value, and of a place among others, a 32-bit number."""


def size_of(*tensors: Tensor) -> int:
    """Bytes of the tensors as they stand; a stacked one counts all its clients, a CSR one its values with
    their columns."""
    return sum(
        (FLOAT + INDEX) * len(each.values())
        if each.layout is torch.sparse_csr
        else each.numel() * each.element_size()
        for each in tensors
    )


def unformed(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Stands for a tensor that clients would send and that the simulation need not compute: a shape alone."""
    return torch.empty(shape, dtype=dtype, device="meta")


def slice_size(value: Tensor) -> int:
    """Bytes of one client's part of a tensor, (K, …) or (1, …)."""
    return value.numel() // max(len(value), 1) * value.element_size()
