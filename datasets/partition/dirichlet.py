"""`dirichlet`: label skew: of every class, each client gets a share drawn from a Dirichlet distribution.

Hsu et al., Measuring the Effects of Non-Identical Data Distribution, 2019; over nodes as in OpenFGL's code
(`subgraph_fl_label_skew`) and FedGCN's. A client is the subgraph induced by its nodes.
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Count, Positive
from fedsub.datasets.partition.base import Drawn
from fedsub.datasets.partition.random_edges import with_random_edges
from fedsub.datasets.seeding import stream


def partition(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    alpha: Positive = 10.0,
    least: Count = 5,
    draws: Count = 100,
    random_edge: bool = True,
) -> np.ndarray | Drawn:
    """Return a client per node, (n,) int64.

    `alpha`: concentration of the shares; the smaller, the fewer classes a client holds. A client with n/K
    nodes gets no nodes of the following classes, except one that rounding may leave. `least`: least nodes of
    a client; the whole draw is repeated, at most `draws` times, until every client has them. All labels are
    used, also those of test nodes. `random_edge`: as in `louvain-openfgl`. Raises UserError if no draw gives
    every client `least` nodes.
    """
    generator = stream(seed, "dirichlet partition")
    labels = dataset.labels.numpy()
    for _ in range(draws):
        found = _drawn(labels, clients, alpha, generator)
        if np.bincount(found, minlength=clients).min() >= least:
            return with_random_edges(dataset, found, clients, seed) if random_edge else found
    raise UserError(
        f"none of {draws} draws of dirichlet[alpha={alpha:g}] gives each of {clients} clients {least} of the"
        f" {len(labels)} nodes of {dataset.name}: raise alpha or draws, lower least, or ask for fewer clients"
    )


def _drawn(labels: np.ndarray, clients: int, alpha: float, generator: np.random.Generator) -> np.ndarray:
    client = np.zeros(len(labels), dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    for label in np.unique(labels):
        nodes = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(clients, alpha)) * (sizes < len(labels) / clients)
        # With a tiny alpha, the shares of all clients with room may be 0 in double precision.
        if not shares.sum():
            shares = (sizes < len(labels) / clients).astype(float)
        cuts = (np.cumsum(shares / shares.sum()) * len(nodes)).astype(np.int64)[:-1]
        for owner, part in enumerate(np.split(nodes, cuts)):
            client[part] = owner
            sizes[owner] += len(part)
    return client
