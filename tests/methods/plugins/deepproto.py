"""FedProto among clients with networks of other depths: they share class prototypes, no parameter.

Tan et al., FedProto, AAAI 2022, section 4.1 (model heterogeneity). A client with an even number of nodes has
one convolution, another has three.
"""

import torch
from torch import Tensor

from fedsub.methods.core.base import register
from fedsub.methods.fedproto import FedProto, FedProtoOptions
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.parameters import Parameters, linear_start, prefixed, stack
from fedsub.methods.stacked.segments import segment_product


@register(
    "deepproto",
    title="FedProto, other depths",
    paper="Tan et al. 2022",
    options=FedProtoOptions,
    backbones=("gcn",),
    lacks=("norm", "residual", "input_norm"),
    exchanges="class prototypes",
)
class DeepProto(FedProto):
    """FedProto with a depth for every client."""

    def build(self) -> None:
        """FedProto's set-up and each node's depth, (n, 1)."""
        sizes = self.federation.sizes
        self.depth = torch.where(sizes % 2 == 0, 1, 3)[self.federation.client].to(self.device).unsqueeze(1)
        super().build()

    def initial_parameters(self) -> Parameters:
        """Three layers and a classifier; the shallow clients' deeper layers get no gradient."""
        width, generator = self.architecture.hidden[-1], self.generator
        start = prefixed("layers.0", linear_start(self.federation.width, width, generator))
        for index in (1, 2):
            start |= prefixed(f"layers.{index}", linear_start(width, width, generator))
        start |= prefixed("head", linear_start(width, self.task.width, generator))
        return stack(start, self.federation.clients, self.device)

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The clients' outputs, (n, C); keeps what the classifier reads."""
        segments, weights = self.inputs.segments, self.parameters
        h = self.inputs.features.times(weights["layers.0.weight"])
        h = activate(self.inputs.convolution(h), weights["layers.0.bias"], segments, dropout)
        for index in (1, 2):
            deeper = self.inputs.convolution(segment_product(h, weights[f"layers.{index}.weight"], segments))
            deeper = activate(deeper, weights[f"layers.{index}.bias"], segments, dropout)
            h = torch.where(self.depth > index, deeper, h)
        self.hidden = h
        return add_bias(segment_product(h, weights["head.weight"], segments), weights["head.bias"], segments)
