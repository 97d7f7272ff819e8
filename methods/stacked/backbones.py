"""The graph networks that the methods train, for K clients at once.

Every parameter carries a leading client axis; a backbone is a function of inputs and parameters, so
that a method may pass masked, mixed or perturbed parameters as it needs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, cast

import dgl
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError, unknown
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.features import CopiedFeatures, Features, NormalisedFeatures, is_dense
from fedsub.methods.stacked.inputs import Convolution, Inputs, Level, ReceptiveField
from fedsub.methods.stacked.parameters import Parameters, Weights, glorot, linear_start, prefixed
from fedsub.methods.stacked.propagation import mean_weight, normalised_edges, propagate
from fedsub.methods.stacked.receptive_field import receptive_field, restricted
from fedsub.methods.stacked.segments import Segments, segment_product

Product = Callable[[str], Tensor]
"""Name of a layer's weight matrix → the product of the layer's input with it, (n, width)."""


def normalised_adjacency(graph: dgl.DGLGraph, device: torch.device | str) -> Convolution:
    """h → Â h with Â = D̃^−½ (A + I) D̃^−½, Kipf & Welling, ICLR 2017, eq. (2)."""
    looped, weight = normalised_edges(graph)
    return partial(propagate, looped, weight=weight.to(device))


class Backbone(ABC):
    """A network: how inputs are prepared, where parameters start, what they compute."""

    layered: ClassVar[bool] = False
    """Whether each of its propagations is that of a layer, which can leave out rows."""
    folds: ClassVar[bool] = False
    """Whether the first layer can read propagated features in place of propagating its product."""
    weights: ClassVar[tuple[str, ...]] = ("weight",)
    """Names of a convolving layer's weight matrices."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture

    @property
    @abstractmethod
    def hops(self) -> int:
        """Propagations between input and output."""

    def prepare(
        self,
        graph: dgl.DGLGraph,
        features: Tensor,
        sizes: Tensor,
        classes: int,
        device: torch.device | str = "cpu",
        convolution: Convolution | None = None,
        position: Tensor | None = None,
        read: Tensor | None = None,
        copied: Tensor | None = None,
    ) -> Inputs:
        """Inputs on a block-diagonal graph; features (n, d) dense or CSR, `sizes` (K,).

        `convolution` replaces the backbone's own propagation over `graph`; `position` as in `Inputs`. `read`,
        (t,), are the outputs that training reads, if not all: `Inputs.receptive_field` is then set where it
        is worth it. It holds for the backbone's own propagation alone. With `copied`, (n,), which is for one
        model alone, node i has row `copied[i]` of the features, of which there may then be fewer.
        """
        segments = Segments(sizes, device)
        kind = NormalisedFeatures if self.architecture.input_norm else Features
        spread, convolved = None, convolution is None
        if convolution is None:
            convolution = self.convolution(graph, device)
            # Sparse features fill up when they are propagated; dense ones cost the same as before, and
            # every round is spared two propagations and their gradient.
            if self.folds and not self.architecture.input_norm and is_dense(features):
                dense = features.to_dense() if features.layout is torch.sparse_csr else features
                spread = convolution((dense if copied is None else dense[copied]).to(device))
        propagated = None if spread is None else Features(spread, segments, device)
        position = None if position is None else position.to(device)
        if copied is None:
            own = kind(features, segments, device)
        else:
            distinct = kind(features, Segments(torch.tensor([len(features)]), device), device)
            own = cast(Features, CopiedFeatures(distinct, copied.to(device)))
        inputs = Inputs(segments, own, convolution, classes, propagated, position)
        field = partial(receptive_field, self, graph, features, spread, inputs)
        scored = None if position is None or not convolved else field(torch.arange(len(position)))
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
        """One propagation of this backbone over `graph`, or among its `rows`, (r,) ascending, alone."""
        graph, weight = self.messages(graph)
        if rows is not None:
            graph, weight = restricted(graph, weight, rows)
        return partial(propagate, graph, weight=weight.to(device))

    @abstractmethod
    def convolve(self, times: Product, spread: Product) -> Tensor:
        """One convolving layer before bias, (n, width), from its input's products and these propagated."""

    def propagate(self, convolution: Convolution, h: Tensor) -> Tensor:
        """All propagations of one layer, (n, width) → (n, width)."""
        return convolution(h)

    @abstractmethod
    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        """One client's starting parameters for `width` input features, without the client axis."""

    @property
    @abstractmethod
    def head(self) -> tuple[str, ...]:
        """Names of the classifier's parameters: what FedPer keeps at home."""

    @abstractmethod
    def embed(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None) -> Tensor:
        """What the classifier reads, (n, width of the last hidden layer)."""

    @abstractmethod
    def embed_linear(self, inputs: Inputs, parameters: Weights) -> Tensor:
        """The last hidden layer before its ReLU, without dropout; (n, width)."""

    @abstractmethod
    def classify(self, inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        """Logits of the embedding, (n, C)."""

    def embed_nodes(self, inputs: Inputs, parameters: Weights) -> Tensor:
        """What the classifier reads of the nodes whose outputs are read, without dropout; (n, width)."""
        h = self.embed(inputs, parameters, None)
        return h if inputs.position is None else h.index_select(0, inputs.position)

    def forward(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """Logits, (n, C); `dropout` None evaluates."""
        if inputs.scored is not None:
            return self._through(inputs.scored, inputs, parameters, dropout)
        logits = self.classify(inputs, self.embed(inputs, parameters, dropout), parameters)
        return logits if inputs.position is None else logits.index_select(0, inputs.position)

    def _through(
        self, field: ReceptiveField, inputs: Inputs, parameters: Weights, dropout: Dropout | None
    ) -> Tensor:
        """Logits of what a part of `inputs` gives, (t, C)."""
        # The masks of all rows are drawn, so that which are needed changes no draw.
        dropout = None if dropout is None else dropout.among(field.rows, inputs.segments.rows)
        return self.forward(field.inputs, parameters, dropout)

    def forward_to_read(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """Logits, (n, C), of the rows that training reads; of the others NaN where they were not needed."""
        field = inputs.receptive_field
        if field is None:
            return self.forward(inputs, parameters, dropout)
        logits = self._through(field, inputs, parameters, dropout)
        outputs = inputs.segments.rows if inputs.position is None else len(inputs.position)
        return logits.new_full((outputs, logits.shape[1]), math.nan).index_copy_(0, field.read, logits)

    def first(self, inputs: Inputs, parameters: Weights, name: str) -> Tensor:
        """X W of the first layer, X layer-normalised where the architecture says so; (n, width)."""
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


class _Layered(Backbone):
    """Hidden layers, then a head; layer i reads `layers.i.*`, the head `head.*`."""

    layered = True

    @property
    def hops(self) -> int:
        return len(self.architecture.hidden) + (self.architecture.head == "convolution")

    @property
    def head(self) -> tuple[str, ...]:
        weights = self.weights if self.architecture.head == "convolution" else ("weight",)
        return tuple(f"head.{part}" for part in (*weights, "bias"))

    @abstractmethod
    def _start(self, inner: int, outer: int, generator: torch.Generator) -> Parameters:
        """One convolving layer's starting parameters."""

    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        parameters = self._norm(width)
        inner = width
        for index, outer in enumerate(self.architecture.hidden):
            parameters |= prefixed(f"layers.{index}", self._start(inner, outer, generator))
            inner = outer
        if self.architecture.head == "convolution":
            start = self._start(inner, classes, generator)
        else:
            start = linear_start(inner, classes, generator)
        return parameters | prefixed("head", start)

    def embed(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None) -> Tensor:
        return self._hidden(inputs, parameters, dropout, linear=self.architecture.head == "bare")

    def embed_linear(self, inputs: Inputs, parameters: Weights) -> Tensor:
        return self._hidden(inputs, parameters, None, linear=True)

    def _hidden(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None, linear: bool) -> Tensor:
        """The last hidden layer, before its ReLU if `linear`; (n, width)."""
        h, last = None, len(self.architecture.hidden) - 1
        for index in range(last + 1):
            level = inputs.levels[index] if inputs.levels else None
            summed = self._layer(inputs, level, h, parameters, f"layers.{index}")
            bias = parameters[f"layers.{index}.bias"]
            segments = inputs.segments if level is None else level.segments
            if linear and index == last:
                return add_bias(summed, bias, segments)
            if dropout is not None and level is not None:
                dropout = dropout.among(level.rows, level.count)
            h = activate(summed, bias, segments, dropout)
        if h is None:
            raise UserError(f"{self.architecture.backbone} needs at least one hidden layer")
        return h

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
        """One convolving layer before bias, of all rows or those of a level; `h` None stands for the input
        features."""

        def times(part: str) -> Tensor:
            name = f"{prefix}.{part}"
            if h is None:
                return self.first(inputs if level is None else level.own or inputs, parameters, name)
            if level is None:
                return segment_product(h, parameters[name], inputs.segments)
            return segment_product(h.index_select(0, level.place), parameters[name], level.segments)

        def spread(part: str) -> Tensor:
            name = f"{prefix}.{part}"
            if h is None and inputs.propagated is not None:
                return inputs.propagated.times(parameters[name])
            if level is None:
                return inputs.convolution(times(part))
            if h is None:
                return level.convolution(self.first(level.heard or inputs, parameters, name))
            # What is summed first has fewer rows left to multiply.
            return segment_product(level.convolution(h), parameters[name], level.segments)

        return self.convolve(times, spread)


class GCN(_Layered):
    """Graph convolution: h' = relu(Â h W + b), Kipf & Welling, ICLR 2017, eq. (2)."""

    folds = True

    def convolve(self, times: Product, spread: Product) -> Tensor:
        return spread("weight")

    def _start(self, inner: int, outer: int, generator: torch.Generator) -> Parameters:
        return {"weight": glorot((inner, outer), generator), "bias": torch.zeros(outer)}


class GraphSAGE(_Layered):
    """h' = relu(h W + mean over neighbours(h) U + b), Hamilton et al., NeurIPS 2017, algorithm 1."""

    folds = True
    weights = ("weight", "neighbour")

    def messages(self, graph: dgl.DGLGraph) -> tuple[dgl.DGLGraph, Tensor]:
        return graph, mean_weight(graph)

    def convolve(self, times: Product, spread: Product) -> Tensor:
        return times("weight") + spread("neighbour")

    def _start(self, inner: int, outer: int, generator: torch.Generator) -> Parameters:
        return linear_start(inner, outer, generator, self.weights)


class MLP(_Layered):
    """The same layers without edges: h' = relu(h W + b)."""

    hops = 0

    def convolution(
        self, graph: dgl.DGLGraph, device: torch.device | str, rows: Tensor | None = None
    ) -> Convolution:
        return lambda h: h

    def convolve(self, times: Product, spread: Product) -> Tensor:
        return times("weight")

    def _start(self, inner: int, outer: int, generator: torch.Generator) -> Parameters:
        return linear_start(inner, outer, generator)


class SGC(Backbone):
    """Simplified graph convolution: logits Â^hops X W + b, Wu et al., ICML 2019, eq. (8).

    Computed as Â^hops (X W): the propagated width is C, not d. The whole model is its classifier.
    """

    @property
    def hops(self) -> int:
        return self.architecture.hops

    def convolve(self, times: Product, spread: Product) -> Tensor:
        return spread("weight")

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

    def embed_linear(self, inputs: Inputs, parameters: Weights) -> Tensor:
        return self.embed(inputs, parameters, None)

    def classify(self, inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        return add_bias(embedding, parameters["head.bias"], inputs.segments)


BACKBONES: Mapping[str, type[Backbone]] = {"gcn": GCN, "sgc": SGC, "graphsage": GraphSAGE, "mlp": MLP}


def make_backbone(architecture: Architecture) -> Backbone:
    """The backbone of an architecture. Raises UserError for a name that none has."""
    if architecture.backbone not in BACKBONES:
        raise unknown("backbone", architecture.backbone, BACKBONES)
    return BACKBONES[architecture.backbone](architecture)
