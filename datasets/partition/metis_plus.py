"""`metis-plus`: METIS parts merged into clients by their labels: few links, label skew (OpenFGL).

After OpenFGL's code (`subgraph_fl_metis_plus`), where K-means draws without a seed, and a client without
edges is given a random one.
"""

from __future__ import annotations

import numpy as np

from datasets.errors import UserError
from datasets.graph import Dataset
from datasets.limits import Count
from datasets.partition import metis
from datasets.partition.histograms import merged

VERSION = metis.VERSION - 1
"""One behind: it came with the second of `metis`."""


def partition(dataset: Dataset, clients: int, seed: int, *, parts: Count = 100) -> np.ndarray:
    """A client per node, (n,) int64; sizes are free.

    As `louvain-plus`, of so many METIS `parts` in place of communities.
    Raises UserError if there are fewer parts, or different ones, than clients, or fewer nodes than parts.
    """
    if not clients <= parts <= dataset.nodes:
        raise UserError(
            f"metis-plus cannot merge parts={parts} of the {dataset.nodes} nodes of {dataset.name} into"
            f" {clients} clients: take from {clients} to {dataset.nodes} parts"
        )
    return merged("metis-plus", dataset, metis.partition(dataset, parts, seed), clients, seed)
