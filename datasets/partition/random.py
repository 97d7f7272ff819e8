"""`random`: each node to a client uniformly at random (FedStruct Tables 1, 5, 7; FED-PUB Table 7)."""

import numpy as np

from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import balance
from fedsub.datasets.seeding import stream


def partition(dataset: Dataset, clients: int, seed: int, *, balanced: bool = False) -> np.ndarray:
    """Return a client per node, (n,) int64, drawn independently, or with `balanced` in equal shares.

    A client that the draw leaves empty takes half of the largest client's nodes.
    """
    generator = stream(seed, "random partition")
    if balanced:
        return generator.permutation(np.arange(dataset.nodes) * clients // dataset.nodes)
    drawn = generator.integers(clients, size=dataset.nodes)
    return balance.fill_empty(drawn, clients, generator.permutation(dataset.nodes))
