"""FedLIT's k-means, and clients without edges."""

import numpy as np
import pytest
import torch

from fedsub.datasets.federation import federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.fedlit.clustering import EdgeClustering, align, regroup
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import SPLIT, make_method, small_dataset, small_federation


def test_k_means_finds_planted_types():
    """Three far-apart clouds of edges in every client."""
    segments = Segments(torch.tensor([12, 9, 15]))
    nodes = torch.arange(segments.rows)
    planted = nodes % 3
    noise = torch.randn(segments.rows, 3, generator=torch.Generator().manual_seed(0))
    x = 10 * torch.eye(3)[planted] + 0.1 * noise
    clustering = EdgeClustering(nodes, nodes, segments, 3)
    _, kind = clustering.k_means(x, torch.Generator().manual_seed(0))
    for k in range(3):
        mine = clustering.client == k
        for t in range(3):
            assert len(kind[mine & (planted == t)].unique()) == 1
        assert len(kind[mine].unique()) == 3


def test_clients_without_edges_have_no_say_in_link_types():
    dataset = small_dataset(nodes=60)
    nodes = np.arange(60)
    parts = Partition("alone", (nodes[:1], nodes[1:30], nodes[30:59], nodes[59:]))
    federation = federate(dataset, parts, make_split(dataset.labels.numpy(), parts, SPLIT, 0, 3))
    method = make_method("fedlit", {"types": 3, "width": 8}, federation)
    method.build()
    start_round(method, 1)
    before = method.centroids.clone()
    assert before[0].abs().sum() == before[3].abs().sum() == 0
    end_round(method)
    match = align(before, before[1])
    assert match[1].tolist() == [0, 1, 2]
    expected = (before[1] + regroup(before, match)[2]) / 2
    torch.testing.assert_close(method.server_centroids, expected)


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage"])
def test_clients_may_be_without_any_edge(backbone: str):
    federation = small_federation(clients=4)
    federation.graph.remove_edges(torch.arange(federation.graph.num_edges()))
    options, network = {"types": 3, "width": 8}, Architecture(backbone=backbone)
    outcome = train(make_method("fedlit", options, federation, network, Schedule(rounds=2)))
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]
