"""AdaFGL's homophily confidence score: how far labels alone foretell a client's other labels."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.core.tasks import NodeClassification
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.propagation import spread_labels
from fedsub.methods.stacked.segments import ranks

STEPS = 10
SPREAD = 0.5
"""κ, the neighbours' share in a step."""


def homophily(
    federation: Federation, task: NodeClassification, generator: torch.Generator, device: torch.device
) -> Tensor:
    """Each client's accuracy on half of its training nodes of labels spread from the other half, (K,) in
    [0, 1]; 0 for a client without training nodes.

    The smaller half, drawn by `generator`, are seeds S; Y⁰ is one-hot on S, 1/C elsewhere. Ten times:
    Y ← κ Â Y + (1 − κ) Y⁰, then Y[S] += Y⁰[S].
    """
    seed, held_out = halves(task, generator)
    rows = task.train[seed]
    labels = functional.one_hot(task.train_labels[seed], task.width).float()
    start = torch.full((federation.nodes, task.width), 1 / task.width, device=device)
    start = start.index_copy(0, rows, labels)
    convolution = normalised_adjacency(federation.graph, device)
    spread = spread_labels(convolution, start, rows, labels, STEPS, SPREAD)
    right = spread[task.train[held_out]].argmax(dim=1) == task.train_labels[held_out]
    client = task.client[task.train[held_out]]
    count = torch.bincount(client, minlength=federation.clients)
    total = torch.bincount(client, weights=right.float(), minlength=federation.clients)
    return (total / count.clamp(min=1)).float()


def halves(task: NodeClassification, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Places among the training nodes of the seeds and of the others: of every client's nodes, in the order
    of one random permutation of all, the first ⌊m_k / 2⌋ are seeds."""
    order = torch.randperm(len(task.train), generator=generator).to(task.train.device)
    client = task.client[task.train[order]]
    client, grouped = client.sort(stable=True)
    count = task.train_count.to(client.device)
    is_seed = ranks(count) < count[client] // 2
    chosen = order[grouped]
    return chosen[is_seed], chosen[~is_seed]
