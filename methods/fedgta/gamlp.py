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

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.activation import Dropout, add_bias, trains
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.parameters import Parameters, Weights, glorot, linear_start, prefixed
from fedsub.methods.stacked.segments import ranks, segment_product

SLOPE = 0.25
"""Initial slope of the PReLU, torch's default."""


class GAMLP:
    """K networks on n nodes; the caller holds the parameters."""

    def __init__(
        self,
        graph: dgl.DGLGraph,
        features: Features,
        hops: int,
        widths: tuple[int, ...],
        classes: int,
        mixed_rows: Tensor | None,
    ) -> None:
        """`graph` is block-diagonal, `features` are X, (n, d), `hops` is L.

        `mixed_rows`, (m,) ascending, are the training nodes. With them nodes read each other's scores, as in
        FedGTA's public code (see `misread_scores`); None: every node reads its own.
        """
        self.features, self.segments, self.hops = features, features.segments, hops
        self.widths, self.classes = widths, classes
        client = self.segments.client
        self.convolution = normalised_adjacency(graph, client.device)
        self.misread: tuple[Tensor, ...] | None = None
        """(n, L + 1) positions of the scores that each node reads, in training and in evaluation."""
        if mixed_rows is not None:
            every = torch.arange(len(client), device=client.device)
            self.misread = tuple(misread_scores(rows, client, hops + 1) for rows in (mixed_rows, every))

    def initial(self, generator: torch.Generator) -> Parameters:
        """One client's start: Xavier's times √2 with zero bias in the MLP, torch's default for the scores."""
        inner = self.features.width
        scores = linear_start((self.hops + 2) * inner, 1, generator)
        parameters = prefixed("hops", scores) | {"slope": torch.full((1,), SLOPE)}
        for index, outer in enumerate((*self.widths, self.classes)):
            weight = math.sqrt(2) * glorot((inner, outer), generator)
            parameters |= {f"layers.{index}.weight": weight, f"layers.{index}.bias": torch.zeros(outer)}
            inner = outer
        return parameters

    def __call__(self, parameters: Weights, dropout: Dropout | None) -> Tensor:
        """Logits, (n, C). `dropout` None, or one for scoring, means evaluation."""
        h = self._first(parameters, parameters["layers.0.weight"], training=trains(dropout))
        h = add_bias(h, parameters["layers.0.bias"], self.segments)
        for index in range(1, len(self.widths) + 1):
            slope = parameters["slope"].index_select(0, self.segments.client)
            h = torch.where(h > 0, h, slope * h)
            h = h if dropout is None else dropout(h)
            h = segment_product(h, parameters[f"layers.{index}.weight"], self.segments)
            h = add_bias(h, parameters[f"layers.{index}.bias"], self.segments)
        return h

    def _first(self, parameters: Weights, weight: Tensor, training: bool) -> Tensor:
        """x W, (n, width of W)."""
        *references, own = parameters["hops.weight"].split(self.features.width, dim=1)
        product = self.features.times(torch.cat([weight, own, *references], dim=2))
        products = [product[:, : -len(references)]]
        for _ in range(self.hops):
            products.append(self.convolution(products[-1]))
        *nearer, common = product[:, -len(references) :].split(1, dim=1)
        for reference in reversed(nearer):
            common = reference + self.convolution(common)
        common = common.squeeze(1) + parameters["hops.bias"].squeeze(1).index_select(0, self.segments.client)
        scores = torch.stack([common + part[:, -1] for part in products]).sigmoid()
        if self.misread is not None:
            scores = scores.flatten()[self.misread[0 if training else 1]].T
        shares = scores.softmax(dim=0).unsqueeze(2)
        return torch.stack([a * p[:, :-1] for a, p in zip(shares, products, strict=True)]).sum(dim=0)


def misread_scores(rows: Tensor, client: Tensor, hops: int) -> Tensor:
    """Positions of the `hops` scores that each node reads, (n, hops), in the flattened (hops, n) scores.

    A client writes the scores of its `rows` hop after hop, m numbers each, and reads them back node after
    node. `rows` is (m,) ascending, `client` (n,); a node that is not among the rows reads its own scores.
    """
    nodes, every = len(client), torch.arange(hops, device=client.device)
    place = every * nodes + torch.arange(nodes, device=client.device)[:, None]
    owner = client[rows]
    count = torch.bincount(owner)
    first = (count.cumsum(0) - count)[owner]
    written = ranks(count)[:, None] * hops + every
    hop = written // count[owner][:, None]
    place[rows] = hop * nodes + rows[first[:, None] + written % count[owner][:, None]]
    return place
