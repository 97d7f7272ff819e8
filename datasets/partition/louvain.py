"""`louvain`: Louvain communities packed into clients of about equal size, or dealt out at random.

Blondel et al., Fast unfolding of communities in large networks, 2008. `merge=packed` as in FedStruct
(Appendix K.1, Tables 5 and 7), after FedSage; `merge=random` as FED-PUB (Appendix C.2, Table 6) describes
FedSage's merge (Zhang et al. 2021); `merge=in-turn` as in FederatedScope-GNN's code (`LouvainSplitter`),
which finds the communities by python-louvain. Here scikit-network finds them, and they are not the same ones.
"""

from typing import Literal

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.cache import remember_groups
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Size
from fedsub.datasets.partition import balance
from fedsub.datasets.seeding import stream

VERSION = 1
"""Version of this scheme and of schemes built on its communities."""
SLACK = 20
"""Nodes beyond n/K that FedStruct's reference code allows a client."""


def partition(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    slack: Size = SLACK,
    merge: Literal["packed", "random", "in-turn"] = "packed",
) -> np.ndarray:
    """Merge Louvain communities, cut at n/K + slack nodes, into K clients.

    `slack`: nodes that a client may hold beyond n/K; 0 in FedStruct's paper.
    `merge=random`: clients get equal numbers (± 1) of whole communities of any size; `slack` has no effect.
    If there are fewer communities than clients, the largest clients are cut.
    `merge=in-turn`: communities, cut at n/K − slack nodes, go to one client after another.
    Returns a client per node, (n,) int64. Raises UserError for a `slack` without effect, and for a `slack` of
    n/K or more with `in-turn`.
    """
    if merge == "random" and slack != SLACK:
        raise UserError(f"louvain's slack={slack} has no effect with merge=random: leave it out")
    adjacency = dataset.adjacency()
    found = communities(adjacency, seed)
    if merge == "packed":
        return balance.pack(found, clients, slack)
    if merge == "in-turn":
        return balance.deal(found, clients, slack)
    dealt = stream(seed, "merge of communities").permutation(int(found.max()) + 1) % clients
    return balance.fill_empty(dealt[found], clients, balance.near_order(adjacency))


def communities(adjacency: sp.csr_matrix, seed: int) -> np.ndarray:
    """Return the Louvain community of each node, (n,) int64, largest community first.

    Nodes are visited in an order drawn from `seed`. A node without edges is a community of its own.
    """
    return remember_groups("louvain", "scikit-network", VERSION, adjacency, _detect, seed=seed)


def _detect(adjacency: sp.csr_matrix, seed: int) -> np.ndarray:
    if not adjacency.nnz:
        return np.arange(adjacency.shape[0])
    from sknetwork.clustering import Louvain

    return Louvain(shuffle_nodes=True, random_state=seed % 2**32).fit_predict(adjacency)
