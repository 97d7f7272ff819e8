"""Our clients as a file of plain arrays, for other libraries' environments."""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_matrix

if TYPE_CHECKING:
    from fedsub.datasets.federation import Federation

ROLES = ("train", "validation", "test")


def write_clients(federation: "Federation", path: Path) -> dict[str, int]:
    """Write graph, features, labels, clients and split as plain arrays to an .npz file; return the counts."""
    # Imported here: the environment that reads the file lacks the packages of `datasets.graph`.
    from fedsub.datasets.graph import as_scipy

    features = as_scipy(federation.features)
    within, between = (torch.stack(graph.edges()) for graph in (federation.graph, federation.inter))
    masks = {role: getattr(federation, role).numpy() for role in ROLES}
    np.savez(
        path,
        feature_values=features.data,
        feature_columns=features.indices,
        feature_rows=features.indptr,
        feature_shape=np.array(features.shape),
        edges=within.numpy(),
        edges_between=between.numpy(),
        labels=federation.labels.numpy(),
        sizes=federation.sizes.numpy(),
        origin=federation.origin.numpy(),
        classes=np.array(federation.classes),
        **masks,
    )
    counts = {"nodes": federation.nodes, "edges": within.shape[1], "features": len(features.data)}
    return counts | {role: int(mask.sum()) for role, mask in masks.items()}


class WrittenClients:
    """Content of the file: n nodes sorted by client, d features, K clients."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises OSError and ValueError as numpy does."""
        with np.load(path, allow_pickle=False) as file:
            read = dict(file)
        values = tuple(read[name] for name in ("feature_values", "feature_columns", "feature_rows"))
        self.features = torch.from_numpy(csr_matrix(values, shape=tuple(read["feature_shape"])).toarray())
        """(n, d), dense feature matrix."""
        self.labels = torch.from_numpy(read["labels"])
        """(n,), class of each node."""
        self.classes = int(read["classes"])
        ends = np.concatenate([[0], np.cumsum(read["sizes"])]).tolist()
        self.rows = [slice(first, last) for first, last in pairwise(ends)]
        """K slices of the n nodes, one per client."""
        self.origin = torch.from_numpy(read["origin"])
        """(n,), number of each node in the whole graph."""
        self.edges = read["edges"]
        """(2, edges), the edges within clients."""
        self.edges_between = read["edges_between"]
        """(2, edges), the edges between clients."""
        self.masks = {role: torch.from_numpy(read[role]) for role in ROLES}
        """Role (train, validation or test) → mask of its nodes, (n,)."""

    def edges_of(self, client: int) -> np.ndarray:
        """Return the edges of one client, (2, edges), numbered from its first node."""
        rows = self.rows[client]
        own = (self.edges[0] >= rows.start) & (self.edges[0] < rows.stop)
        return self.edges[:, own] - rows.start

    @property
    def counts(self) -> dict[str, int]:
        """The counts that `write_clients` returns, computed from the file."""
        edges = sum(self.edges_of(number).shape[1] for number in range(len(self.rows)))
        features = int(torch.count_nonzero(self.features))
        roles = {role: int(mask.sum()) for role, mask in self.masks.items()}
        return {"nodes": len(self.labels), "edges": edges, "features": features, **roles}
