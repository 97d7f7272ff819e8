"""The oracle: every client trained by itself in a plain Python loop, with torch's own layers.

Slow and obvious on purpose; the stacked program must give the same parameters.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.parameters import Parameters


def client_parts(federation: Federation) -> list[dict[str, Tensor]]:
    """Dense features, adjacency, labels and training mask of each client."""
    source, target = federation.graph.edges()
    parts = []
    dense = federation.features.to_dense()
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


def attention(h: Tensor, looped: Tensor, sent: Tensor, heard: Tensor) -> Tensor:
    """A plain loop over nodes and heads; `sent` and `heard` (heads, width), `h` (n, heads · width)."""
    rows = h.view(len(h), *sent.shape)
    out = []
    for v in range(len(h)):
        near = looped[v].nonzero().squeeze(1)
        for head in range(len(sent)):
            score = rows[near, head] @ sent[head] + rows[v, head] @ heard[head]
            share = torch.where(score > 0, score, 0.2 * score).softmax(dim=0)
            out.append(share @ rows[near, head])
    return torch.cat(out).view(len(h), -1)


def formula(part: dict[str, Tensor], weights: Parameters, architecture: Architecture) -> Tensor:
    """Logits of one client from its dense features and adjacency matrix."""
    h, adjacency = part["features"], part["adjacency"]
    if architecture.input_norm:
        h = functional.layer_norm(h, h.shape[1:], weights["norm.gain"], weights["norm.bias"])
    looped = adjacency + torch.eye(len(adjacency))
    scale = looped.sum(dim=1).rsqrt()
    normalised = scale[:, None] * looped * scale[None, :]
    mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)

    def layer(h: Tensor, name: str) -> Tensor:
        product = h @ weights[f"{name}.weight"]
        if architecture.backbone == "gcn":
            product = normalised @ product
        if architecture.backbone == "gat":
            product = attention(product, looped, weights[f"{name}.sent"], weights[f"{name}.heard"])
        if architecture.backbone == "graphsage":
            product = product + mean @ h @ weights[f"{name}.neighbour"]
        return product + weights[f"{name}.bias"]

    if architecture.backbone == "sgc":
        h = torch.linalg.matrix_power(normalised, architecture.hops) @ h
    else:
        for index in range(len(architecture.hidden)):
            name, before = f"layers.{index}", h
            h = layer(h, name)
            if architecture.residual and architecture.backbone in ("gcn", "gat"):
                h = h + before @ weights[f"{name}.residual"]
            if architecture.norm == "layer":
                h = functional.layer_norm(h, h.shape[1:], weights[f"{name}.gain"], weights[f"{name}.shift"])
            if architecture.head != "bare" or index < len(architecture.hidden) - 1:
                h = h.relu()
        if architecture.head == "convolution" and architecture.backbone != "gprgnn":
            return layer(h, "head")
    logits = h @ weights["head.weight"] + weights["head.bias"]
    if architecture.backbone == "gprgnn":
        powers = (torch.linalg.matrix_power(normalised, hop) for hop in range(architecture.gpr_hops + 1))
        logits = sum(g * power @ logits for g, power in zip(weights["head.pagerank"], powers, strict=True))
    return logits


def forward(part: dict[str, Tensor], weights: Parameters, backbone: str) -> Tensor:
    """Logits of one client, no dropout; two hidden layers and a linear head (sgc: two hops, linear)."""
    return formula(part, weights, Architecture(backbone))
