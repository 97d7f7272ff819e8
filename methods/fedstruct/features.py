"""FedStruct's structure features S of every node of the global graph, and Ā = Σ_l β_l Â^l as a product."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.fedstruct.options import FedStructOptions
from fedsub.methods.structure import one_hot_degrees, random_start
from fedsub.methods.structure.graphlets import graphlet_degrees, standardised
from fedsub.methods.structure.node2vec import Node2VecSettings, node2vec


def structure_features(
    adjacency: sp.csr_matrix, options: FedStructOptions, classes: int, generator: torch.Generator, seed: int
) -> Tensor:
    """S, (m, d_s); for Hop2Vec its initial values, drawn by `generator`. `seed` draws node2vec's walks.

    Every graphlet orbit is standardised over the nodes; the paper states no scale.
    """
    if options.features == "h2v":
        width = classes if options.transform == "none" else options.structure_width
        return random_start(adjacency.shape[0], width, generator)
    if options.features == "deg":
        return one_hot_degrees(adjacency, options.structure_width)
    if options.features == "gdv":
        return torch.from_numpy(standardised(graphlet_degrees(adjacency, options.orbits)))
    settings = Node2VecSettings(
        width=options.structure_width,
        walk_length=options.walk_length,
        context=options.context,
        walks=options.walks,
        p=options.return_parameter,
        q=options.in_out_parameter,
        negatives=options.negatives,
        epochs=options.walk_epochs,
    )
    return torch.from_numpy(node2vec(adjacency, settings, seed))


def hop_weights(kind: str, hops: int) -> np.ndarray:
    """β_1…β_hops, (hops,): 1 on the last power for `last`, as in the reference code; even for `all`."""
    weights = np.full(hops, 1 / hops) if kind == "all" else np.eye(hops)[-1]
    return weights.astype(np.float32)


def combined(h: Tensor, spread: Callable[[Tensor], Tensor], weights: np.ndarray) -> Tensor:
    """Σ_l β_l Â^l h without computing Â^l; (m, width) → (m, width). `spread` multiplies by Â."""
    total = None
    for weight in weights:
        h = spread(h)
        if weight:
            term = h if weight == 1 else h * float(weight)
            total = term if total is None else total + term
    return h if total is None else total


def behind_last_edge(federation: Federation) -> Tensor:
    """Nodes after their client's last node with an edge in the client's own graph, (n,) bool."""
    connected = (federation.graph.in_degrees() > 0).nonzero().squeeze(1)
    last = torch.full((federation.clients,), -1)
    last.scatter_reduce_(0, federation.client[connected], connected, "amax")
    return torch.arange(federation.nodes) > last[federation.client]
