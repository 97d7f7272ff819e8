"""FED-PUB's averaging weights from similarities between clients, and their correlation with the labels'."""

import math

import torch
from torch import Tensor

COMMUNITY = 0.5
"""Similarity above which two clients form an explicit community (Baek et al., appendix C.8)."""


def mixing_matrix(similarity: Tensor, tau: float, explicit: bool, present: Tensor | None = None) -> Tensor:
    """α of eq. (3), rows softmax(τ S); (K, K) float32. `explicit` leaves out clients outside the community,
    never the client itself. Clients not `present`, (K,) bool, have weight 0; None: all are present."""
    logits = tau * similarity
    if explicit:
        own = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
        logits = logits.masked_fill((similarity <= COMMUNITY) & ~own, -torch.inf)
    matrix = logits.softmax(dim=1).float()
    if present is None:
        return matrix
    matrix = matrix * present
    return matrix / matrix.sum(dim=1, keepdim=True).clamp(min=torch.finfo(matrix.dtype).tiny)


def class_shares(labels: Tensor, client: Tensor, clients: int, classes: int) -> Tensor:
    """Share of each class at each client, (K, C) float64; `labels` and `client` are (n,); nodes without a
    label, -1, do not count."""
    counts = torch.bincount((client * classes + labels)[labels >= 0], minlength=clients * classes)
    counts = counts.view(clients, classes).double()
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=1)


def label_similarity(shares: Tensor) -> Tensor:
    """1 − Jensen–Shannon divergence in bits between rows of (K, C), the paper's measure of
    heterogeneity (its Table 4); (K, K) in [0, 1]."""
    middle = (shares.unsqueeze(0) + shares.unsqueeze(1)) / 2
    entropy = _entropy(shares)
    return 1 - (_entropy(middle) - (entropy.unsqueeze(0) + entropy.unsqueeze(1)) / 2)


def _entropy(shares: Tensor) -> Tensor:
    """Entropy in bits over the last axis."""
    return -torch.special.xlogy(shares, shares).sum(dim=-1) / math.log(2)


def correlation(first: Tensor, second: Tensor) -> float:
    """Pearson's correlation of two (K, K) matrices over the pairs of different clients; NaN for K < 3, and if
    all pairs of one matrix are equal."""
    clients = len(first)
    if clients < 3:
        return float("nan")
    row, column = torch.triu_indices(clients, clients, 1, device=first.device)
    return float(torch.corrcoef(torch.stack([first[row, column], second[row, column]]))[0, 1])
