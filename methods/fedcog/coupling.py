"""FedCog's internal and border graphs of all clients, the propagation over them, and LNNC.

Lei et al., Federated Learning over Coupled Graphs, section 4.1 (graph decoupling), eqs. (9), (10).

All clients' internal graphs are one DGL block from the federation's n nodes to n + S rows: the nodes, then
the stand-ins: one for each pair of a node and another client that holds neighbours of it, sorted by the node.
All border graphs are a second block, from these rows back to the nodes. Stand-ins' values travel in between.

A stand-in starts at zero, so edges from it to local nodes carry zeros in the internal step. They are left
out, and only edges towards it are kept. Degrees count both.
"""

from collections.abc import Callable
from dataclasses import replace

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy, ones_at, unit_rows
from fedsub.datasets.sets import distinct
from fedsub.methods.stacked.propagation import kernel_of, propagate, use_kernel

_ROWS = 2048
"""Number of nodes whose similarities are in memory at once."""


class CoupledConvolution:
    """h ← D̃^(−r) Ã D̃^(r−1) h over the coupled graphs in three steps; r = 1/2 is Â h.

    Eqs. (16), (17) as printed: β_v = (1 + d_v)^(r−1) in the internal step, γ_u = (1 + d_u)^(−r) in the border
    step. The paper's text gives D̃^(r−1) Ã D̃^(−r), the same with 1 − r for r.
    """

    def __init__(
        self, federation: Federation, exponent: float = 0.5, device: torch.device | str = "cpu"
    ) -> None:
        """`exponent` is r. If clients overlap, the first holder of a node represents it at every client
        without a copy (the paper has no overlap)."""
        nodes, client = federation.nodes, federation.client.numpy()
        far, near = external_edges(federation)
        pairs, stand_in = np.unique(near * federation.clients + client[far], return_inverse=True)
        owner, holder = divmod(pairs, federation.clients)
        self.nodes, self.external = nodes, len(far)
        """n, and the number of directed edges from other clients' nodes."""
        self.stand_ins = len(pairs)
        """S, the number of rows that one propagation sends between clients."""
        self.ends = torch.from_numpy(np.stack([holder, client[owner]], axis=1)).to(device)
        """(S, 2) int64: the client that holds each stand-in, and the client that owns its node."""
        source, target = (end.numpy() for end in federation.graph.edges())
        local, total = np.arange(nodes), nodes + self.stand_ins
        sources = torch.from_numpy(np.concatenate([source, local, far]))
        halfway = torch.from_numpy(np.concatenate([target, local, nodes + stand_in]))
        targets = torch.from_numpy(np.concatenate([local, owner]))
        internal = dgl.create_block((sources, halfway), num_src_nodes=nodes, num_dst_nodes=total)
        border = dgl.create_block((torch.arange(total), targets), num_src_nodes=total, num_dst_nodes=nodes)
        self.internal = use_kernel(internal, kernel_of(federation.graph))
        """n → n + S: intra-edges, self-loops, and the edges towards stand-ins."""
        self.border = use_kernel(border, kernel_of(federation.graph))
        """n + S → n: an edge from every node's and stand-in's value to its node."""
        degree = np.bincount(target, minlength=nodes) + np.bincount(near, minlength=nodes)
        looped = 1 + torch.from_numpy(degree.astype(np.float32))
        self.internal_weight = (looped ** (exponent - 1))[sources].to(device)
        """β of each internal edge's source."""
        self.border_weight = (looped**-exponent)[targets].to(device)
        """γ of each border edge's target."""

    def __call__(self, h: Tensor, on_travel: Callable[[Tensor], Tensor] = lambda values: values) -> Tensor:
        """One propagation, (n, width) → (n, width); differentiable in h. `on_travel` is called with the
        stand-ins' values, (S, width), when they are sent; it returns the arriving values."""
        inner = propagate(self.internal, h, self.internal_weight)
        inner = torch.cat([inner[: self.nodes], on_travel(inner[self.nodes :])])
        return propagate(self.border, inner, self.border_weight)


def external_edges(federation: Federation) -> tuple[np.ndarray, np.ndarray]:
    """Rows (far, near) of each edge from a neighbour that the node's client does not hold.

    If clients overlap, `far` is the neighbour's first copy.
    """
    origin = federation.origin.numpy()
    if len(distinct(origin)) == len(origin):
        far, near = federation.inter.edges()
        return far.numpy(), near.numpy()
    total = federation.source.nodes
    client = federation.client.numpy()
    rows = ones_at(np.arange(len(origin)), origin, (len(origin), total))
    every = (rows @ federation.source.adjacency()).tocoo()
    first = np.full(total, -1)
    first[origin[::-1]] = np.arange(len(origin))[::-1]
    held = np.isin(client[every.row] * np.int64(total) + every.col, client * np.int64(total) + origin)
    outside = ~held & (first[every.col] >= 0)
    return first[every.col[outside]], every.row[outside].astype(np.int64)


def exposed(federation: Federation, isolated: bool = False) -> np.ndarray:
    """Nodes with neighbours only at other clients, (n,) bool: these clients could solve for their features
    (the necessary condition of Theorem 2).

    The paper's condition N(u) ⊆ V* also holds for a node without neighbours. Such a node sends nothing, so
    joining it protects nothing; it only counts with `isolated`.
    """
    inside = federation.graph.in_degrees().numpy()
    outside = np.bincount(external_edges(federation)[1], minlength=federation.nodes)
    return (inside == 0) & (isolated | (outside > 0))


def connect(federation: Federation, isolated: bool = False) -> Federation:
    """LNNC, local nearest neighbour connection (section 4.5): before propagation, join every exposed node to
    its client's node at the smallest angular distance in features, arccos(cosine)/π. Two nodes that chose
    each other share an edge; a client's only node stays as it is."""
    sizes, client = federation.sizes.numpy(), federation.client.numpy()
    rows = np.flatnonzero(exposed(federation, isolated) & (sizes[client] > 1))
    pairs = np.unique(np.sort(np.stack([rows, _nearest(federation, rows)], axis=1), axis=1), axis=0)
    one, other = torch.from_numpy(pairs.T.copy())
    graph = dgl.add_edges(federation.graph, torch.cat([one, other]), torch.cat([other, one]))
    return replace(federation, graph=use_kernel(graph, kernel_of(federation.graph)))


def _nearest(federation: Federation, rows: np.ndarray) -> np.ndarray:
    """For each of `rows` the other row of its client at the smallest angle; the first of several."""
    unit = unit_rows(as_scipy(federation.features))
    client = federation.client.numpy()
    nearest = np.empty(len(rows), dtype=np.int64)
    for k in np.unique(client[rows]):
        start, end = np.searchsorted(client, [k, k + 1])
        own = unit[start:end]
        asking = np.flatnonzero(client[rows] == k)
        for chunk in np.array_split(asking, -(-len(asking) // _ROWS)):
            similarity = (unit[rows[chunk]] @ own.T).toarray()
            similarity[np.arange(len(chunk)), rows[chunk] - start] = -np.inf
            nearest[chunk] = start + similarity.argmax(axis=1)
    return nearest
