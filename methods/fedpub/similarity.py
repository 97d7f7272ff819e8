"""FED-PUB's averaging weights from similarities between clients, and their correlation with the labels'."""

import math

import torch
from torch import Tensor

from fedsub.datasets.federation import Federation

COMMUNITY = 0.5
"""Similarity above which two clients form an explicit community (Baek et al., appendix C.8)."""


def mixing_matrix(similarity: Tensor, tau: float, explicit: bool, present: Tensor | None = None) -> Tensor:
    """α of eq. (3), rows softmax(τ S); (K, K) float32. `explicit` leaves out clients outside the community,
    never the client itself. Clients not `present`, (K,) bool, have weight 0; None: all are present."""
    logits = tau * similarity
    if explicit:
        logits = logits.masked_fill((similarity <= COMMUNITY).fill_diagonal_(False), -torch.inf)
    matrix = logits.softmax(dim=1).float()
    if present is None:
        return matrix
    matrix = matrix * present
    return matrix / matrix.sum(dim=1, keepdim=True).clamp(min=torch.finfo(matrix.dtype).tiny)


def label_similarity(federation: Federation) -> tuple[Tensor, Tensor]:
    """Shares of the classes among each client's labels, (K, C) float64, and 1 − the Jensen–Shannon divergence
    in bits between clients, the paper's measure of heterogeneity (its Table 4), (K, K) in [0, 1]."""
    clients, classes, labels = federation.clients, federation.classes, federation.labels
    known = (federation.client * classes + labels)[labels >= 0]
    counts = torch.bincount(known, minlength=clients * classes).view(clients, classes).double()
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    middle = (shares.unsqueeze(0) + shares.unsqueeze(1)) / 2
    entropy, mixed = (torch.special.entr(each).sum(dim=-1) / math.log(2) for each in (shares, middle))
    return shares, 1 - (mixed - (entropy.unsqueeze(0) + entropy.unsqueeze(1)) / 2)


def correlation(first: Tensor, second: Tensor) -> float:
    """Pearson's correlation of two (K, K) matrices over the pairs of different clients; NaN for K < 3, and if
    all pairs of one matrix are equal."""
    if len(first) < 3:
        return float("nan")
    row, column = torch.triu_indices(len(first), len(first), 1, device=first.device)
    return float(torch.corrcoef(torch.stack([first[row, column], second[row, column]]))[0, 1])
