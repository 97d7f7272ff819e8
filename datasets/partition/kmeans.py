"""`kmeans`: K-means clusters of the node features, packed into clients of about equal size.

FedStruct (Appendix K.1, Tables 5 and 7); FedCog (Fig. 3) keeps the raw clusters: `balanced=false`.
K-means may put nearly every bag of words into one cluster, though far tighter clusterings exist (CiteSeer,
100 clusters: 3,103 to 3,136 of 3,327 nodes in 7 of 10 draws). If the clusters are the clients, such a draw is
repeated.
"""

import logging

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from fedsub.datasets.cache import remember_groups
from fedsub.datasets.graph import Dataset, as_scipy
from fedsub.datasets.limits import Count, Size
from fedsub.datasets.partition import balance

VERSION = 2
"""2: degenerate clusterings are drawn again."""

logger = logging.getLogger(__name__)


def partition(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    balanced: bool = True,
    slack: Size = 20,
    starts: Count = 1,
    draws: Count = 20,
) -> np.ndarray:
    """Cluster the dataset's features into K clients; returns a client per node, (n,) int64.

    `balanced`: cut clusters at n/K + `slack` nodes and pack them as `louvain` does (slack 20 in FedStruct's
    reference code, 0 in its paper). Otherwise clusters are clients, and a cluster that K-means leaves empty
    takes half of the largest. `starts`: number of starts of K-means, of which the tightest clusters win.
    `draws`: maximum number of clusterings drawn, if not balanced, until one is not `degenerate`; if all are,
    the tightest is taken, with a logged warning.
    """
    features = as_scipy(dataset.features)
    parameters = {"count": clients, "seed": seed, "starts": starts, "draws": 1 if balanced else draws}
    found = remember_groups("kmeans", "scikit-learn", VERSION, features, _cluster, **parameters)
    if balanced:
        return balance.pack(found, clients, slack)
    return balance.fill_empty(found, clients, np.arange(dataset.nodes))


def degenerate(sizes: np.ndarray) -> bool:
    """Whether the largest of K clusters, `sizes` (K,), is closer in size to all n nodes than to n/K."""
    return bool(sizes.max() > (1 + 1 / len(sizes)) / 2 * sizes.sum())


def _cluster(features: sp.csr_matrix, count: int, seed: int, starts: int, draws: int) -> np.ndarray:
    """Return the K-means cluster of each row of `features` (n, d), (n,); some may be empty."""
    from sklearn.cluster import KMeans

    # With fewer distinct rows than clients, K-means leaves clusters empty; the caller repairs that.
    dense = features.nnz > 0.2 * features.shape[0] * features.shape[1]
    rows = features.toarray() if dense else features
    # One thread fixes the order of sums, so that a seed gives the same partition on every machine.
    with threadpool_limits(limits=1):
        drawn = []
        generator = np.random.RandomState(seed % 2**32)
        for _ in range(draws if count > 1 else 1):
            algorithm = "elkan" if count > 1 else "lloyd"
            model = KMeans(count, n_init=starts, random_state=generator, algorithm=algorithm).fit(rows)
            if not degenerate(np.bincount(model.labels_, minlength=count)):
                return model.labels_
            drawn.append((model.inertia_, model.labels_))
    if count > 1 and draws > 1:
        logger.warning("one of the %d clusters holds most nodes in each of %d draws", count, draws)
    return min(drawn, key=lambda each: each[0])[1]
