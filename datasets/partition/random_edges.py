"""A random edge for every client without one (`add_random_edge` in OpenFGL's code)."""

import numpy as np

from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition.base import Drawn
from fedsub.datasets.seeding import stream


def with_random_edges(
    dataset: Dataset, assignment: np.ndarray, clients: int, seed: int
) -> np.ndarray | Drawn:
    """Add to `assignment` (n,) an edge for each client with two or more nodes and no edge.

    The ends are two nodes of the client, drawn uniformly. Without such a client, the same array is returned.
    """
    source, target = (end.numpy() for end in dataset.graph.edges())
    inside = assignment[source] == assignment[target]
    edges = np.bincount(assignment[source[inside]], minlength=clients)
    sizes = np.bincount(assignment, minlength=clients)
    lonely = np.flatnonzero((edges == 0) & (sizes > 1))
    if not len(lonely):
        return assignment
    generator = stream(seed, "random edges")
    pairs = [generator.choice(np.flatnonzero(assignment == client), 2, replace=False) for client in lonely]
    return Drawn(assignment, np.stack(pairs, axis=1))
