"""FedGNN without an edge between clients, and what arrivals cost."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits import Split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedgnn.augmentation import by_neighbourhood


def _toy(
    edges: list[tuple[int, int]], parts: list[list[int]], features: np.ndarray, sparse: bool
) -> Federation:
    source, target = zip(*edges, strict=True)
    labels = np.arange(len(features)) % 2
    matrix = sp.csr_matrix(features) if sparse else features
    dataset = build_dataset("toy", np.array(source), np.array(target), matrix, labels)
    partition = Partition("toy", tuple(np.array(part) for part in parts))
    copies = len(partition.origin)
    roles = np.arange(copies) % 2 == 0
    return federate(dataset, partition, Split("toy", roles, ~roles, ~roles))


def test_neighbourhood_without_edges():
    federation = _toy([(0, 1)], [[0, 2], [1, 2]], np.eye(3, dtype=np.float32), True)
    assert len(by_neighbourhood(federation).node) == 0


def _setting(federation: Federation) -> Setting:
    return make_setting(federation, Architecture(hidden=(8,)), Schedule(rounds=3))


def test_features_are_counted_once():
    features = np.ones((4, 3), dtype=np.float32)
    federation = _toy([(0, 1), (2, 3)], [[0, 1], [2, 3]], features, False)
    method = registry.create("fedgnn", {}, _setting(federation))
    outcome = train(method)
    model = 4 * sum(value.numel() for value in method.parameters.values())
    paper = 100 * (1 + 4 * 3 * 4 / (2 * model))
    assert outcome.extras == {"added_nodes": 4.0, "added_edges": 8.0, "paper_communication_pct": paper}
    assert outcome.bytes["once"] == 4 * 3 * (4 + 4) + 16 * 8
