"""FedStar's structure encoding: what a node's surroundings look like, whatever its features are."""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.walks import return_probabilities


def structure_encoding(graph: dgl.DGLGraph, sizes: Tensor, degrees: int, steps: int) -> Tensor:
    """[one-hot degree ‖ return probabilities] of every node, (n, degrees + steps) float32.

    `graph` is block-diagonal with `sizes` ((K,)) nodes a client. Degrees above `degrees` count as
    `degrees`; an isolated node's row is zero.
    Tan et al., Federated Learning on Non-IID Graphs via Structural Knowledge Sharing, AAAI 2023,
    section "Structure embedding initialization".
    """
    degree = graph.in_degrees().clamp(max=degrees)
    one_hot = functional.one_hot(degree, degrees + 1)[:, 1:].float()
    return torch.cat([one_hot, return_probabilities(graph, sizes, steps)], dim=1)
