"""`gprgnn`: generalised PageRank: logits Σ_k γ_k Â^k H, H `mlp`'s logits, Chien et al., ICLR 2021, eq. (1).

The γ_k, k = 0…`gpr_hops`, are learned and belong to the head. They start at α (1 − α)^k, the last one at
(1 − α)^hops, with α = `gpr_alpha`. Departures, as for the other networks here: dropout only after hidden
layers, not on the input or before propagation unless `gpr_dropout` is set; weight decay of the γ_k too.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.networks.base import Backbone
from fedsub.methods.stacked.networks.mlp import MLP
from fedsub.methods.stacked.parameters import Parameters, Weights


class GPRGNN(MLP):
    """An MLP whose logits are propagated; `head.pagerank`, (hops + 1,), are the γ."""

    layered = False
    convolution = Backbone.convolution

    @property
    def hops(self) -> int:
        return self.architecture.gpr_hops

    @property
    def head(self) -> tuple[str, ...]:
        return (*super().head, "head.pagerank")

    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        weights = start_of_hops(self.architecture.gpr_alpha, self.architecture.gpr_hops)
        return super().initial(width, classes, generator) | {"head.pagerank": weights}

    def forward(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        if dropout is None or not self.architecture.gpr_dropout:
            return super().forward(inputs, parameters, dropout)
        if type(inputs.features) is not Features:
            raise UserError("gpr_dropout does not support input_norm or replaced features: leave it out")
        dropped = replace(inputs, features=inputs.features.dropped(dropout))
        h = MLP.classify(self, inputs, self.embed(dropped, parameters, dropout), parameters)
        logits = self._spread(inputs, dropout(h), parameters)
        return logits if inputs.position is None else logits.index_select(0, inputs.position)

    def classify(self, inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        return self._spread(inputs, super().classify(inputs, embedding, parameters), parameters)

    def _spread(self, inputs: Inputs, h: Tensor, parameters: Weights) -> Tensor:
        """Σ_k γ_k Â^k h, (n, C)."""
        weights = parameters["head.pagerank"].index_select(0, inputs.segments.client)
        out = weights[:, :1] * h
        for hop in range(1, self.hops + 1):
            h = inputs.convolution(h)
            out = out + weights[:, hop : hop + 1] * h
        return out


def start_of_hops(alpha: float, hops: int) -> Tensor:
    """Initial γ: α (1 − α)^k for k = 0…hops − 1, then (1 − α)^hops; (hops + 1,)."""
    weights = alpha * (1 - alpha) ** torch.arange(hops + 1.0)
    weights[-1] = (1 - alpha) ** hops
    return weights


network = GPRGNN
