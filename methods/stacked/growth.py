"""Clients' graphs that grow by nodes which the clients did not have."""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.propagation import kernel_of, use_kernel


@dataclass(frozen=True, eq=False)
class Grown:
    """n nodes over K clients and m additional ones, each with its client's run; tensors on the CPU."""

    graph: dgl.DGLGraph
    """n + m nodes by client; the original edges, then the added ones, both directions of each."""
    sizes: Tensor
    """(K,) int64 nodes of each client, added ones counted."""
    client: Tensor
    """(m,) int64, the client of each additional node."""
    order: Tensor
    """(n + m,) int64: for each node its row in [originals; additional nodes]."""
    position: Tensor
    """(n,) int64: the originals' rows."""

    def rows(self, copied: Tensor) -> Tensor:
        """The original that each node is, or is a copy of: additional node i of `copied[i]`; (n + m,)."""
        return torch.cat([torch.arange(len(self.position)), copied])[self.order]


def grow(graph: dgl.DGLGraph, sizes: Tensor, added: int, ends: tuple[Tensor, Tensor]) -> Grown:
    """Add nodes to a block-diagonal graph, joined in both directions: a message reaches the originals.

    `sizes` is (K,); `ends` are the added edges: ids of additional nodes, each of 0…added−1 at least once,
    and the originals at the far ends, of one client for each additional node.
    """
    nodes, clients = graph.num_nodes(), len(sizes)
    owner = torch.repeat_interleave(torch.arange(clients), sizes)
    client = torch.empty(added, dtype=torch.int64)
    client[ends[0]] = owner[ends[1]]
    order = torch.argsort(torch.cat([owner, client]), stable=True)
    row = torch.empty_like(order)
    row[order] = torch.arange(len(order))
    source, target = graph.edges()
    extra, original = row[ends[0] + nodes], row[ends[1]]
    grown = dgl.graph(
        (torch.cat([row[source], extra, original]), torch.cat([row[target], original, extra])),
        num_nodes=len(order),
    )
    return Grown(
        graph=use_kernel(grown, kernel_of(graph)),
        sizes=sizes + torch.bincount(client, minlength=clients),
        client=client,
        order=order,
        position=row[:nodes],
    )
