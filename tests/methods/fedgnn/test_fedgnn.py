"""FedGNN's arrivals on a toy graph, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits import Split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedgnn import augmentation as fedgnn_augmentation
from fedsub.methods.fedgnn.augmentation import Augmentation, by_neighbourhood, by_similarity


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


def _pairs(found: Augmentation) -> set[tuple[int, int, int]]:
    """(receiving client, node copied, local end) of every edge."""
    return {
        (int(found.client[a]), int(found.node[a]), int(v))
        for a, v in zip(found.arrival, found.local, strict=True)
    }


FEATURES = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("chunk", [6, 2**24])
def test_similar_nodes_arrive(sparse: bool, chunk: int, monkeypatch: pytest.MonkeyPatch):
    """Nodes 0, 1, 2 at one client, 3, 4, 5 at the other: 3 is like 0 and 1, 4 is like 1."""
    monkeypatch.setattr(fedgnn_augmentation, "CHUNK_ENTRIES", chunk)
    federation = _toy([(0, 1), (3, 4)], [[0, 1, 2], [3, 4, 5]], FEATURES, sparse)
    found = by_similarity(federation, 0.5, 0)
    assert _pairs(found) == {(0, 3, 0), (0, 3, 1), (0, 4, 1), (1, 0, 3), (1, 1, 3), (1, 1, 4)}
    assert list(zip(found.client, found.node, strict=True)) == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert _pairs(by_similarity(federation, 0.8, 0)) == {(0, 3, 0), (1, 0, 3)}
    limited = _pairs(by_similarity(federation, 0.5, 1))
    assert {edge for edge in limited if edge[2] in (0, 3, 4)} == {(0, 3, 0), (1, 0, 3), (1, 1, 4)}
    assert len(limited) == 4


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
