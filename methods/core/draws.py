"""The global random generators of torch, numpy and Python, from which a plug-in may draw."""

import random
from typing import Any

import numpy as np
import torch


def seed_draws(seed: int) -> None:
    """Seed all three, so that code that draws from them is repeatable."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


class GlobalDraws:
    """The state of all three, in checkpoints (`methods.core.state`)."""

    state = ("values",)

    @property
    def values(self) -> list[Any]:
        """The states, as plain data."""
        kind, keys, *place = np.random.get_state()  # noqa: NPY002
        numpy = (kind, np.asarray(keys).tolist(), *place)
        return [torch.get_rng_state().tolist(), numpy, random.getstate()]

    @values.setter
    def values(self, values: list[Any]) -> None:
        in_torch, in_numpy, (version, numbers, last) = values
        torch.set_rng_state(torch.tensor(in_torch, dtype=torch.uint8))
        np.random.set_state(in_numpy)  # noqa: NPY002
        random.setstate((version, tuple(numbers), last))
