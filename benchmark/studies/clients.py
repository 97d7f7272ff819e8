"""Our clients as a file of plain arrays, for other libraries' environments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_matrix

if TYPE_CHECKING:
    from fedsub.datasets.federation import Federation

ROLES = ("train", "validation", "test")


def write_clients(federation: Federation, path: Path) -> dict[str, int]:
    """Write graph, features, labels, clients and split as plain arrays to an .npz file; return the counts."""
    # Imported here: the environment that reads the file lacks the packages of `datasets.graph`.
    from fedsub.datasets.graph import as_scipy

    features = as_scipy(federation.features)
    source, target = federation.graph.edges()
    between = federation.inter.edges()
    masks = {role: getattr(federation, role).numpy() for role in ROLES}
    np.savez(
        path,
        feature_values=features.data,
        feature_columns=features.indices,
        feature_rows=features.indptr,
        feature_shape=np.array(features.shape),
        source=source.numpy(),
        target=target.numpy(),
        between_source=between[0].numpy(),
        between_target=between[1].numpy(),
        labels=federation.labels.numpy(),
        sizes=federation.sizes.numpy(),
        origin=federation.origin.numpy(),
        classes=np.array(federation.classes),
        **masks,
    )
    counts = {"nodes": federation.nodes, "edges": len(source), "features": len(features.data)}
    return counts | {role: int(mask.sum()) for role, mask in masks.items()}


@dataclass(frozen=True)
class WrittenClients:
    """Content of the file: n nodes sorted by client, d features, K clients."""

    arrays: dict[str, np.ndarray]

    @classmethod
    def read(cls, path: Path) -> WrittenClients:
        """Read the file. Raises OSError and ValueError as numpy does."""
        with np.load(path, allow_pickle=False) as file:
            return cls({name: file[name] for name in file.files})

    @cached_property
    def features(self) -> torch.Tensor:
        """(n, d), dense feature matrix."""
        names = ("feature_values", "feature_columns", "feature_rows")
        parts = tuple(self.arrays[name] for name in names)
        return torch.from_numpy(csr_matrix(parts, shape=tuple(self.arrays["feature_shape"])).toarray())

    @cached_property
    def labels(self) -> torch.Tensor:
        """(n,), class of each node."""
        return torch.from_numpy(self.arrays["labels"])

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.arrays["classes"])

    @cached_property
    def rows(self) -> list[slice]:
        """K slices of the n nodes, one per client."""
        ends = np.concatenate([[0], np.cumsum(self.arrays["sizes"])]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    @property
    def origin(self) -> torch.Tensor:
        """(n,), number of each node in the whole graph."""
        return torch.from_numpy(self.arrays["origin"])

    @cached_property
    def edges(self) -> np.ndarray:
        """(2, edges), the edges within clients."""
        return np.stack([self.arrays["source"], self.arrays["target"]])

    @cached_property
    def edges_between(self) -> np.ndarray:
        """(2, edges), the edges between clients."""
        return np.stack([self.arrays["between_source"], self.arrays["between_target"]])

    def mask(self, role: str, rows: slice = slice(None)) -> torch.Tensor:
        """Return the mask of the nodes with the role train, validation or test, (nodes of `rows`,)."""
        return torch.from_numpy(self.arrays[role][rows])

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
        roles = {role: int(self.arrays[role].sum()) for role in ROLES}
        return {"nodes": len(self.labels), "edges": edges, "features": features, **roles}
