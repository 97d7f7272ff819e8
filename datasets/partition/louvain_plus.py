"""`louvain-plus`: Louvain communities merged into clients by their labels: few links, label skew (OpenFGL).

After OpenFGL's code (`subgraph_fl_louvain_plus`), where K-means draws without a seed.
"""

from __future__ import annotations

import numpy as np

from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Positive
from fedsub.datasets.partition import louvain
from fedsub.datasets.partition.base import Drawn
from fedsub.datasets.partition.histograms import merged
from fedsub.datasets.partition.random_edges import with_random_edges

VERSION = louvain.VERSION


def partition(
    dataset: Dataset, clients: int, seed: int, *, resolution: Positive = 1.0, random_edge: bool = True
) -> np.ndarray | Drawn:
    """A client per node, (n,) int64; sizes are free.

    The label histograms of the communities, divided by their sizes, are clustered by K-means into K; a client
    holds the communities of a cluster. All labels are used, those of test nodes too. `resolution`: Louvain's;
    `random_edge`: as in `louvain-openfgl`.
    Raises UserError if there are too few communities, or different ones, for K clients.
    """
    found = louvain.communities(dataset.adjacency(), seed, resolution)
    found = merged("louvain-plus", dataset, found, clients, seed)
    return with_random_edges(dataset, found, clients, seed) if random_edge else found
