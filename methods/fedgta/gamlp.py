"""GAMLP, the network of FedGTA's public code: features of several hops, mixed node by node.

Zhang et al., Graph Attention Multi-Layer Perceptron, KDD 2022, with "jumping knowledge" attention.
X_l = Â^l X for l = 0…L; q, r_0 … r_L and b are learned:

    s_vl = sigmoid(Σ_m ⟨r_m, X_m[v]⟩ + ⟨q, X_l[v]⟩ + b)
    x_v  = Σ_l a_vl X_l[v],  a_v = softmax_l(s_vl)
    logits = MLP(x), with one slope learned for all its PReLUs

Only X is stored, neither x nor any other X_l: since x W = Σ_l a_l ⊙ Â^l (X W) and Σ_m Â^m (X r_m) =
X r_0 + Â (X r_1 + Â (…)), one product with X gives everything that is propagated.
"""

import math
from itertools import pairwise

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.activation import Dropout, add_bias, trains
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.networks.mlp import MLP
from fedsub.methods.stacked.parameters import Parameters, Weights, glorot, linear_start, prefixed
from fedsub.methods.stacked.segments import segment_product

HOPS = 3
"""L, as in that code."""
SLOPE = 0.25
"""Initial slope of the PReLU, torch's default."""


class GAMLP(MLP):
    """The networks of all clients on one graph. Only `initial` and `forward` are GAMLP's: nothing calls the
    inherited `embed`, `classify` and `head`, since FedGTA only computes logits."""

    def __init__(
        self, architecture: Architecture, graph: dgl.DGLGraph, client: Tensor, mixed_rows: Tensor | None
    ) -> None:
        """`graph` is block-diagonal, `client`, (n,), has each node's block.

        `mixed_rows`, (m,) ascending: the training nodes if scores are read as in `misread_scores`, else None.
        """
        super().__init__(architecture)
        self.smooth = normalised_adjacency(graph, client.device)
        self.misread: tuple[Tensor, ...] | None = None
        """(n, L + 1) positions of the scores that each node reads, in training and in evaluation."""
        if mixed_rows is not None:
            every = torch.arange(len(client), device=client.device)
            self.misread = tuple(misread_scores(rows, client) for rows in (mixed_rows, every))

    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        """Xavier's start times √2 with zero bias in the MLP, torch's default for the scores."""
        scores = linear_start((HOPS + 2) * width, 1, generator)
        parameters = prefixed("hops", scores) | {"slope": torch.full((1,), SLOPE)}
        widths = (width, *self.architecture.hidden, classes)
        for index, (inner, outer) in enumerate(pairwise(widths)):
            weight = math.sqrt(2) * glorot((inner, outer), generator)
            parameters |= {f"layers.{index}.weight": weight, f"layers.{index}.bias": torch.zeros(outer)}
        return parameters

    def forward(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """Logits, (n, C). `dropout` None, or one for scoring, means evaluation."""
        segments = inputs.segments
        h = self._first(inputs, parameters, trains(dropout))
        h = add_bias(h, parameters["layers.0.bias"], segments)
        for index in range(1, len(self.architecture.hidden) + 1):
            slope = parameters["slope"].index_select(0, segments.client)
            h = torch.where(h > 0, h, slope * h)
            h = h if dropout is None else dropout(h)
            h = segment_product(h, parameters[f"layers.{index}.weight"], segments)
            h = add_bias(h, parameters[f"layers.{index}.bias"], segments)
        return h

    def _first(self, inputs: Inputs, parameters: Weights, training: bool) -> Tensor:
        """x W of the first layer, (n, width)."""
        *references, own = parameters["hops.weight"].split(inputs.features.width, dim=1)
        product = inputs.features.times(torch.cat([parameters["layers.0.weight"], own, *references], dim=2))
        products = [product[:, : -len(references)]]
        for _ in range(HOPS):
            products.append(self.smooth(products[-1]))
        *nearer, common = product[:, -len(references) :].split(1, dim=1)
        for reference in reversed(nearer):
            common = reference + self.smooth(common)
        bias = parameters["hops.bias"].squeeze(1).index_select(0, inputs.segments.client)
        common = common.squeeze(1) + bias
        scores = torch.stack([common + part[:, -1] for part in products]).sigmoid()
        if self.misread is not None:
            scores = scores.flatten()[self.misread[0 if training else 1]].T
        shares = scores.softmax(dim=0).unsqueeze(2)
        return torch.stack([a * p[:, :-1] for a, p in zip(shares, products, strict=True)]).sum(dim=0)


def misread_scores(rows: Tensor, client: Tensor) -> Tensor:
    """Positions of the L + 1 scores that each node reads, (n, L + 1), in the flattened (L + 1, n) scores.

    In FedGTA's public code a client writes the scores of its `rows` hop after hop and reads them back node
    after node. `rows` is (m,) ascending, `client` (n,); a node not among the rows reads its own scores.
    """
    start = torch.arange(HOPS + 1, device=client.device) * len(client)
    place = start + torch.arange(len(client), device=client.device)[:, None]
    for own in rows.split(torch.bincount(client[rows]).tolist()):
        place[own] = (start[:, None] + own).reshape(len(own), HOPS + 1)
    return place
