"""FedStar: clients share a structure encoder and keep their feature encoders.

Tan et al., Federated Learning on Non-IID Graphs via Structural Knowledge Sharing, AAAI 2023. A structure
encoder reads fixed structure encodings e (one-hot degree, random-walk return probabilities); each layer of
the feature encoder also reads its output:

    s⁰ = e U₀ + c₀,    sˡ⁺¹ = tanh(Â sˡ Uˡ⁺¹ + cˡ⁺¹)
    hˡ⁺¹ = relu(conv([hˡ ‖ sˡ] Wˡ) + bˡ),    logits = [h^L ‖ s^L] W + b

Only the U and c are averaged. SGC, which has a single layer, reads the last s.

Departures: the paper classifies whole graphs with GIN layers after a linear map of the features. Here the
backbone convolves (FedSpray's Table 2 has all three), its first layer reads the features, without pooling.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.limits import Count, tunable
from fedsub.methods.core.base import Options, register
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.inputs import Convolution, Inputs
from fedsub.methods.stacked.parameters import Parameters, glorot, linear_start, prefixed, stack
from fedsub.methods.stacked.propagation import return_probabilities
from fedsub.methods.stacked.segments import aligned, segment_product


@dataclass(frozen=True)
class FedStarOptions(Options):
    degrees: Count = tunable(16, choices=(8, 16, 32))
    """Length of the one-hot degree encoding; higher degrees count as this one."""
    steps: Count = tunable(16, choices=(8, 16, 32))
    """Length of the longest random walk whose return probability is encoded."""
    width: Count = tunable(64, choices=(32, 64, 128))
    """Width of the structure encoder."""


@register(
    "fedstar",
    title="FedStar",
    paper="Tan et al. 2023",
    options=FedStarOptions,
    backbones=("gcn", "sgc", "graphsage", "mlp"),
    lacks=("norm", "residual"),
)
class FedStar(FedAvg):
    """Averages only the structure encoder. A client coming back has the newest one; the rest is its own."""

    labelled_outputs_only = False
    options: FedStarOptions
    encoding: Tensor
    """[e ‖ 1 ‖ 0 …], (n, inner), padded to a width of fast products."""
    smooth_encoding: Tensor
    """Â times `encoding`, (n, inner)."""
    smooth: Convolution
    """Multiplication by Â."""

    def make_inputs(self) -> Inputs:
        """The backbone's inputs. Sets `encoding` too, from e = [one-hot degree ‖ return probabilities],
        (n, degrees + steps): degrees above `degrees` count as `degrees`, an isolated node's row is zero."""
        options, graph = self.options, self.federation.graph
        degree = graph.in_degrees().clamp(max=options.degrees)
        one_hot = functional.one_hot(degree, options.degrees + 1)[:, 1:].float()
        walks = return_probabilities(graph, self.federation.sizes, options.steps)
        encoding = torch.cat([one_hot, walks, torch.ones_like(walks[:, :1])], dim=1).to(self.device)
        self.encoding = functional.pad(encoding, (0, aligned(encoding.shape[1]) - encoding.shape[1]))
        self.smooth = normalised_adjacency(graph, self.device)
        self.smooth_encoding = self.smooth(self.encoding)
        return super().make_inputs()

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Widths of the feature encoder's hidden layers; SGC has none."""
        return () if self.architecture.backbone == "sgc" else self.architecture.hidden

    def shared(self) -> list[str]:
        return [name for name in self.parameters if name.startswith("structure.")]

    def initial_parameters(self) -> Parameters:
        inner, width, generator = self.federation.width, self.options.width, self.generator
        encoded = self.options.degrees + self.options.steps
        norm = {"gain": torch.ones(inner), "bias": torch.zeros(inner)} if self.architecture.input_norm else {}
        start = prefixed("norm", norm) | prefixed("structure.0", linear_start(encoded, width, generator))
        for index in range(self.structure_layers()):
            start[f"structure.{index + 1}.weight"] = glorot((width, width), generator)
            start[f"structure.{index + 1}.bias"] = torch.zeros(width)
        for index, outer in enumerate(self.layer_widths):
            start |= self._layer_start(f"layers.{index}", inner, outer, True)
            inner = outer
        start |= self._layer_start("head", inner, self.task.width, self.head_convolves)
        return stack(start, self.federation.clients, self.device)

    def structure_layers(self) -> int:
        """Number of the structure encoder's convolutions: as in the feature encoder, SGC's hops included."""
        return len(self.layer_widths) or self.architecture.hops

    @property
    def head_convolves(self) -> bool:
        """Whether the classifier is a convolution, as SGC's only layer is."""
        return self.architecture.head == "convolution" or self.architecture.backbone == "sgc"

    def _layer_start(self, prefix: str, inner: int, outer: int, convolves: bool) -> Parameters:
        start: Parameters = {f"{prefix}.bias": torch.zeros(outer)}
        for part in self.backbone.weights if convolves else ("weight",):
            weight = glorot((inner + self.options.width, outer), self.generator)
            # Two blocks of one matrix, since features may be sparse and the structure is dense.
            start[f"{prefix}.{part}"] = weight[:inner].clone()
            start[f"{prefix}.{part}.structure"] = weight[inner:].clone()
        return start

    def logits(self, dropout: Dropout | None) -> Tensor:
        structure, segments = self._structure(), self.inputs.segments
        # The last h is None with SGC, which has no hidden layer.
        h: Tensor | None = None
        for index in range(len(self.layer_widths)):
            summed = self._convolve(h, structure[index], f"layers.{index}")
            h = activate(summed, self.parameters[f"layers.{index}.bias"], segments, dropout)
        head, last = (self._convolve, "head") if self.head_convolves else (self._times, "head.weight")
        return add_bias(head(h, structure[-1], last), self.parameters["head.bias"], segments)

    def _structure(self) -> list[Tensor]:
        """s⁰ … s^L, (n, width) each; in place of s⁰ the list has `encoding`."""
        states, segments = [self.encoding], self.inputs.segments
        for index in range(1, self.structure_layers() + 1):
            weight, bias = (self.parameters[f"structure.{index}.{part}"] for part in ("weight", "bias"))
            if index == 1:
                # Linear up to the first tanh: Â s⁰ U¹ = (Â [e ‖ 1]) ([U₀ ; c₀] U¹) needs no propagation.
                summed = segment_product(self.smooth_encoding, self._from_encoding(weight), segments)
            else:
                summed = self.smooth(segment_product(states[-1], weight, segments))
            states.append(add_bias(summed, bias, segments).tanh())
        return states

    def _from_encoding(self, weight: Tensor) -> Tensor:
        """The matrix M, (K, inner, outer), with `encoding` M = s⁰ W for W (K, width, outer)."""
        start = [self.parameters["structure.0.weight"], self.parameters["structure.0.bias"].unsqueeze(1)]
        product = torch.cat(start, dim=1) @ weight
        return functional.pad(product, (0, 0, 0, self.encoding.shape[1] - product.shape[1]))

    def _times(self, h: Tensor | None, structure: Tensor, name: str) -> Tensor:
        """[h ‖ s] W; `h` None means the input features."""
        segments, weight = self.inputs.segments, self.parameters[f"{name}.structure"]
        if h is None:
            product = self.backbone.first(self.inputs, self.parameters, name)
        else:
            product = segment_product(h, self.parameters[name], segments)
        if structure is self.encoding:
            weight = self._from_encoding(weight)
        return product + segment_product(structure, weight, segments)

    def _convolve(self, h: Tensor | None, structure: Tensor, prefix: str) -> Tensor:
        """The backbone's convolution of [h ‖ s] W, before bias."""

        def times(part: str) -> Tensor:
            return self._times(h, structure, f"{prefix}.{part}")

        def spread(part: str) -> Tensor:
            return self.backbone.propagate(self.inputs.convolution, times(part))

        return self.backbone.convolve(times, spread)
