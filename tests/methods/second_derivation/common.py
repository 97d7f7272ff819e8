"""What the second derivations stand on: real partitions, and how two sets of parameters are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from datasets.federation import Federation, federate
from datasets.graph import Dataset
from datasets.partition import partition
from datasets.registry import load
from datasets.splits import make_split
from methods.core import registry
from methods.core.base import Architecture, FederatedMethod, Schedule
from methods.core.setting import make_setting
from methods.stacked.backbones import Parameters

TOLERANCE = 1e-5
SPLIT = "ratio[train=0.3,validation=0.3,test=0.4]"
COMMUNITY = "community[nodes=300,features=60,communities=8]"
FLOAT = 4
"""Bytes of a number that is sent."""


def divided(dataset: Dataset | str, clients: int, scheme: str = "metis") -> Federation:
    """A graph among `clients` clients."""
    graph = load(dataset) if isinstance(dataset, str) else dataset
    parts = partition(graph, scheme, clients, 0)
    return federate(graph, parts, make_split(graph.labels.numpy(), parts, SPLIT, 0, graph.classes))


def built(
    name: str,
    options: Mapping[str, Any],
    federation: Federation,
    backbone: str = "gcn",
    hidden: tuple[int, ...] = (16, 12),
    **schedule: Any,
) -> FederatedMethod:
    """The stacked method, built, without dropout."""
    architecture = Architecture(backbone=backbone, hidden=hidden, dropout=0.0)
    method = registry.create(name, options, make_setting(federation, architecture, Schedule(**schedule)))
    method.build()
    return method


def play(method: FederatedMethod, number: int) -> Parameters:
    """One round of a built method: local epochs, exchange; what the clients then hold."""
    method.train_round(number)
    method.exchange(number)
    return copied(method.parameters)


def copied(parameters: Mapping[str, Tensor]) -> Parameters:
    """Stacked parameters as they stand, (K, …) each."""
    return {name: value.detach().clone() for name, value in parameters.items()}


def leaves(stacked: Mapping[str, Tensor], client: int) -> Parameters:
    """One client's own parameters to train."""
    return {name: value[client].clone().requires_grad_() for name, value in stacked.items()}


def gap(stacked: Mapping[str, Tensor], models: Sequence[Mapping[str, Tensor]]) -> float:
    """Largest absolute difference between stacked parameters and the clients' own."""
    return max(
        float((value[client] - model[name]).detach().abs().max())
        for name, value in stacked.items()
        for client, model in enumerate(models)
    )


def floats(model: Mapping[str, Tensor]) -> int:
    """Numbers in one client's parameters."""
    return sum(value.numel() for value in model.values())


def adam(model: Mapping[str, Tensor], learning_rate: float, weight_decay: float) -> torch.optim.Adam:
    """One client's optimiser."""
    return torch.optim.Adam(list(model.values()), lr=learning_rate, weight_decay=weight_decay)
