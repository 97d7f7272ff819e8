"""FedTAD's class-wise knowledge reliability: how far a client is to be trusted on each class."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy
from fedsub.methods.stacked.walks import return_probabilities

STEPS = 5
"""Longest walk."""


def class_reliability(federation: Federation, classes: int, by: str) -> Tensor:
    """For each client and class a sum over the client's training nodes of the class, (K, C) float32, of

        (1 + Σ_{u ∈ N(v)} cos(f_v, f_u)) / (|N(v)| + 1),    f_v = [x_v ‖ t_v]

    if `by` is `walk`, where t_v are the chances that a walk from v is back after 1…5 steps; of 1 if it is
    `count`. A row of zeros has cosine 0 with every other.
    """
    train = federation.train.nonzero().squeeze(1)
    if by == "count":
        reliability = torch.ones(len(train))
    else:
        walk = return_probabilities(federation.graph, federation.sizes, STEPS)
        parts = as_scipy(federation.features), sp.csr_matrix(walk.numpy())
        embedding = sp.hstack(parts, format="csr")
        reliability = neighbour_likeness(federation, embedding)[train]
    cell = federation.client[train] * classes + federation.labels[train]
    total = torch.zeros(federation.clients * classes).index_add(0, cell, reliability)
    return total.view(federation.clients, classes)


def neighbour_likeness(federation: Federation, embedding: sp.csr_matrix) -> Tensor:
    """(1 + Σ_{u ∈ N(v)} cos(f_v, f_u)) / (|N(v)| + 1) for every node; `embedding` (n, width) → (n,)."""
    length = np.sqrt(np.asarray(embedding.multiply(embedding).sum(axis=1)).ravel())
    unit = sp.diags(1 / np.maximum(length, 1e-8)) @ embedding
    source, target = federation.graph.edges()
    cosines = np.asarray(unit[source.numpy()].multiply(unit[target.numpy()]).sum(axis=1)).ravel()
    total = torch.ones(federation.nodes).index_add(0, target, torch.from_numpy(cosines).float())
    return total / (federation.graph.in_degrees() + 1)


def shares(reliability: Tensor, over: str) -> Tensor:
    """Reliabilities (K, C) as shares that sum to one over the clients for each class, or over the classes for
    each client; 0 where a sum is 0."""
    total = reliability.sum(dim=0 if over == "clients" else 1, keepdim=True)
    return torch.where(total > 0, reliability / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)
