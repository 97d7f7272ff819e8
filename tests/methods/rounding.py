"""Equality of two ways of computing the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

TOLERANCE = 5e-5
"""MKL chooses kernels by shape, alignment and processor, and each sums in another order. A few steps of Adam
enlarge the rounding of a gradient near its epsilon."""


def assert_agree(
    found: Tensor | Sequence[float] | Mapping[str, Tensor],
    expected: Tensor | Sequence[float] | Mapping[str, Tensor],
) -> None:
    """Assert that `found` equals `expected` within rounding.

    For two ways of computing, such as a method without its term and FedAvg. The same computation run twice
    must agree to the bit instead.
    """
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping)
        for name, value in expected.items():
            assert_agree(found[name], value)
        return
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(expected), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    )
