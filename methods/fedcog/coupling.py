"""FedCog's internal and border graphs of all clients, the propagation over them, and LNNC.

Lei et al., Federated Learning over Coupled Graphs, section 4.1 (graph decoupling), eqs. (9), (10).

All clients' internal graphs are one DGL graph: rows 0…n−1 are the federation's nodes, rows n…n+S−1
the stand-ins: one for each pair of a node and another client that holds neighbours of it, sorted by
the client that holds the stand-in. All border graphs are a second DGL graph: the same n nodes, then the S
arrived values, sorted by the node that they belong to. Between the two steps the stand-ins' values travel.

A stand-in starts at zero, so edges from it to local nodes carry zeros in the internal step. They are left
out, and only edges towards it are kept. Degrees count both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy, make_graph, ones_at, unit_rows
from fedsub.datasets.sets import distinct
from fedsub.methods.stacked.propagation import kernel_of, propagate, use_kernel


class Coupling:
    """The coupled graphs of a federation of n nodes, with S stand-ins."""

    def __init__(self, federation: Federation) -> None:
        """If clients overlap, the first holder of a node represents it at every client without a copy (the
        paper has no overlap)."""
        graph, self.nodes = federation.graph, federation.nodes
        client, kernel = federation.client.numpy(), kernel_of(graph)
        far, near = external_edges(federation)
        keys, stand_in = np.unique(client[far] * np.int64(self.nodes) + near, return_inverse=True)
        owner = keys % self.nodes
        order = np.lexsort((keys // self.nodes, owner))
        source, target = (end.numpy() for end in graph.edges())
        self.stand_ins = len(keys)
        """S, the number of rows that one propagation sends between clients."""
        loops, arrived = np.arange(self.nodes), self.nodes + np.arange(self.stand_ins)
        internal = make_graph(
            np.concatenate([source, loops, far]),
            np.concatenate([target, loops, self.nodes + stand_in.reshape(-1)]),
            self.nodes + self.stand_ins,
        )
        self.internal = use_kernel(internal, kernel)
        """n + S rows: intra-edges, self-loops of the nodes, and the edges towards stand-ins."""
        ends = np.concatenate([loops, arrived]), np.concatenate([loops, owner[order]])
        self.border = use_kernel(make_graph(*ends, self.nodes + self.stand_ins), kernel)
        """n + S rows: self-connections of the nodes, and an edge from every arrived value to its node."""
        self.route = torch.from_numpy(order)
        """(S,) int64: the p-th arrived value comes from stand-in `route[p]`."""
        degree = np.bincount(target, minlength=self.nodes) + np.bincount(near, minlength=self.nodes)
        self.degree = torch.from_numpy(degree.astype(np.float32))
        """(n,) float32: number of neighbours of each node, at its own client and elsewhere."""
        self.ends = torch.from_numpy(np.stack([keys // self.nodes, client[owner]], axis=1))
        """(S, 2) int64: the client that holds each stand-in, and the client that owns its node."""
        self.edges = len(source) // 2, len(far)
        """Number of undirected edges inside clients, and of directed edges from other clients' nodes."""


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


@dataclass(frozen=True, eq=False)
class CoupledConvolution:
    """h ← D̃^(−r) Ã D̃^(r−1) h over the coupled graphs in three steps; r = 1/2 is Â h.

    Eqs. (16), (17) as printed: β_v = (1 + d_v)^(r−1) in the internal step, γ_u = (1 + d_u)^(−r) in the border
    step. The paper's text gives D̃^(r−1) Ã D̃^(−r), the same with 1 − r for r.
    """

    coupling: Coupling
    exponent: float = 0.5
    """r, exponent of the degrees."""
    device: torch.device | str = "cpu"
    on_travel: Callable[[Tensor], Tensor] | None = None
    """Called with the stand-ins' values, (S, width), when they are sent; returns the arriving values."""

    @cached_property
    def internal_weight(self) -> Tensor:
        """β of each edge's source, (edges of the internal graph,)."""
        source, _ = self.coupling.internal.edges()
        return ((1 + self.coupling.degree) ** (self.exponent - 1))[source].to(self.device)

    @cached_property
    def border_weight(self) -> Tensor:
        """γ of each edge's target, (edges of the border graph,)."""
        _, target = self.coupling.border.edges()
        return ((1 + self.coupling.degree) ** -self.exponent)[target].to(self.device)

    @cached_property
    def route(self) -> Tensor:
        """`Coupling.route`, (S,), on the device."""
        return self.coupling.route.to(self.device)

    def __call__(self, h: Tensor) -> Tensor:
        """One propagation, (n, width) → (n, width); differentiable in h."""
        nodes = self.coupling.nodes
        zeros = h.new_zeros(self.coupling.stand_ins, h.shape[1])
        inner = propagate(self.coupling.internal, torch.cat([h, zeros]), self.internal_weight)
        sent = inner[nodes:] if self.on_travel is None else self.on_travel(inner[nodes:])
        joined = torch.cat([inner[:nodes], sent.index_select(0, self.route)])
        return propagate(self.coupling.border, joined, self.border_weight)[:nodes]


_ROWS = 2048
"""Number of nodes whose similarities are in memory at once."""


@dataclass(frozen=True, eq=False)
class Protected:
    """A federation after LNNC, and counts of what LNNC did."""

    federation: Federation
    edges: int
    """Number of undirected edges added; two nodes that chose each other share one."""
    alone: int
    """Number of exposed nodes that are their client's only node, so that they cannot be joined."""


def exposed(federation: Federation, isolated: bool = False) -> np.ndarray:
    """Nodes with neighbours only at other clients, (n,) bool: these clients could solve for their features
    (the necessary condition of Theorem 2).

    The paper's condition N(u) ⊆ V* also holds for a node without neighbours. Such a node sends nothing, so
    joining it protects nothing; it only counts with `isolated`.
    """
    inside = federation.graph.in_degrees().numpy()
    outside = np.bincount(external_edges(federation)[1], minlength=federation.nodes)
    return (inside == 0) & (isolated | (outside > 0))


def connect(federation: Federation, isolated: bool = False) -> Protected:
    """LNNC, local nearest neighbour connection (section 4.5): before propagation, join every exposed node to
    its client's node at the smallest angular distance in features, arccos(cosine)/π."""
    rows = np.flatnonzero(exposed(federation, isolated))
    sizes = federation.sizes.numpy()
    client = federation.client.numpy()
    joined = rows[sizes[client[rows]] > 1]
    nearest = _nearest(federation, joined)
    first, second = np.minimum(joined, nearest), np.maximum(joined, nearest)
    pairs = np.unique(np.stack([first, second], axis=1), axis=0)
    one, other = torch.from_numpy(pairs.T.copy())
    graph = dgl.add_edges(federation.graph, torch.cat([one, other]), torch.cat([other, one]))
    after = replace(federation, graph=use_kernel(graph, kernel_of(federation.graph)))
    return Protected(after, edges=len(pairs), alone=len(rows) - len(joined))


def _nearest(federation: Federation, rows: np.ndarray) -> np.ndarray:
    """For each of `rows` the other row of its client at the smallest angle; the first of several."""
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
