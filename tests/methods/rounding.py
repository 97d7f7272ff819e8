"""How closely two ways of computing one thing agree."""

from typing import Any

import torch

TOLERANCE = 5e-5


def agree(actual: Any, expected: Any) -> bool:
    """Whether `assert_agree` would pass."""
    try:
        assert_agree(actual, expected)
    except AssertionError:
        return False
    return True


def assert_agree(actual: Any, expected: Any) -> None:
    """Tensors, numbers, or lists and dicts of them, equal within rounding.

    Two ways of computing agree only so far. A kernel of MKL orders its sums by the shapes and the alignment
    of its operands, and on a processor with AVX-512 also by where memory was allocated. Bits are asked only
    of one computation run twice, and of copies.
    """
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)
