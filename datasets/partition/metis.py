"""`metis`: METIS k-way partition of the graph; every node in one client, few edges between clients.

Karypis and Kumar, A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, SIAM
J. Sci. Comput. 1998. Used by FED-PUB (Tables 2, 8, 12) and FedCog.
"""

import math

import numpy as np
import pymetis
import scipy.sparse as sp

from fedsub.datasets.cache import remember_groups
from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import balance
from fedsub.datasets.seeding import stream

VERSION = 2
"""2: METIS's seed comes from `stream`; before, seeds 0 and 1 gave the same parts."""
LARGEST = 1.25
"""Maximum nodes of a client, in units of n/K (rounded up); METIS itself aims at 1.03."""


def partition(dataset: Dataset, clients: int, seed: int, *, recursive: bool = False) -> np.ndarray:
    """Partition into K parts by METIS; returns a client per node, (n,) int64, none empty.

    `recursive`: recursive bisection instead of k-way. If METIS leaves parts empty or larger than
    `LARGEST`·n/K, on small or loosely connected graphs, they are levelled afterwards. METIS uses `seed`
    while coarsening. k-way does not coarsen graphs with n < 40·K, so their parts are the same for every seed.
    """
    adjacency = dataset.adjacency()
    if clients == 1:
        return np.zeros(dataset.nodes, dtype=np.int64)
    # METIS passes its seed to C's srand, which treats 0 and 1 alike.
    drawn = int(stream(seed, "metis").integers(2, 2**31))
    parameters = {"count": clients, "seed": drawn, "recursive": recursive}
    return remember_groups("metis", "pymetis", VERSION, adjacency, _cut, **parameters)


def _cut(adjacency: sp.csr_matrix, count: int, seed: int, recursive: bool) -> np.ndarray:
    options = pymetis.Options(seed=seed)
    graph = pymetis.CSRAdjacency(adjacency.indptr.astype(np.int32), adjacency.indices.astype(np.int32))
    found = pymetis.part_graph(count, adjacency=graph, recursive=recursive, options=options)
    assignment = np.asarray(found.vertex_part, dtype=np.int64)
    sizes = np.bincount(assignment, minlength=count)
    largest = math.ceil(LARGEST * adjacency.shape[0] / count)
    if sizes.min() > 0 and sizes.max() <= largest:
        return assignment
    order = balance.near_order(adjacency)
    levelled = balance.level(assignment, np.full(count, largest), order)
    return balance.fill_empty(levelled, count, order)
