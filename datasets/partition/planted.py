"""`planted`: the clients from which a generated graph was built.

FED-PUB's synthetic graphs (Figures 1 and 3) are drawn subgraph by subgraph, one subgraph per client.
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.options import Spec


def partition(dataset: Dataset, clients: int, seed: int) -> np.ndarray:
    """Return the subgraph that each node was drawn in, (n,) int64; `seed` has no effect.

    Raises UserError for a graph that is not made of clients, and for another number of clients.
    """
    # Imported here, so that partitions of real graphs need no generator.
    from fedsub.datasets.synthetic import GENERATORS

    made = {name: each.planted for name, each in GENERATORS.items() if each.planted is not None}
    name = Spec(dataset.name).name
    planted = made[name]() if name in made else None
    if planted is None or len(planted) != dataset.nodes:
        raise UserError(f"{dataset.name} has no planted clients: use one of {', '.join(made)}")
    if clients != planted.max() + 1:
        raise UserError(
            f"{dataset.name} has {planted.max() + 1} planted clients: ask for that many, not {clients}"
        )
    return planted
