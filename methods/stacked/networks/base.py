"""The interface of every backbone: inputs, initial parameters, and outputs of K clients at once.

Every parameter has a leading client axis and is passed in: a method may have masked, mixed or perturbed it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.activation import Dropout, add_bias
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.features import CopiedFeatures, Features, NormalisedFeatures, is_dense
from fedsub.methods.stacked.inputs import Convolution, Inputs, ReceptiveField, receptive_field, restricted
from fedsub.methods.stacked.parameters import Parameters, Weights
from fedsub.methods.stacked.propagation import normalised_edges, propagate
from fedsub.methods.stacked.segments import Segments

Product = Callable[[str], Tensor]
"""Name of a layer's weight matrix → the product of the layer's input with it, (n, width)."""


class Backbone(ABC):
    """A network: it prepares inputs, initialises parameters and computes outputs."""

    layered: ClassVar[bool] = False
    """Whether every propagation belongs to a layer, which can then leave out rows."""
    folds: ClassVar[bool] = False
    """Whether the first layer can read propagated features instead of propagating their product."""
    weights: ClassVar[tuple[str, ...]] = ("weight",)
    """Names of a convolving layer's weight matrices."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture

    @property
    @abstractmethod
    def hops(self) -> int:
        """Number of propagation steps between input and output."""

    @property
    def itself(self) -> bool:
        """Whether a layer reads a node's own row besides the propagated rows."""
        return len(self.weights) > 1

    def prepare(
        self,
        graph: dgl.DGLGraph,
        features: Tensor,
        sizes: Tensor,
        classes: int,
        device: torch.device | str = "cpu",
        *,
        convolution: Convolution | None = None,
        position: Tensor | None = None,
        read: Tensor | None = None,
        copied: Tensor | None = None,
    ) -> Inputs:
        """Prepare inputs on a block-diagonal graph; features (n, d) dense or CSR, `sizes` (K,).

        `convolution` replaces the backbone's own propagation over `graph`; `position` as in `Inputs`. `read`,
        (t,), are the outputs that training reads, None: all; `Inputs.receptive_field` is then set if it is
        small enough, with the backbone's own propagation only. With `copied`, (n,), node i has row
        `copied[i]` of the features, which may have fewer rows; this is for a single model only.
        """
        segments = Segments(sizes, device)
        kind = NormalisedFeatures if self.architecture.input_norm else Features
        if copied is None:
            own: Features = kind(features, segments, device)
        else:
            distinct = kind(features, Segments(torch.tensor([len(features)]), device), device)
            own = CopiedFeatures(distinct, copied.to(device))
        position = None if position is None else position.to(device)
        step = convolution or self.convolution(graph, device)
        spread = None
        inputs = Inputs(segments, own, step, classes, position=position)
        if convolution is not None:
            return inputs
        # Propagation makes sparse features dense. Dense features cost the same as before, and every round
        # saves two propagations and their gradient.
        if self.folds and not self.architecture.input_norm and is_dense(features):
            dense = features.to_dense()
            spread = step((dense if copied is None else dense[copied]).to(device))
            inputs = replace(inputs, propagated=Features(spread, segments, device))
        field = partial(receptive_field, self, graph, features, spread, inputs)
        scored = None if position is None else field(torch.arange(len(position)))
        return replace(
            inputs,
            receptive_field=None if read is None else field(read),
            scored=scored if scored is not None and scored.inputs.levels else None,
        )

    def messages(self, graph: dgl.DGLGraph) -> tuple[dgl.DGLGraph, Tensor]:
        """The graph over which this backbone propagates, and its edges' weights, (edges,)."""
        return normalised_edges(graph)

    def convolution(
        self, graph: dgl.DGLGraph, device: torch.device | str, rows: Tensor | None = None
    ) -> Convolution:
        """One propagation of this backbone over `graph`, or only among its `rows`, (r,) ascending."""
        graph, weight = self.messages(graph)
        if rows is not None:
            graph, weight = restricted(graph, weight, rows)
        return partial(propagate, graph, weight=weight.to(device))

    def convolve(self, times: Product, spread: Product) -> Tensor:
        """One convolving layer before bias, (n, width), from its input's products and the propagated ones."""
        return spread("weight")

    def propagate(self, convolution: Convolution, h: Tensor) -> Tensor:
        """All propagations of one layer, (n, width) → (n, width)."""
        return convolution(h)

    @abstractmethod
    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        """One client's starting parameters for `width` input features, without the client axis."""

    @property
    @abstractmethod
    def head(self) -> tuple[str, ...]:
        """Names of the classifier's parameters, which FedPer does not share."""

    @abstractmethod
    def embed(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None) -> Tensor:
        """The classifier's input, (n, width of the last hidden layer)."""

    def embed_linear(self, inputs: Inputs, parameters: Weights) -> Tensor:
        """The last hidden layer before its ReLU, if it has one, without dropout; (n, width)."""
        return self.embed(inputs, parameters, None)

    @abstractmethod
    def classify(self, inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        """Logits of the embedding, (n, C)."""

    def forward(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """Logits, (n, C); `dropout` is None in evaluation."""
        if inputs.scored is not None:
            return self._through(inputs.scored, inputs, parameters, dropout)
        logits = self.classify(inputs, self.embed(inputs, parameters, dropout), parameters)
        return logits if inputs.position is None else logits.index_select(0, inputs.position)

    def _through(
        self, field: ReceptiveField, inputs: Inputs, parameters: Weights, dropout: Dropout | None
    ) -> Tensor:
        """Logits of the outputs of a receptive field of `inputs`, (t, C)."""
        # Masks are drawn for all rows, so that the draws do not depend on which rows are needed.
        dropout = None if dropout is None else dropout.among(field.rows, inputs.segments.rows)
        return self.forward(field.inputs, parameters, dropout)

    def forward_to_read(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """Logits, (n, C), of the rows that training reads; NaN in other rows if they were left out."""
        field = inputs.receptive_field
        if field is None:
            return self.forward(inputs, parameters, dropout)
        logits = self._through(field, inputs, parameters, dropout)
        outputs = inputs.segments.rows if inputs.position is None else len(inputs.position)
        return logits.new_full((outputs, logits.shape[1]), math.nan).index_copy_(0, field.read, logits)

    def first(self, inputs: Inputs, parameters: Weights, name: str) -> Tensor:
        """X W of the first layer, with X layer-normalised if `input_norm` is set; (n, width)."""
        weight = parameters[name]
        if not self.architecture.input_norm:
            return inputs.features.times(weight)
        gained = inputs.features.times(parameters["norm.gain"].unsqueeze(2) * weight)
        shift = (parameters["norm.bias"].unsqueeze(1) @ weight).squeeze(1)
        return add_bias(gained, shift, inputs.segments)

    def _norm(self, width: int) -> Parameters:
        if not self.architecture.input_norm:
            return {}
        return {"norm.gain": torch.ones(width), "norm.bias": torch.zeros(width)}
