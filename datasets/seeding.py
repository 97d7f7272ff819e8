"""Independent streams of random numbers from one seed."""

import numpy as np
import torch

from fedsub.datasets.errors import UserError


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return a random generator of its own for every purpose.

    Two generators of one seed would draw the same numbers: clients drawn like labels would hold one class
    each, and roles drawn like clients would give each client one role. Raises UserError for a negative seed.
    """
    if seed < 0:
        raise UserError(f"seed {seed} is negative: give a seed of at least 0")
    return np.random.default_rng([seed, *purpose.encode()])


def torch_stream(seed: int, purpose: str) -> torch.Generator:
    """Return a torch generator of its own for every purpose. Raises UserError for a negative seed."""
    return torch.Generator().manual_seed(int(stream(seed, purpose).integers(2**63)))
