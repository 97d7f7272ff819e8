"""`louvain-openfgl`: Louvain communities of bounded size, filling one client after another (OpenFGL, FedTAD).

After OpenFGL's code (`subgraph_fl_louvain`). Departures: Louvain visits the nodes in an order drawn from the
seed (OpenFGL: in node order). A community that fits no client goes to the smallest open one (OpenFGL: to an
arbitrary one).
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Size
from fedsub.datasets.partition import louvain
from fedsub.datasets.partition.base import Drawn, ranks_within
from fedsub.datasets.partition.random_edges import with_random_edges

VERSION = louvain.VERSION


def partition(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    delta: Size = 20,
    random_edge: bool = True,
) -> np.ndarray | Drawn:
    """Return a client per node, (n,) int64.

    `delta`: communities are cut at ⌊n/K⌋ − delta nodes, and clients hold fewer than ⌊n/K⌋ + delta unless a
    community fits none. `random_edge`: whether to add an edge between two nodes of a client without edges.
    Raises UserError if `delta` leaves no room for a community, or a client stays empty.
    """
    share = dataset.nodes // clients
    if not 0 <= delta < share:
        raise UserError(
            f"delta={delta} of louvain-openfgl must be at least 0 and below the {share} nodes of an average"
            " client: lower it or ask for fewer clients"
        )
    piece, sizes = cut(louvain.communities(dataset.adjacency(), seed), share - delta)
    home = place(sizes, clients, share, delta)
    if (filled := len(np.unique(home))) < clients:
        raise UserError(
            f"louvain-openfgl fills {filled} of {clients} clients with the communities of {dataset.name}:"
            " lower delta or ask for fewer clients"
        )
    return with_random_edges(dataset, home[piece], clients, seed) if random_edge else home[piece]


def cut(groups: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut groups at `limit` nodes, in node order; returns each node's piece, (n,), and the pieces' sizes.

    Pieces are ordered by appearance: first the first pieces of all groups, by their first node, then the
    second pieces, and so on.
    """
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    key = ranks_within(groups) // limit * len(groups) + first[group]
    _, piece, sizes = np.unique(key, return_inverse=True, return_counts=True)
    return piece, sizes


def place(sizes: np.ndarray, clients: int, share: int, delta: int) -> np.ndarray:
    """Place pieces, largest first; returns each piece's client, (pieces,), from their `sizes`, (pieces,).

    One client after another is filled: the current client takes pieces until it has `share` nodes and is
    closed. A client that would reach `share` + `delta` with a piece is skipped.
    """
    home = np.empty(len(sizes), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    still_open, pointer = list(range(clients)), 0
    for piece in np.argsort(-sizes, kind="stable"):
        while len(still_open) > 1 and held[still_open[pointer]] >= share:
            del still_open[pointer]
            pointer %= len(still_open)
        for _ in still_open:
            if held[still_open[pointer]] + sizes[piece] < share + delta:
                break
            pointer = (pointer + 1) % len(still_open)
        else:
            pointer = int(held[still_open].argmin())
        home[piece] = still_open[pointer]
        held[home[piece]] += sizes[piece]
    return home
