"""Extension of the clients' graphs by additional nodes."""

from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.propagation import kernel_of, use_kernel


@dataclass(frozen=True, eq=False)
class Grown:
    """n original nodes over K clients and m additional ones, sorted by client; tensors on the CPU."""

    graph: dgl.DGLGraph
    """n + m nodes sorted by client; the original edges, then the added ones, both directions of each."""
    sizes: Tensor
    """(K,) int64 number of nodes of each client, including added ones."""
    order: Tensor
    """(n + m,) int64: for each node its row in [originals; additional nodes]."""
    position: Tensor
    """(n,) int64: rows of the original nodes."""

    def rows(self, copied: Tensor) -> Tensor:
        """Each node's original, (n + m,): an original node itself, and `copied[i]` for additional node i."""
        return torch.cat([torch.arange(len(self.position)), copied])[self.order]


def grow(graph: dgl.DGLGraph, sizes: Tensor, added: int, ends: tuple[Tensor, Tensor]) -> Grown:
    """Add nodes to a block-diagonal graph, joined in both directions, so that messages reach the originals.

    `sizes` is (K,). `ends` are the added edges: ids of additional nodes, each of 0…added−1 at least once, and
    of the original nodes that they join, which belong to one client for each additional node.
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
        order=order,
        position=row[:nodes],
    )
