"""FedTAD's pseudo graphs: nodes with generated features, each joined to its most similar nodes."""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.backbones import Backbone
from fedsub.methods.stacked.features import SharedFeatures
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Parameters, Weights, linear_start, prefixed
from fedsub.methods.stacked.propagation import use_kernel

HIDDEN = (64, 128, 256)
"""Widths of the generator's hidden layers."""


def generator_start(noise: int, classes: int, width: int, generator: torch.Generator) -> Parameters:
    """Initial parameters of a generator of `width` features; class embeddings are drawn from N(0, 1)."""
    parameters = {"embedding": torch.randn(classes, classes, generator=generator)}
    inner = noise + classes
    for index, outer in enumerate((*HIDDEN, width)):
        parameters |= prefixed(f"layers.{index}", linear_start(inner, outer, generator))
        inner = outer
    return parameters


def generate(parameters: Parameters, noise: Tensor, labels: Tensor) -> Tensor:
    """Generated features of nodes, (m, d), from their `noise` (m, ·) and `labels` (m,)."""
    h = torch.cat([parameters["embedding"][labels], noise], dim=1)
    for index in range(len(HIDDEN) + 1):
        h = h @ parameters[f"layers.{index}.weight"] + parameters[f"layers.{index}.bias"]
        h = torch.tanh(h) if index < len(HIDDEN) else h
    return h


def balanced_labels(nodes: int, classes: int) -> Tensor:
    """Labels with equally many nodes of each class, the remainder in the last class; (nodes,) int64."""
    return (torch.arange(nodes) // max(nodes // classes, 1)).clamp(max=classes - 1)


def manhattan(features: Tensor) -> Tensor:
    """‖x_i − x_j‖₁ for all pairs of rows, (m, d) → (m, m); `torch.cdist` would compute all of them twice."""
    first, second = torch.triu_indices(len(features), len(features), offset=1, device=features.device)
    distance = features.new_zeros(len(features), len(features))
    distance[first, second] = torch.pdist(features, p=1)
    return distance + distance.T


def nearest_graph(features: Tensor, neighbours: int, kernel: str) -> dgl.DGLGraph:
    """Graph that joins each node to its `neighbours` nearest by cosine, itself counted; edges in both
    directions, no self-loops. `features` is (m, d)."""
    unit = functional.normalize(features.detach(), dim=1)
    nearest = (unit @ unit.T).topk(min(neighbours, len(unit)), dim=1).indices
    joined = torch.zeros(len(unit), len(unit), dtype=torch.bool, device=unit.device)
    joined.scatter_(1, nearest, True)
    joined = (joined | joined.T).fill_diagonal_(False)
    source, target = joined.nonzero(as_tuple=True)
    return use_kernel(dgl.graph((source.cpu(), target.cpu()), num_nodes=len(unit)), kernel)


class PseudoGraph:
    """m generated nodes, and the networks' propagation over their edges."""

    def __init__(
        self, features: Tensor, neighbours: int, backbone: Backbone, classes: int, kernel: str
    ) -> None:
        """`features` are (m, d); edges are those of `nearest_graph`."""
        self.features, self.backbone, self.classes = features, backbone, classes
        graph = nearest_graph(features, neighbours, kernel)
        self.convolution = backbone.convolution(graph, features.device)

    def outputs(self, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """Logits of R networks, (R, m, C); parameters are (R, …). `dropout` None means evaluation."""
        networks, features = len(next(iter(parameters.values()))), self.features
        if self.backbone.architecture.input_norm:
            features = functional.layer_norm(features, features.shape[1:])
        shared = SharedFeatures(features, networks, features.device)

        def convolve(h: Tensor) -> Tensor:
            """One propagation for all networks at once; (R·m, width) → (R·m, width)."""
            width = h.shape[1]
            wide = h.view(networks, -1, width).transpose(0, 1).reshape(-1, networks * width)
            return self.convolution(wide).view(-1, networks, width).transpose(0, 1).reshape(-1, width)

        inputs = Inputs(shared.segments, shared, convolve, self.classes)
        return self.backbone.forward(inputs, parameters, dropout).view(networks, len(features), -1)
