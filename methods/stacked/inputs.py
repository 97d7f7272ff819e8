"""Inputs of a backbone for one federation, the part on which a few outputs depend, and additional nodes.

The receptive field of the labelled nodes holds all nodes within as many hops of one as there are propagations
between input and output. Where few nodes are labelled and clients' graphs are sparse, it is a small part of
the nodes. Each layer needs fewer of its rows than the layer before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import dgl
import torch
from torch import Tensor

from fedsub.datasets.graph import select_features
from fedsub.methods.stacked.features import CopiedFeatures, Features
from fedsub.methods.stacked.propagation import kernel_of, propagate, use_kernel
from fedsub.methods.stacked.segments import Segments

Convolution = Callable[..., Tensor]
"""(n, width) → (n, width); attention also takes scores."""

WORTH = 0.7
"""Largest share of all nodes for which a receptive field is computed by itself."""
LEFT_OUT = 5_000
"""Number of rows that no later layer needs, summed over layers, from which they are left out. The processor
time of 20 to 60 rounds then falls to a third for FedSage-true on Amazon Photo (some 98,000 rows left out), to
0.71 for FedAvg on PubMed (10 clients of METIS), and to 0.77 for Local on Photo (5,800); on Cora nothing is
gained (measured by hand at a0699e7, with `LEFT_OUT` 0 and 10⁹ in turn)."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of a backbone for one federation; n rows over K clients."""

    segments: Segments
    features: Features
    convolution: Convolution
    """One propagation, (n, width) → (n, width)."""
    classes: int
    propagated: Features | None = None
    """The propagated input features S X, if (S X) W is cheaper than S (X W)."""
    position: Tensor | None = None
    """Rows of nodes whose outputs are read, None: all; with `levels`, among the rows of the last level."""
    receptive_field: "ReceptiveField | None" = None
    """The part on which the outputs that training reads depend, if it is much smaller."""
    scored: "ReceptiveField | None" = None
    """The part on which the outputs at `position` depend, if it is much smaller."""
    levels: "tuple[Level, ...]" = ()
    """The rows that each layer computes; empty: all rows."""

    def renew_gradients(self) -> None:
        """Call `Features.renew_gradients` for all features used in training."""
        self.features.renew_gradients()
        for field in (self.receptive_field, self.scored):
            if field is not None:
                field.inputs.renew_gradients()
        for level in self.levels:
            if level.own is not None:
                level.own.features.renew_gradients()


@dataclass(frozen=True)
class ReceptiveField:
    """The part of a federation that the outputs of a few of its nodes depend on."""

    inputs: Inputs
    """Inputs of that part only, whose outputs are those of the few nodes."""
    rows: Tensor
    """(r,) rows of the part's nodes, ascending."""
    read: Tensor
    """(t,) indices of the few nodes among all outputs."""


@dataclass(frozen=True)
class Level:
    """The rows that one layer computes, because the layers after it need no others."""

    rows: Tensor
    """(r,) rows among the `count` rows of the federation, ascending."""
    count: int
    place: Tensor
    """(r,) indices of these rows among the rows of the layer before."""
    segments: Segments
    """Segments of these rows."""
    convolution: Convolution
    """One propagation from the rows of the layer before, (rows before, width) → (r, width)."""
    own: Inputs | None = None
    """In the first layer: the input features of these rows."""
    heard: Inputs | None = None
    """In the first layer: the input features that the convolution sums, if not those of all rows before."""


def within(graph: dgl.DGLGraph, read: Tensor, hops: int) -> Tensor:
    """Nodes from which `read`, (t,) ids, can be reached over 0 to `hops` edges; (r,) ids, ascending."""
    source, target = graph.edges()
    reached = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    reached[read.cpu()] = True
    for _ in range(hops):
        reached[source[reached[target]]] = True
    return reached.nonzero().squeeze(1)


def restricted(graph: dgl.DGLGraph, weight: Tensor, rows: Tensor) -> tuple[dgl.DGLGraph, Tensor]:
    """The edges between `rows`, (r,) ascending ids, renumbered by their index in `rows`, and their weights.

    A node receives all its messages if all its neighbours are among the rows.
    """
    return narrowed(graph, weight, _places(rows, graph.num_nodes()), len(rows), rows)


def narrowed(
    graph: dgl.DGLGraph, weight: Tensor, sources: Tensor, count: int, targets: Tensor
) -> tuple[dgl.DGLGraph, Tensor]:
    """The edges to `targets`, (r,) ascending ids, as a block, and their weights.

    `sources`, (n,), are the nodes' source rows, of `count` in all; −1 for nodes that are not read.
    """
    source, target = (end.long() for end in graph.edges())
    source, target = sources[source], _places(targets, graph.num_nodes())[target]
    kept = (source >= 0) & (target >= 0)
    ends = source[kept], target[kept]
    block = dgl.create_block(ends, num_src_nodes=count, num_dst_nodes=len(targets))
    return use_kernel(block, kernel_of(graph)), weight[kept]


def _places(rows: Tensor, count: int) -> Tensor:
    """(count,) index of each node in `rows`, −1 for other nodes."""
    return torch.full((count,), -1).index_copy(0, rows, torch.arange(len(rows)))


def receptive_field(
    backbone: Any, graph: dgl.DGLGraph, features: Tensor, spread: Tensor | None, inputs: Inputs, read: Tensor
) -> ReceptiveField | None:
    """The part of `inputs` on which the outputs `read`, (t,), depend; None if that is most of it in every
    layer. `inputs` was made of `graph`, X = `features` and S X = `spread`."""
    device, count = inputs.segments.client.device, inputs.segments.rows
    places = (read if inputs.position is None else inputs.position[read]).cpu()
    rows = within(graph, places, backbone.hops - (spread is not None))
    part = inputs
    if len(rows) <= WORTH * count:
        part = replace(
            _of_rows(inputs, features, rows),
            convolution=backbone.convolution(graph, device, rows),
            position=torch.searchsorted(rows, places).to(device),
        )
        if spread is not None:
            part = replace(part, propagated=Features(spread[rows.to(device)], part.segments, device))
    else:
        rows = torch.arange(count)
    if backbone.layered:
        after = [within(graph, places, hops) for hops in reversed(range(backbone.hops))]
        if after and sum(len(rows) - len(each) for each in after) >= LEFT_OUT:
            levels = _levels(backbone, graph, features, inputs, [rows, *after])
            position = torch.searchsorted(levels[-1].rows.cpu(), places)
            part = replace(part, levels=levels, position=position.to(device))
    return None if part is inputs else ReceptiveField(part, rows.to(device), read.to(device))


def _of_rows(inputs: Inputs, features: Tensor, rows: Tensor) -> Inputs:
    """`inputs`, made of X = `features`, restricted to `rows`, (r,) ascending."""
    device = inputs.segments.client.device
    segments = inputs.segments.among(rows)
    if isinstance(inputs.features, CopiedFeatures):
        own: Features = inputs.features.among(rows.to(device))
    else:
        own = type(inputs.features)(select_features(features, rows.numpy()), segments, device)
    return replace(inputs, segments=segments, features=own)


def _levels(
    backbone: Any, graph: dgl.DGLGraph, features: Tensor, inputs: Inputs, needed: list[Tensor]
) -> tuple[Level, ...]:
    """Each layer's level; `needed`: rows that the first layer reads, then those each computes, ascending."""
    count, device = inputs.segments.rows, inputs.segments.client.device
    folded = inputs.propagated is not None
    if folded:
        # The first layer does not propagate: it computes the rows that it reads.
        needed = [needed[0], needed[0], *needed[2:]]
    messages, weight = backbone.messages(graph)
    levels: list[Level] = []
    for before, after in pairwise(needed):
        own = heard = None
        sources, source = len(before), _places(before, count)
        if not levels and not folded:
            if backbone.itself:
                own = _of_rows(inputs, features, after)
            if isinstance(inputs.features, CopiedFeatures):
                # The convolution sums neighbours' rows from the distinct rows of which they are copies.
                distinct = inputs.features.distinct
                sources, source = distinct.segments.rows, inputs.features.copied.cpu()
                heard = replace(inputs, features=distinct, segments=distinct.segments)
        block, kept = narrowed(messages, weight, source, sources, after)
        levels.append(
            Level(
                rows=after.to(device),
                count=count,
                place=torch.searchsorted(before, after).to(device),
                segments=inputs.segments.among(after),
                convolution=partial(propagate, block, weight=kept.to(device)),
                own=own,
                heard=heard,
            )
        )
    return tuple(levels)


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
    both = torch.cat([row[source], extra, original]), torch.cat([row[target], original, extra])
    grown = use_kernel(dgl.graph(both, num_nodes=len(order)), kernel_of(graph))
    return Grown(grown, sizes + torch.bincount(client, minlength=clients), order, row[:nodes])
