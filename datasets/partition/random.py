"""`random`: each node to a client uniformly at random (FedStruct Tables 1, 5, 7; FED-PUB Table 7)."""

from __future__ import annotations

import numpy as np

from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import balance
from fedsub.datasets.seeding import stream


def partition(dataset: Dataset, clients: int, seed: int) -> np.ndarray:
    """A client per node, (n,) int64, drawn independently.

    A client that the draw leaves empty takes half of the largest one's nodes.
    """
    generator = stream(seed, "random partition")
    drawn = generator.integers(clients, size=dataset.nodes)
    return balance.fill_empty(drawn, clients, generator.permutation(dataset.nodes))
