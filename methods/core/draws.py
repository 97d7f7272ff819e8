"""Random numbers for what clients send: seeded in a run that must repeat, secret at a real client."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.seeding import stream


class Draws:
    """One row of float32 numbers for each client, from a new stream for every draw of every round.

    So a client draws what it would have drawn beside the others, also after it was absent.
    """

    def __init__(self, seed: int | None, client: int = 0) -> None:
        """`seed` None: the machine's entropy, so that no one who knows the cell can subtract the noise.
        `client` is the number of the first of the clients that draw here."""
        self.seed, self.client = seed, client
        self.begin(1)

    def begin(self, number: int) -> None:
        """Begin a round, from 1."""
        self.place = number, 0

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers in the shape, (K, P), and on the device of a tensor."""
        return self._drawn("standard_normal", like)

    def uniform(self, like: Tensor) -> Tensor:
        """The same of U[0, 1)."""
        return self._drawn("random", like)

    def _drawn(self, kind: str, like: Tensor) -> Tensor:
        number, draw = self.place
        self.place = number, draw + 1
        purpose = f"uplink {number} {draw}"
        generator = np.random.default_rng() if self.seed is None else stream(self.seed, purpose)
        drawn = getattr(generator, kind)((self.client + len(like), like.shape[1]), np.float32)
        return torch.from_numpy(drawn[self.client :]).to(like.device)
