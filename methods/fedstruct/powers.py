"""FedStruct's Ā = Â^L as a product, and which nodes have self-loops in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedsub.datasets.federation import Federation


def power(h: Tensor, spread: Callable[[Tensor], Tensor], hops: int) -> Tensor:
    """Â^hops h without ever forming Â^hops; (m, width) → (m, width). `spread` multiplies by Â."""
    for _ in range(hops):
        h = spread(h)
    return h


def behind_last_edge(federation: Federation) -> Tensor:
    """Nodes that come after their client's last node with an edge in the client's own graph, (n,) bool."""
    connected = (federation.graph.in_degrees() > 0).nonzero().squeeze(1)
    last = torch.full((federation.clients,), -1)
    last.scatter_reduce_(0, federation.client[connected], connected, "amax")
    return torch.arange(federation.nodes) > last[federation.client]
