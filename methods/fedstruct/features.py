"""FedStruct's structure features S of every node of the global graph."""

from __future__ import annotations

import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.methods.fedstruct.options import FedStructOptions
from fedsub.methods.structure import one_hot_degrees, random_start
from fedsub.methods.structure.graphlets import graphlet_degrees, standardised
from fedsub.methods.structure.node2vec import Node2VecSettings, node2vec


def structure_features(
    adjacency: sp.csr_matrix, options: FedStructOptions, classes: int, generator: torch.Generator, seed: int
) -> Tensor:
    """S, (m, d_s), for Hop2Vec its start. `generator` draws that, `seed` node2vec's walks.

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
