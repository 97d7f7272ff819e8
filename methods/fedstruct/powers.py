"""FedStruct's Ā = Σ_l β_l Â^l as a product, and which nodes have self-loops in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation


def hop_weights(kind: str, hops: int) -> np.ndarray:
    """β_1…β_hops, (hops,): `last` puts 1 on the last power, as the reference code does; `all` is even."""
    weights = np.full(hops, 1 / hops) if kind == "all" else np.eye(hops)[-1]
    return weights.astype(np.float32)


def combined(h: Tensor, spread: Callable[[Tensor], Tensor], weights: np.ndarray) -> Tensor:
    """Σ_l β_l Â^l h without ever forming Â^l; (m, width) → (m, width). `spread` multiplies by Â."""
    total = None
    for weight in weights:
        h = spread(h)
        if weight:
            term = h if weight == 1 else h * float(weight)
            total = term if total is None else total + term
    return h if total is None else total


def behind_last_edge(federation: Federation) -> Tensor:
    """Nodes that come after their client's last node with an edge in the client's own graph, (n,) bool."""
    connected = (federation.graph.in_degrees() > 0).nonzero().squeeze(1)
    last = torch.full((federation.clients,), -1)
    last.scatter_reduce_(0, federation.client[connected], connected, "amax")
    return torch.arange(federation.nodes) > last[federation.client]
