"""`metis-imbalanced`: METIS parts of equal size, some of them merged into larger clients.

FED-PUB, Section 5.2 (Fig. 12): 20 parts, of which five, three, two, two and two are merged. With the six
remaining parts that makes eleven clients, while the paper says ten.
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import metis

VERSION = metis.VERSION


PARTS = 20
MERGED = (5, 3, 2, 2, 2)
"""Number of parts in each of the larger clients."""


def partition(dataset: Dataset, clients: int, seed: int) -> np.ndarray:
    """Partition into `PARTS` by METIS and merge them, in METIS's order, by the counts in `MERGED`.

    The remaining parts are clients of their own; their two smallest are merged until K clients remain (one
    such merge for ten clients). Returns a client per node, (n,) int64: merged clients first, then the
    remaining parts in METIS's order. Raises UserError if the numbers do not admit K clients or the graph has
    fewer nodes than parts.
    """
    larger, left = len(MERGED), PARTS - sum(MERGED)
    if not larger < clients <= larger + left:
        raise UserError(f"metis-imbalanced makes {larger + 1} to {larger + left} clients, not {clients}")
    if dataset.nodes < PARTS:
        raise UserError(f"{dataset.name} has {dataset.nodes} nodes, fewer than {PARTS}: use a larger one")
    found = metis.partition(dataset, PARTS, seed)
    client = np.concatenate([np.repeat(np.arange(larger), MERGED), larger + np.arange(left)])
    while client.max() + 1 > clients:
        sizes = np.bincount(client[found])
        singles = np.arange(larger, len(sizes))
        first, second = np.sort(singles[np.argsort(sizes[singles], kind="stable")[:2]])
        client[client == second] = first
        client[client > second] -= 1
    return client[found]
