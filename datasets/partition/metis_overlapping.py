"""`metis-overlapping`: METIS parts; for each part, five clients hold a random half of it.

FED-PUB's overlapping node scenario (Appendix B.1; Tables 1, 3, 5 and 10).
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Count, PositiveShare
from fedsub.datasets.partition import metis
from fedsub.datasets.partition.base import group
from fedsub.datasets.seeding import stream

VERSION = metis.VERSION


def partition(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    copies: Count = 5,
    share: PositiveShare = 0.5,
) -> list[np.ndarray]:
    """Make K/copies METIS parts, and `copies` clients per part, each a random `share` of the part's nodes.

    Clients of one part are consecutive. Every client holds ⌊share · part⌋ nodes, at least one.
    Returns the node ids of each client. Raises UserError if K is no multiple of `copies`.
    """
    if clients % copies:
        raise UserError(
            f"metis-overlapping has {copies} clients per part, which {clients} clients do not divide into:"
            f" ask for a multiple of {copies}"
        )
    count = clients // copies
    found = metis.partition(dataset, count, seed)
    generator = stream(seed, "overlapping partition")
    return [
        generator.permutation(part)[: max(1, int(share * len(part)))]
        for part in group(found, count)
        for _ in range(copies)
    ]
