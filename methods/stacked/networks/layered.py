"""Base class of the networks with hidden layers and a head."""

from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.inputs import Inputs, Level
from fedsub.methods.stacked.networks.base import Backbone
from fedsub.methods.stacked.parameters import Parameters, Weights, linear_start, prefixed
from fedsub.methods.stacked.segments import segment_product


class Layered(Backbone):
    """Hidden layers, then a head; layer i has the parameters `layers.i.*`, the head `head.*`.

    A hidden layer is h' = dropout(relu(norm(f(h) + b))); `residual` replaces f(h) by f(h) + h R. The norm is
    that of Ba et al., Layer Normalization, 2016. Residual and norm follow Luo et al., Classic GNNs are Strong
    Baselines, NeurIPS 2024, section 3.
    """

    layered = True
    takes_residual = False
    """Whether `residual` adds h R; False if f already has such a term."""

    @property
    def residual(self) -> bool:
        """Whether hidden layers add h R."""
        return self.takes_residual and self.architecture.residual

    @property
    def itself(self) -> bool:
        return self.residual or super().itself

    @property
    def hops(self) -> int:
        return len(self.architecture.hidden) + (self.architecture.head == "convolution")

    @property
    def head(self) -> tuple[str, ...]:
        weights = self.weights if self.architecture.head == "convolution" else ("weight",)
        return tuple(f"head.{part}" for part in (*weights, "bias"))

    def _start(self, inner: int, outer: int, generator: torch.Generator) -> Parameters:
        """Initial parameters of one hidden layer, without norm and residual."""
        return linear_start(inner, outer, generator, self.weights)

    def _start_head(self, inner: int, classes: int, generator: torch.Generator) -> Parameters:
        """Initial parameters of a head that is a convolution."""
        return self._start(inner, classes, generator)

    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        parameters = self._norm(width)
        inner = width
        if not self.architecture.hidden:
            raise UserError(f"{self.architecture.backbone} needs at least one hidden layer: set hidden")
        for index, outer in enumerate(self.architecture.hidden):
            start = self._start(inner, outer, generator)
            if self.residual:
                start["residual"] = linear_start(inner, outer, generator)["weight"]
            if self.architecture.norm == "layer":
                start |= {"gain": torch.ones(outer), "shift": torch.zeros(outer)}
            parameters |= prefixed(f"layers.{index}", start)
            inner = outer
        start_head = self._start_head if self.architecture.head == "convolution" else linear_start
        return parameters | prefixed("head", start_head(inner, classes, generator))

    def embed(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None) -> Tensor:
        return self._hidden(inputs, parameters, dropout, linear=self.architecture.head == "bare")

    def embed_linear(self, inputs: Inputs, parameters: Weights) -> Tensor:
        return self._hidden(inputs, parameters, None, linear=True)

    def _hidden(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None, linear: bool) -> Tensor:
        """The last hidden layer, before its ReLU if `linear`; (n, width)."""
        h, last = None, len(self.architecture.hidden) - 1
        for index in range(last + 1):
            level, prefix = inputs.levels[index] if inputs.levels else None, f"layers.{index}"
            segments = inputs.segments if level is None else level.segments
            summed = self._layer(inputs, level, h, parameters, prefix)
            if self.residual:
                summed = summed + self._times(inputs, level, h, parameters, f"{prefix}.residual")
            bias = parameters[f"{prefix}.bias"]
            if self.architecture.norm == "layer":
                summed = functional.layer_norm(add_bias(summed, bias, segments), summed.shape[1:])
                summed = summed * parameters[f"{prefix}.gain"].index_select(0, segments.client)
                bias = parameters[f"{prefix}.shift"]
            if linear and index == last:
                return add_bias(summed, bias, segments)
            if dropout is not None and level is not None:
                dropout = dropout.among(level.rows, level.count)
            h = activate(summed, bias, segments, dropout)
        return cast(Tensor, h)

    def classify(self, inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        level = inputs.levels[-1] if inputs.levels else None
        segments = inputs.segments if level is None else level.segments
        if self.architecture.head == "convolution":
            summed = self._layer(inputs, level, embedding, parameters, "head")
        else:
            summed = segment_product(embedding, parameters["head.weight"], segments)
        return add_bias(summed, parameters["head.bias"], segments)

    def _layer(
        self, inputs: Inputs, level: Level | None, h: Tensor | None, parameters: Weights, prefix: str
    ) -> Tensor:
        """f of one layer, for all rows or those of `level`; `h` None stands for the input features."""

        def times(part: str) -> Tensor:
            return self._times(inputs, level, h, parameters, f"{prefix}.{part}")

        def spread(part: str) -> Tensor:
            name = f"{prefix}.{part}"
            if h is None and inputs.propagated is not None:
                return inputs.propagated.times(parameters[name])
            if level is None:
                return inputs.convolution(times(part))
            if h is None:
                return level.convolution(self.first(level.heard or inputs, parameters, name))
            # Propagation first leaves fewer rows to multiply.
            return segment_product(level.convolution(h), parameters[name], level.segments)

        return self.convolve(times, spread)

    def _times(
        self, inputs: Inputs, level: Level | None, h: Tensor | None, parameters: Weights, name: str
    ) -> Tensor:
        """h W of one layer, for the rows of `_layer`."""
        if h is None:
            return self.first(inputs if level is None else level.own or inputs, parameters, name)
        if level is None:
            return segment_product(h, parameters[name], inputs.segments)
        return segment_product(h.index_select(0, level.place), parameters[name], level.segments)
