"""FedGNN: both augmentation rules on toys, then FedAvg on the grown graphs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.graph import build_dataset
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits import Split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedgnn import FedGNN
from fedsub.methods.fedgnn import augmentation as fedgnn_augmentation
from fedsub.methods.fedgnn.augmentation import Augmentation, by_neighbourhood, by_similarity
from fedsub.methods.stacked.growth import grow
from tests.methods.federations import small_federation


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


def test_similar_nodes_already_held_do_not_arrive():
    federation = _toy([(0, 1), (1, 2)], [[0, 1], [1, 2]], np.ones((3, 2), dtype=np.float32), False)
    assert _pairs(by_similarity(federation, 0.5, 0)) == {(0, 3, 0), (0, 3, 1), (1, 0, 2), (1, 0, 3)}


def test_same_neighbourhood_arrives():
    """Node 1 at the first client and node 2 at the second both have the neighbours 0 and 3; node 4
    there has only 0, and so has 5 at the third client, where 0 is."""
    edges = [(0, 1), (1, 3), (0, 2), (2, 3), (0, 4), (0, 5)]
    parts = [[0, 1, 3], [0, 2, 3, 4], [0, 5], [2, 5]]
    federation = _toy(edges, parts, np.eye(6, dtype=np.float32), True)
    found = by_neighbourhood(federation)
    # Rows: client 0 holds 0–2, client 1 rows 3–6, client 2 rows 7–8, client 3 (no edges) 9–10.
    assert _pairs(found) == {(0, 4, 0), (0, 4, 2), (1, 1, 3), (1, 1, 5), (1, 8, 3), (2, 6, 7)}


def test_neighbourhood_without_edges():
    federation = _toy([(0, 1)], [[0, 2], [1, 2]], np.eye(3, dtype=np.float32), True)
    assert len(by_neighbourhood(federation).node) == 0


def test_grown_graph_is_block_diagonal():
    federation = _toy([(0, 1), (3, 4)], [[0, 1, 2], [3, 4, 5]], FEATURES, True)
    added = by_similarity(federation, 0.5, 0)
    node, *ends = (torch.from_numpy(each) for each in (added.node, added.arrival, added.local))
    grown = grow(federation.graph, federation.sizes, len(node), (ends[0], ends[1]))
    assert grown.client.tolist() == added.client.tolist()
    assert grown.sizes.tolist() == [5, 5]
    assert grown.rows(node).tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 0, 1]
    assert grown.position.tolist() == [0, 1, 2, 5, 6, 7]
    source, target = grown.graph.edges()
    assert torch.equal(source < 5, target < 5)
    joined = {(int(u), int(v)) for u, v in zip(source, target, strict=True) if u < v}
    assert joined == {(0, 1), (5, 6), (0, 3), (1, 3), (1, 4), (5, 8), (5, 9), (6, 9)}
    assert grown.graph.num_edges() == 16


def _setting(federation: Federation) -> Setting:
    return make_setting(federation, Architecture(hidden=(8,)), Schedule(rounds=3))


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
def test_predictions_are_of_the_clients_own_nodes(backbone: str):
    federation = small_federation(clients=4)
    setting = make_setting(federation, Architecture(backbone=backbone, hidden=(8,)), Schedule(rounds=2))
    method = registry.create("fedgnn", {}, setting)
    outcome = train(method)
    assert isinstance(method, FedGNN)
    assert outcome.extras["added_nodes"] > 0
    assert method.predict().shape == (federation.nodes, federation.classes)
    source = method.inputs.features
    assert source.rows == federation.nodes + outcome.extras["added_nodes"]
    assert method.info.breaks_privacy


def test_features_are_counted_once():
    features = np.ones((4, 3), dtype=np.float32)
    federation = _toy([(0, 1), (2, 3)], [[0, 1], [2, 3]], features, False)
    method = registry.create("fedgnn", {}, _setting(federation))
    outcome = train(method)
    model = 4 * sum(value.numel() for value in method.parameters.values())
    paper = 100 * (1 + 4 * 3 * 4 / (2 * model))
    assert outcome.extras == {"added_nodes": 4.0, "added_edges": 8.0, "paper_communication_pct": paper}
    assert outcome.bytes["once"] == 4 * 3 * (4 + 4) + 16 * 8


def test_neighbourhoods_cost_edges_and_the_features_of_arrivals():
    """As in `test_same_neighbourhood_arrives`: six edges inside clients, four arrivals, six new edges."""
    edges = [(0, 1), (1, 3), (0, 2), (2, 3), (0, 4), (0, 5)]
    federation = _toy(edges, [[0, 1, 3], [0, 2, 3, 4], [0, 5], [2, 5]], np.eye(6, dtype=np.float32), True)
    outcome = train(registry.create("fedgnn", {}, _setting(federation)))
    assert (outcome.extras["added_nodes"], outcome.extras["added_edges"]) == (4, 6)
    assert outcome.bytes["once"] == 16 * 6 + 8 * (4 + 4) + 16 * 6


def test_bad_options():
    with pytest.raises(UserError, match="neighbours"):
        registry.create("fedgnn", {"neighbours": -1}, _setting(small_federation(clients=2))).build()
