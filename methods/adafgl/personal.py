"""AdaFGL's personal networks of the second step, for K clients at once."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedsub.methods.adafgl.messages import Messages, Receivers, alike_pairs, unit_softmax
from fedsub.methods.adafgl.smoothing import Smoothing
from fedsub.methods.stacked.activation import Dropout, add_bias, trains
from fedsub.methods.stacked.parameters import Parameters, Weights, glorot
from fedsub.methods.stacked.segments import segment_product

if TYPE_CHECKING:
    from fedsub.methods.adafgl import AdaFGL

Heads = dict[str, Tensor]
"""Outputs of the parts, (n, C) each: `homophilous` z, `features` z₁, `smoothed` z₂, `messages` z₃."""
SMOOTHED = ("homophilous", "smoothed", "messages")
"""Networks that read X̃; `features` reads X."""
FIRST = "first.weight"
"""Parameter that concatenates the first layers of all networks, (K, d, …): X is multiplied once, without
copying these weights, which are most of a round's data. Columns: for each power of Ā those of the networks in
`SMOOTHED`, then those of `features`."""
LAYERS = {"homophilous": 2, "smoothed": 3, "messages": 3, "features": 3}
SLOPES = {"homophilous": "homophilous", "smoothed": "plain", "messages": "messages", "features": "plain"}
"""Network → the PReLU it uses; `features` and `smoothed` share one, as in the authors' code."""


def personal_start(
    width: int, hops: int, hidden: int, classes: int, generator: torch.Generator
) -> Parameters:
    """One client's start: Xavier's times √2, zero bias, and for each PReLU torch's default slope, 0.25."""
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
    return parameters | {f"slope.{name}": torch.full((1,), 0.25) for name in dict.fromkeys(SLOPES.values())}


class Personal:
    """The second step's networks on n nodes; `prior` is P, (n, C). The caller holds the parameters."""

    def __init__(self, method: "AdaFGL", prior: Tensor) -> None:
        options, share, rows = method.options, method.homophily, method.task.train
        self.prior, self.features, self.hops = prior, method.inputs.features, options.hops
        self.segments = segments = method.inputs.segments
        self.share = (share >= options.threshold).float() if options.combine == "threshold" else share
        """(K,) the homophilous part's weight in each client's prediction."""
        used = {net: self.share > 0 if net == "homophilous" else self.share < 1 for net in LAYERS}
        self.nets = [net for net in LAYERS if bool(used[net].any())]
        """Networks of the parts that some client predicts with."""
        alike = alike_pairs(prior, segments)
        self.smooth = Smoothing(method.federation.graph, alike, unit_softmax(prior), options.alpha, segments)
        """h → Ā h."""
        self.messages = Messages(alike, options.beta, segments)
        self.trained: Receivers = rows, segments.among(rows)

    def heads(self, parameters: Weights, dropout: Dropout | None) -> Heads:
        """Outputs of the parts that some client predicts with. In training z₃ is computed only for the
        training nodes, which the loss reads; other nodes have Z."""
        first = self._first(parameters)
        found = {net: self._layers(first[net], parameters, net, dropout) for net in self.nets}
        if "messages" in found:
            receivers = self.trained if trains(dropout) else self.messages.everyone
            found["messages"] = self.messages(found["messages"], parameters["slope.messages"], receivers)
        return found

    def _first(self, parameters: Weights) -> Heads:
        """X̃ W = X W₀ + Ā(X W₁ + Ā(…)) or X W for the networks' first layers, (n, width) each."""
        smoothed = [name for name in SMOOTHED if name in self.nets]
        product, powers = self.features.times(parameters[FIRST]), self.hops + 1
        width = product.shape[1] // (len(SMOOTHED) * powers + 1)
        *each, plain = product.split((*[len(SMOOTHED) * width] * powers, width), dim=1)
        # Either part's networks are neighbours in `SMOOTHED`.
        start = SMOOTHED.index(smoothed[0]) * width
        *lower, spread = (power[:, start : start + len(smoothed) * width] for power in each)
        for addend in reversed(lower):
            spread = addend + self.smooth(spread)
        outputs = spread.split(width, dim=1)
        return dict(zip(smoothed, outputs, strict=True)) | {"features": plain}

    def _layers(self, h: Tensor, parameters: Weights, net: str, dropout: Dropout | None) -> Tensor:
        """Output of a network, (n, C), from the product `h` of its first layer."""
        slope = parameters[f"slope.{SLOPES[net]}"].index_select(0, self.segments.client)
        h = add_bias(h, parameters[f"{net}.0.bias"], self.segments)
        for index in range(1, LAYERS[net]):
            h = torch.where(h > 0, h, slope * h)
            h = h if dropout is None else dropout(h)
            h = segment_product(h, parameters[f"{net}.{index}.weight"], self.segments)
            h = add_bias(h, parameters[f"{net}.{index}.bias"], self.segments)
        return h

    def predicted(self, heads: Heads) -> Tensor:
        """Predicted probabilities, (n, C)."""
        share = self.share.index_select(0, self.segments.client).unsqueeze(1)
        total = torch.zeros_like(self.prior)
        if "homophilous" in heads:
            own = heads["homophilous"].detach().softmax(dim=1)
            total = total + share * (own + self.prior.softmax(dim=1)) / 2
        others = [head.detach().softmax(dim=1) for name, head in heads.items() if name != "homophilous"]
        if others:
            total = total + (1 - share) * torch.stack(others).mean(dim=0)
        return total

    def loss(self, heads: Heads, each: Heads) -> Tensor:
        """Sum over clients, (), of the losses of the parts that a client predicts with: the cross-entropies
        `each` (K,), and for the homophilous part also the mean square of z − P."""
        losses = {name: loss * (self.share < 1) for name, loss in each.items()}
        if "homophilous" in heads:
            gap = (heads["homophilous"] - self.prior).square().mean(dim=1, keepdim=True)
            both = each["homophilous"] + self.segments.mean(gap).squeeze(1)
            losses["homophilous"] = both * (self.share > 0)
        return torch.stack(list(losses.values())).sum()
