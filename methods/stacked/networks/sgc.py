"""`sgc`: simplified graph convolution: logits Â^hops X W + b, Wu et al., ICML 2019, eq. (8)."""

import torch
from torch import Tensor

from fedsub.methods.stacked.activation import Dropout, add_bias
from fedsub.methods.stacked.inputs import Convolution, Inputs
from fedsub.methods.stacked.networks.base import Backbone
from fedsub.methods.stacked.parameters import Parameters, Weights, linear_start, prefixed


class SGC(Backbone):
    """Computed as Â^hops (X W): the propagated width is C, not d. The whole model is its classifier."""

    @property
    def hops(self) -> int:
        return self.architecture.hops

    def propagate(self, convolution: Convolution, h: Tensor) -> Tensor:
        for _ in range(self.architecture.hops):
            h = convolution(h)
        return h

    @property
    def head(self) -> tuple[str, ...]:
        return ("head.weight", "head.bias")

    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        return self._norm(width) | prefixed("head", linear_start(width, classes, generator))

    def embed(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None) -> Tensor:
        return self.propagate(inputs.convolution, self.first(inputs, parameters, "head.weight"))

    def classify(self, inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        return add_bias(embedding, parameters["head.bias"], inputs.segments)


network = SGC
