"""The networks that AdaFGL's clients train alone, for K clients at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import dgl
import torch
import torch.nn.functional as functional
from torch import Tensor

from methods.adafgl.smoothing import Smoothing
from methods.stacked.activation import Dropout, add_bias, trains
from methods.stacked.backbones import Inputs
from methods.stacked.parameters import Parameters, Weights, glorot
from methods.stacked.segments import Segments, segment_product

Heads = dict[str, Tensor]
"""Outputs of the parts, (n, C) each: `homophilous` z, `features` z₁, `smoothed` z₂, `messages` z₃."""
SMOOTHED = ("homophilous", "smoothed", "messages")
"""Networks that read X̃; `features` reads X."""
FIRST = "first.weight"
"""The first layers of all networks side by side, (K, d, …): X is multiplied once, and no copy of the weights,
the most of a round's numbers, is made for it. For each power of Ā the columns of those in `SMOOTHED`, then
those of `features`."""
LAYERS = {"homophilous": 2, "smoothed": 3, "messages": 3, "features": 3}
SLOPES = {"homophilous": "homophilous", "smoothed": "plain", "messages": "messages", "features": "plain"}
"""Whose PReLU a network has: `features` and `smoothed` share one, as in the authors' code."""
SLOPE = 0.25
"""Of a PReLU at the start, torch's default."""
ALIKE = 0.999
"""Cosine above which two predictions are the same."""
SMALLEST = 1e-12


def personal_start(
    width: int, hops: int, hidden: int, classes: int, generator: torch.Generator
) -> Parameters:
    """One client's start: Xavier's times √2 with zero bias, and a slope for each PReLU."""
    parameters: Parameters = {}
    for net, layers in LAYERS.items():
        inner = width if net == "features" else (hops + 1) * width
        for index in range(layers):
            outer = hidden if index < layers - 1 else classes
            parameters[f"{net}.{index}.weight"] = math.sqrt(2) * glorot((inner, outer), generator)
            parameters[f"{net}.{index}.bias"] = torch.zeros(outer)
            inner = outer
    smoothed = [parameters.pop(f"{net}.0.weight").view(hops + 1, width, hidden) for net in SMOOTHED]
    columns = [torch.stack(smoothed, dim=2).transpose(0, 1).flatten(1), parameters.pop("features.0.weight")]
    parameters[FIRST] = torch.cat(columns, dim=1)
    return parameters | {f"slope.{name}": torch.full((1,), SLOPE) for name in dict.fromkeys(SLOPES.values())}


@dataclass(frozen=True, eq=False)
class Receivers:
    """Nodes to which messages of all nodes go, at most q of a client."""

    rows: Tensor
    """(r,) among n, client by client."""
    segments: Segments
    """Of the r rows."""
    alike: Tensor
    """β times their rows of B, (K, q, m)."""
    own: Tensor
    """(r,) where in those each node meets itself."""


class Personal:
    """The second step's networks on n nodes; the parameters are the caller's."""

    def __init__(
        self,
        graph: dgl.DGLGraph,
        inputs: Inputs,
        prior: Tensor,
        share: Tensor,
        trained: Tensor,
        alpha: float,
        beta: float,
        hops: int,
    ) -> None:
        """`prior` is P, (n, C); `share` (K,) the homophilous part's share in each client's prediction;
        `trained` the rows of the training nodes."""
        self.inputs, self.segments = inputs, inputs.segments
        self.prior, self.share = prior, share
        self.beta, self.hops = beta, hops
        unit = self.segments.pad(_unit(prior))
        cosines = unit @ unit.transpose(1, 2)
        # B, (K, m, m) with m nodes of the largest client; symmetric, whichever way rounding goes.
        alike = torch.minimum(cosines, cosines.transpose(1, 2)) > ALIKE
        alike.diagonal(dim1=1, dim2=2).fill_(False)
        self.smooth = Smoothing(graph, alike, alpha, self.segments)
        """h → Ā h."""
        self.count = alike.sum(dim=(1, 2))
        """(K,) ones in B."""
        self.everyone = self._receivers(torch.arange(len(prior), device=prior.device), alike)
        self.trained = self._receivers(trained, alike)

    def _receivers(self, rows: Tensor, alike: Tensor) -> Receivers:
        count = torch.bincount(self.segments.client[rows], minlength=self.segments.clients)
        segments, place = Segments(count, rows.device), self.segments.place[rows]
        own = segments.place * self.segments.longest + place % self.segments.longest
        return Receivers(rows, segments, segments.pad(self.beta * alike.flatten(0, 1)[place]), own)

    def heads(self, parameters: Weights, dropout: Dropout | None) -> Heads:
        """The parts that some client predicts with; where they are trained on, z₃ of the training nodes, of
        which the loss is, and Z of others."""
        nets = [name for name in LAYERS if name == "homophilous" and bool((self.share > 0).any())]
        if bool((self.share < 1).any()):
            nets += [name for name in LAYERS if name != "homophilous"]
        first = self._first(parameters, nets)
        found = {net: self._layers(first[net], parameters, net, dropout) for net in nets}
        if "messages" in found:
            receivers = self.trained if trains(dropout) else self.everyone
            slope = parameters["slope.messages"].unsqueeze(2)
            found["messages"] = self._messages(found["messages"], slope, receivers)
        return found

    def _first(self, parameters: Weights, nets: list[str]) -> Heads:
        """X̃ W or X W of the networks' first layers, (n, width) each, from one product with X."""
        smoothed = [name for name in SMOOTHED if name in nets]
        product, powers = self.inputs.features.times(parameters[FIRST]), self.hops + 1
        width = product.shape[1] // (len(SMOOTHED) * powers + 1)
        *lower, spread, plain = product.split((*[len(SMOOTHED) * width] * powers, width), dim=1)
        if len(smoothed) < len(SMOOTHED):
            columns = [SMOOTHED.index(name) for name in smoothed]
            parts = (power.split(width, dim=1) for power in (*lower, spread))
            *lower, spread = (torch.cat([part[column] for column in columns], dim=1) for part in parts)
        for addend in reversed(lower):
            spread = addend + self.smooth(spread)
        outputs = spread.split(width, dim=1)
        return dict(zip(smoothed, outputs, strict=True)) | {"features": plain}

    def _layers(self, h: Tensor, parameters: Weights, net: str, dropout: Dropout | None) -> Tensor:
        """The network after its first product, (n, C)."""
        slope = parameters[f"slope.{SLOPES[net]}"].index_select(0, self.segments.client)
        h = add_bias(h, parameters[f"{net}.0.bias"], self.segments)
        for index in range(1, LAYERS[net]):
            h = torch.where(h > 0, h, slope * h)
            h = h if dropout is None else dropout(h)
            h = segment_product(h, parameters[f"{net}.{index}.weight"], self.segments)
            h = add_bias(h, parameters[f"{net}.{index}.bias"], self.segments)
        return h

    def _messages(self, z: Tensor, slope: Tensor, receivers: Receivers) -> Tensor:
        """z₃ of Z for the receivers, Z for others, (n, C) each; `slope` (K, 1, 1) is φ's.

        With U = max(R', 0) Z and V = max(−R', 0) Z, φ(R')Z = U − slope · V and φ(−R')Z = V − slope · U.
        """
        unit, padded = self.segments.pad(_unit(z)), self.segments.pad(z)
        mean, top = self._mean(unit), self._top(unit)
        likeness = self._likeness(unit, receivers)
        near = likeness > mean
        own = receivers.segments.pad(z.index_select(0, receivers.rows))
        above = ((likeness - mean) * near) @ padded / (top - mean).clamp(min=SMALLEST) + own
        below = likeness.masked_fill(near, 0) @ padded / mean.clamp(min=SMALLEST)
        towards, away = above - slope * below, below - slope * above
        found = (towards.softmax(dim=2) - away.softmax(dim=2) + own) / 2
        return z.index_copy(0, receivers.rows, receivers.segments.unpad(found))

    def _likeness(self, unit: Tensor, receivers: Receivers) -> Tensor:
        """The receivers' rows of R, (K, q, m); rows of `unit`, (K, m, C), have cosines as products."""
        rows = receivers.segments.pad(self.segments.unpad(unit).index_select(0, receivers.rows))
        found = torch.baddbmm(receivers.alike, rows, unit.transpose(1, 2), alpha=1 - self.beta)
        found.view(-1).index_fill_(0, receivers.own, 0)
        return found

    def _mean(self, unit: Tensor) -> Tensor:
        """μ, (K, 1, 1): Σ_ij ⟨u_i, u_j⟩ over i ≠ j is Σ_i ⟨u_i, Σ_j u_j − u_i⟩. In float64, for R − μ may be
        small beside μ."""
        unit = unit.double()
        cosines = (unit * (unit.sum(dim=1, keepdim=True) - unit)).sum(dim=(1, 2))
        mean = (self.beta * self.count + (1 - self.beta) * cosines) / self.segments.sizes.square().to(unit)
        return mean.float().view(-1, 1, 1)

    def _top(self, unit: Tensor) -> Tensor:
        """M, (K, 1, 1), whose gradient goes to one of the pairs that reach it."""
        with torch.no_grad():
            likeness = self._likeness(unit, self.everyone)
            client = torch.arange(len(unit), device=unit.device)
            node = likeness.amax(dim=2).argmax(dim=1)
            other = likeness[client, node].argmax(dim=1)
            alike = self.everyone.alike[client, node, other]
        cosine = (unit[client, node] * unit[client, other]).sum(dim=1)
        return ((alike + (1 - self.beta) * cosine) * (node != other)).view(-1, 1, 1)

    def predicted(self, heads: Heads) -> Tensor:
        """Logarithms of the predicted probabilities, (n, C)."""
        share = self.share.index_select(0, self.segments.client).unsqueeze(1)
        total = torch.zeros_like(self.prior)
        if "homophilous" in heads:
            own = heads["homophilous"].detach().softmax(dim=1)
            total = total + share * (own + self.prior.softmax(dim=1)) / 2
        others = [head.detach().softmax(dim=1) for name, head in heads.items() if name != "homophilous"]
        if others:
            total = total + (1 - share) * torch.stack(others).mean(dim=0)
        return total.clamp(min=SMALLEST).log()

    def loss(self, heads: Heads, each: Heads) -> Tensor:
        """Sum over clients, (), of the cross-entropies `each` (K,) and of the mean square of z − P, of the
        parts that a client predicts with."""
        losses = {name: loss * (self.share < 1) for name, loss in each.items()}
        if "homophilous" in heads:
            gap = (heads["homophilous"] - self.prior).square().mean(dim=1, keepdim=True)
            both = each["homophilous"] + self.segments.mean(gap).squeeze(1)
            losses["homophilous"] = both * (self.share > 0)
        return torch.stack(list(losses.values())).sum()


def _unit(z: Tensor) -> Tensor:
    """Rows of softmax z, of length one, whose products are cosines; (n, C)."""
    return functional.normalize(z.softmax(dim=1), dim=1)
