"""The impaired graph that a neighbour generator learns from: part of the nodes hidden.

Zhang et al., Subgraph Federated Learning with Missing Neighbor Generation, NeurIPS 2021, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import numpy as np
import torch
from torch import Tensor

from fedsub.methods.stacked.propagation import kernel_of, use_kernel


@dataclass(frozen=True, eq=False)
class Impaired:
    """A block-diagonal graph of n nodes, some hidden. All tensors on the CPU."""

    graph: dgl.DGLGraph
    """n nodes; no edge touches a hidden one."""
    hidden: Tensor
    """(n,) bool."""
    missing: Tensor
    """(n,) int64, hidden neighbours of a remaining node; 0 for a hidden one."""
    neighbour: Tensor
    """(Σ missing,) int64, those hidden neighbours, sorted by the remaining node they belong to."""

    @property
    def first(self) -> Tensor:
        """Where each node's hidden neighbours start in `neighbour`, (n,) int64."""
        return self.missing.cumsum(0) - self.missing


def choose_hidden(sample: Tensor, client: Tensor, share: float, random: np.random.Generator) -> Tensor:
    """`share` of each client's nodes in `sample` ((n,) bool), rounded, uniformly at random; (n,) bool.

    `client` is (n,), ascending.
    """
    nodes = sample.nonzero().squeeze(1).numpy()
    owner = client.numpy()[nodes]
    shuffled = np.lexsort((random.random(len(nodes)), owner))
    size = np.bincount(owner, minlength=int(client[-1]) + 1)
    rank = np.arange(len(nodes)) - np.repeat(size.cumsum() - size, size)
    taken = rank < np.rint(share * size)[owner[shuffled]]
    hidden = torch.zeros(len(sample), dtype=torch.bool)
    hidden[torch.from_numpy(nodes[shuffled[taken]])] = True
    return hidden


def impair(graph: dgl.DGLGraph, hidden: Tensor) -> Impaired:
    """Remove the edges of the `hidden` nodes ((n,) bool), and list what each remaining node lost."""
    source, target = graph.edges()
    lost = hidden[source] & ~hidden[target]
    kept = ~(hidden[source] | hidden[target])
    order = torch.argsort(target[lost], stable=True)
    impaired = dgl.graph((source[kept], target[kept]), num_nodes=graph.num_nodes())
    return Impaired(
        graph=use_kernel(impaired, kernel_of(graph)),
        hidden=hidden,
        missing=torch.bincount(target[lost], minlength=graph.num_nodes()),
        neighbour=source[lost][order],
    )
