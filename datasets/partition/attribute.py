"""`attribute`: natural clients, one for each value of a node attribute such as country, hospital or year."""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, valued
from fedsub.datasets.partition.base import Drawn


def partition(dataset: Dataset, clients: int, seed: int, *, key: str = "") -> Drawn:
    """Make one client per value of the attribute `key`, in ascending order, named by the value.

    Returns a client per node, (n,) int64, −1 for a node without a value (`valued`). `seed` has no effect.
    Raises UserError if the graph lacks the attribute or its number of values is not the number of clients.
    """
    values, client = _clients(dataset, key)
    if len(values) != clients:
        raise UserError(
            f"attribute {key} of {dataset.name} has {len(values)} values: ask for that many clients,"
            f" not {clients}"
        )
    return Drawn(client, names=tuple(map(str, values.tolist())))


def clients_in(dataset: Dataset, *, key: str = "") -> int:
    """Return the number of values of the attribute. Raises UserError if the graph lacks it."""
    return len(_clients(dataset, key)[0])


def _clients(dataset: Dataset, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the attribute's values, (K,), and each node's client, (n,)."""
    if key not in dataset.attributes:
        known = ", ".join(sorted(dataset.attributes)) or "none"
        raise UserError(
            f"{dataset.name} has no attribute {key!r}: set key to one of its own ({known}), or give each node"
            f" a short text or a whole number of that name (in tables, a column attribute_{key})"
        )
    held = dataset.attributes[key]
    kept = valued(held)
    values, client = np.unique(held[kept], return_inverse=True)
    found = np.full(dataset.nodes, -1, dtype=np.int64)
    found[kept] = client
    return values, found
