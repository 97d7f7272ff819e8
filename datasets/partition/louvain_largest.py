"""`louvain-largest`: the K largest Louvain communities as clients; the rest of the graph is dropped.

Preparation of FedSpray: K = 7 on PubMed, 12 on WikiCS and Coauthor Physics, 20 on Flickr. The scheme `file`
reads FedSpray's published clients.
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import louvain

VERSION = louvain.VERSION


def partition(dataset: Dataset, clients: int, seed: int) -> np.ndarray:
    """Return a client per node, (n,) int64: the K largest communities, largest first, −1 for dropped nodes.

    Raises UserError if Louvain finds fewer than K communities.
    """
    found = louvain.communities(dataset.adjacency(), seed)
    if (count := int(found.max()) + 1) < clients:
        raise UserError(
            f"Louvain finds {count} communities in {dataset.name}, fewer than {clients} clients:"
            f" ask for at most {count} clients"
        )
    return np.where(found < clients, found, -1)
