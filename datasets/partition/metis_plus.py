"""`metis-plus`: METIS parts merged into clients by their labels: few links, label skew (OpenFGL).

After OpenFGL's code (`subgraph_fl_metis_plus`), where K-means draws without a seed.
"""

from __future__ import annotations

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Count
from fedsub.datasets.partition import metis
from fedsub.datasets.partition.base import Drawn
from fedsub.datasets.partition.histograms import merged
from fedsub.datasets.partition.random_edges import with_random_edges

VERSION = metis.VERSION - 1
"""One behind: it came with the second of `metis`."""


def partition(
    dataset: Dataset, clients: int, seed: int, *, parts: Count = 100, random_edge: bool = True
) -> np.ndarray | Drawn:
    """A client per node, (n,) int64; sizes are free.

    As `louvain-plus`, of so many METIS `parts` in place of communities;
    `random_edge` as in `louvain-openfgl`.
    Raises UserError if there are fewer parts, or different ones, than clients, or fewer nodes than parts.
    """
    if not clients <= parts <= dataset.nodes:
        raise UserError(
            f"metis-plus cannot merge parts={parts} of the {dataset.nodes} nodes of {dataset.name} into"
            f" {clients} clients: take from {clients} to {dataset.nodes} parts"
        )
    found = merged("metis-plus", dataset, metis.partition(dataset, parts, seed), clients, seed)
    return with_random_edges(dataset, found, clients, seed) if random_edge else found
