"""The oracle: every client trained by itself in a plain Python loop, with torch's own layers.

Slow and obvious on purpose; the stacked program must give the same parameters.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters


def client_parts(federation: Federation) -> list[dict[str, Tensor]]:
    """Dense features, adjacency, labels and training mask of each client."""
    source, target = federation.graph.edges()
    parts = []
    features = federation.features
    dense = features.to_dense() if features.layout is torch.sparse_csr else features
    for client in range(federation.clients):
        nodes = (federation.client == client).nonzero().squeeze(1)
        first, size = int(nodes[0]), len(nodes)
        mine = (source >= first) & (source < first + size)
        adjacency = torch.zeros(size, size)
        adjacency[target[mine] - first, source[mine] - first] = 1
        parts.append(
            {
                "features": dense[nodes],
                "adjacency": adjacency,
                "labels": federation.labels[nodes],
                "train": federation.train[nodes],
            }
        )
    return parts


def _convolution(part: dict[str, Tensor], backbone: str) -> Tensor:
    adjacency = part["adjacency"]
    if backbone == "graphsage":
        return adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    looped = adjacency + torch.eye(len(adjacency))
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale[None, :]


def forward(part: dict[str, Tensor], weights: Parameters, backbone: str) -> Tensor:
    """Logits of one client, no dropout; two hidden layers and a linear head (sgc: two hops, linear)."""
    h = part["features"]
    if backbone == "sgc":
        convolution = _convolution(part, backbone)
        return convolution @ convolution @ h @ weights["head.weight"] + weights["head.bias"]
    for index in range(2):
        product = h @ weights[f"layers.{index}.weight"]
        if backbone == "gcn":
            product = _convolution(part, backbone) @ product
        if backbone == "graphsage":
            product = product + _convolution(part, backbone) @ h @ weights[f"layers.{index}.neighbour"]
        h = functional.relu(product + weights[f"layers.{index}.bias"])
    return h @ weights["head.weight"] + weights["head.bias"]
