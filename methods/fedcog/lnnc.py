"""LNNC, FedCog's local nearest neighbour connection.

Lei et al., section 4.5: a node with neighbours at other clients only would let those solve for its
features (the necessary condition of Theorem 2), so its client joins it, before propagating, to the
node of its own at the smallest angular distance in features, arccos(cosine)/π.

The paper's condition N(u) ⊆ V* holds for a node without any neighbour too; such a node sends nothing,
and is not joined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import dgl
import numpy as np
import torch

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy, unit_rows
from fedsub.methods.fedcog.coupling import external_edges
from fedsub.methods.stacked.propagation import kernel_of, use_kernel

_ROWS = 2048
"""Nodes whose similarities are held at once."""


@dataclass(frozen=True, eq=False)
class Protected:
    """A federation after LNNC, and what LNNC did."""

    federation: Federation
    edges: int
    """Undirected edges added; two nodes that chose each other share one."""
    alone: int
    """Nodes that have external neighbours and are their client's only node: nothing to join them to."""


def exposed(federation: Federation) -> np.ndarray:
    """Nodes that meet the leak condition: neighbours, all of them at other clients; (n,) bool."""
    inside = federation.graph.in_degrees().numpy()
    outside = np.bincount(external_edges(federation)[1], minlength=federation.nodes)
    return (inside == 0) & (outside > 0)


def connect(federation: Federation) -> Protected:
    """Join every exposed node to its nearest node in the same client."""
    rows = np.flatnonzero(exposed(federation))
    sizes = federation.sizes.numpy()
    client = federation.client.numpy()
    joined = rows[sizes[client[rows]] > 1]
    nearest = _nearest(federation, joined)
    first, second = np.minimum(joined, nearest), np.maximum(joined, nearest)
    pairs = np.unique(np.stack([first, second], axis=1), axis=0)
    source, target = federation.graph.edges()
    ends = torch.from_numpy(pairs.T.copy())
    graph = dgl.graph(
        (torch.cat([source, ends[0], ends[1]]), torch.cat([target, ends[1], ends[0]])),
        num_nodes=federation.nodes,
    )
    return Protected(
        federation=replace(federation, graph=use_kernel(graph, kernel_of(federation.graph))),
        edges=len(pairs),
        alone=len(rows) - len(joined),
    )


def _nearest(federation: Federation, rows: np.ndarray) -> np.ndarray:
    """For each of `rows` the other row of its client at the smallest angle; the first of equals."""
    unit = unit_rows(as_scipy(federation.features))
    client = federation.client.numpy()
    ends = np.cumsum(federation.sizes.numpy())
    starts = ends - federation.sizes.numpy()
    nearest = np.empty(len(rows), dtype=np.int64)
    for k in np.unique(client[rows]):
        own = unit[starts[k] : ends[k]]
        asking = np.flatnonzero(client[rows] == k)
        for chunk in np.array_split(asking, -(-len(asking) // _ROWS)):
            similarity = (unit[rows[chunk]] @ own.T).toarray()
            similarity[np.arange(len(chunk)), rows[chunk] - starts[k]] = -np.inf
            nearest[chunk] = starts[k] + similarity.argmax(axis=1)
    return nearest
