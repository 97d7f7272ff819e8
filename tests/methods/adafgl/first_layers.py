"""The weights of the first layers, which AdaFGL's stacked program keeps side by side."""

from __future__ import annotations

import torch
from torch import Tensor

READS_POWERS = ("homophilous", "smoothed", "messages")


def first_layer(side_by_side: Tensor, net: str, hops: int = 3) -> Tensor:
    """One client's weight of a network, ((hops + 1) · d, width), or (d, width) of the one that reads X."""
    width = side_by_side.shape[1] // (len(READS_POWERS) * (hops + 1) + 1)
    columns = side_by_side.split(width, dim=1)
    if net == "features":
        return columns[-1]
    return torch.cat(columns[READS_POWERS.index(net) : -1 : len(READS_POWERS)])
