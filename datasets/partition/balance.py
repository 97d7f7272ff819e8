"""Deterministic balancing of client sizes, so that no client is empty."""

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.errors import UserError
from fedsub.datasets.partition.base import ranks_within


def near_order(adjacency: sp.csr_matrix) -> np.ndarray:
    """Return an order that puts neighbours close together (reverse Cuthill–McKee), (n,) int64.

    Cutting a client in two along this order cuts few of its edges.
    """
    return sp.csgraph.reverse_cuthill_mckee(adjacency, symmetric_mode=True).astype(np.int64)


def level(assignment: np.ndarray, capacity: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Move nodes beyond a client's capacity to clients with room, those with most room first.

    `assignment` (n,) is the client of each node; `capacity` (K,) with Σ ≥ n. The nodes of a client that are
    earliest in `order` (n,) stay; the others are moved together if room allows.
    Returns a new (n,) int64 assignment.
    """
    sizes = np.bincount(assignment, minlength=len(capacity))
    held = assignment[order]
    beyond = ranks_within(held) >= capacity[held]
    excess = order[beyond][np.argsort(held[beyond], kind="stable")]
    result = assignment.astype(np.int64)
    result[excess] = _receivers(np.maximum(capacity - sizes, 0), len(excess))
    return result


def _receivers(room: np.ndarray, nodes: int) -> np.ndarray:
    """Return a client for each of `nodes` nodes, the one with most `room` (K,) first; (nodes,). Σ ≥ nodes."""
    order = np.argsort(-room, kind="stable")
    return np.repeat(order, room[order])[:nodes]


def fill_empty(assignment: np.ndarray, clients: int, order: np.ndarray) -> np.ndarray:
    """Give every empty client half of the largest client, cut along `order`; n ≥ K is assumed.

    Returns a new (n,) int64 assignment in which no client is empty.
    """
    result = assignment.astype(np.int64)
    sizes = np.bincount(result, minlength=clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        nodes = order[result[order] == largest]
        moved = nodes[len(nodes) - len(nodes) // 2 :]
        result[moved] = empty
        sizes[empty] = len(moved)
        sizes[largest] -= len(moved)
    return result


def pack(groups: np.ndarray, clients: int, slack: int) -> np.ndarray:
    """Distribute groups of nodes over K clients of about equal size, keeping groups whole if possible.

    FedStruct, Appendix K.1. `groups` (n,) is the group of each node; a client holds at most ⌊n/K⌋ + `slack`
    nodes. Larger groups are cut at that size, in node order. The K largest pieces start the clients; each
    further piece, in descending size, goes to the first client with room for it. A piece that fits nowhere is
    split among the clients with room, each of which may then reach ⌈n/K⌉ + slack.
    Returns the client of each node, (n,) int64; no client is empty if n ≥ K.
    """
    nodes = len(groups)
    capacity = nodes // clients + slack
    piece_of, sizes = _pieces(groups, capacity)
    by_size = np.argsort(-sizes, kind="stable")
    home = np.full(len(sizes), -1, dtype=np.int64)
    seeds = by_size[:clients]
    home[seeds] = np.arange(len(seeds))
    held = np.zeros(clients, dtype=np.int64)
    held[: len(seeds)] = sizes[seeds]
    for piece in by_size[clients:]:
        fits = held + sizes[piece] <= capacity
        if fits.any():
            home[piece] = fits.argmax()
            held[home[piece]] += sizes[piece]
    assignment = home[piece_of]
    loose = np.flatnonzero(assignment < 0)
    assignment[loose] = _receivers(-(-nodes // clients) + slack - held, len(loose))
    return fill_empty(assignment, clients, np.arange(nodes))


def deal(groups: np.ndarray, clients: int, slack: int) -> np.ndarray:
    """Distribute groups of nodes, (n,), to K clients in turn (FederatedScope-GNN's `LouvainSplitter`).

    Groups are cut at ⌊n/K⌋ − `slack` nodes. Each piece, largest first, goes to the next client in turn that
    then holds at most ⌊n/K⌋ + `slack`. If no client has room, it goes to the smallest one; the original code
    would never end. Returns the client of each node, (n,) int64; the first K pieces go to one client each.
    Raises UserError for a `slack` below 0, or of ⌊n/K⌋ or more.
    """
    share = len(groups) // clients
    if not 0 <= slack < share:
        raise UserError(f"slack={slack} must be at least 0 and below the {share} nodes of an average client")
    piece_of, sizes = _pieces(groups, share - slack)
    home = np.empty(len(sizes), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    turn = 0
    for piece in np.argsort(-sizes, kind="stable"):
        order = (turn + np.arange(clients)) % clients
        fits = held[order] + sizes[piece] <= share + slack
        home[piece] = order[fits.argmax()] if fits.any() else held.argmin()
        held[home[piece]] += sizes[piece]
        turn = (home[piece] + 1) % clients
    return home[piece_of]


def _pieces(groups: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut groups at `capacity` nodes; returns the piece of each node, (n,), and the size of each piece."""
    key = groups * len(groups) + ranks_within(groups) // capacity
    _, piece, sizes = np.unique(key, return_inverse=True, return_counts=True)
    return piece, sizes
