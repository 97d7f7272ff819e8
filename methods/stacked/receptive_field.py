"""The receptive field of labelled nodes: all that lie at most as many propagations away from one as there are
between input and output. Where few nodes are labelled and clients' graphs are sparse, it is a small part."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor

from methods.stacked.propagation import kernel_of, use_kernel


def within(graph: dgl.DGLGraph, read: Tensor, hops: int) -> Tensor:
    """Nodes from which `read`, (t,) ids, can be reached over at most `hops` edges, themselves included;
    (r,) ids, ascending."""
    source, target = graph.edges()
    reached = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    reached[read.cpu()] = True
    for _ in range(hops):
        reached[source[reached[target]]] = True
    return reached.nonzero().squeeze(1)


def restricted(graph: dgl.DGLGraph, weight: Tensor, rows: Tensor) -> tuple[dgl.DGLGraph, Tensor]:
    """The edges between `rows`, (r,) ascending ids, numbered by their place there, and their weights.

    What a node receives is whole where all its neighbours are among the rows.
    """
    place = torch.full((graph.num_nodes(),), -1, dtype=torch.int64)
    place[rows] = torch.arange(len(rows))
    source, target = (place[end.long()] for end in graph.edges())
    kept = (source >= 0) & (target >= 0)
    part = dgl.graph((source[kept], target[kept]), num_nodes=len(rows))
    return use_kernel(part, kernel_of(graph)), weight[kept]


def narrowed(
    graph: dgl.DGLGraph, weight: Tensor, sources: Tensor, count: int, targets: Tensor
) -> tuple[dgl.DGLGraph, Tensor]:
    """The edges to `targets`, (r,) ascending ids, as a block, and their weights.

    `sources`, (n,), are the rows, of `count`, that the nodes are read from.
    """
    place = torch.full((graph.num_nodes(),), -1, dtype=torch.int64)
    place[targets] = torch.arange(len(targets))
    source, target = (end.long() for end in graph.edges())
    kept = place[target] >= 0
    ends = sources[source[kept]], place[target[kept]]
    block = dgl.create_block(ends, num_src_nodes=count, num_dst_nodes=len(targets))
    return use_kernel(block, kernel_of(graph)), weight[kept]
