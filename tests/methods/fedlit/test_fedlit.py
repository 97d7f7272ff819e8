"""FedLIT: clustering and alignment against loops; channels against a dense forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import Setting, make_setting
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.fedlit import FedLIT
from fedsub.methods.fedlit.clustering import (
    EdgeClustering,
    align,
    average_channels,
    greedy_match,
    regroup,
)
from fedsub.methods.stacked.segments import Segments
from tests.methods.federations import SPLIT, small_dataset, small_federation


def _setting(clients: int = 4, backbone: str = "gcn", **schedule: object) -> Setting:
    architecture = Architecture(backbone=backbone)
    return make_setting(small_federation(clients), architecture, Schedule(rounds=3, **schedule))  # type: ignore[arg-type]


def _built(clients: int = 4, backbone: str = "gcn", **options: object) -> FedLIT:
    method = registry.create("fedlit", {"types": 3, "width": 8, **options}, _setting(clients, backbone))
    assert isinstance(method, FedLIT)
    method.build()
    return method


def _permutations(clients: int, types: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.stack([torch.randperm(types, generator=generator) for _ in range(clients)])


def test_alignment_undoes_a_permutation():
    """Clients that number the same link types differently are sorted out, noise notwithstanding."""
    clients, types = 5, 4
    centers = torch.randn(types, 12, generator=torch.Generator().manual_seed(0))
    order = _permutations(clients, types)
    noise = 0.05 * torch.randn(clients, types, 12, generator=torch.Generator().manual_seed(2))
    match = align(2.5 * (centers[order] + noise), centers)
    assert torch.equal(match, order)
    assert torch.allclose(regroup(centers[order], match), centers.expand(clients, -1, -1))


def test_average_does_not_depend_on_the_numbering():
    clients, types = 4, 3
    values = torch.randn(clients, types, 5, 2)
    occupied = torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 1, 0], [0, 1, 0]])
    previous = torch.full((types, 5, 2), 7.0)
    plain = torch.arange(types).expand(clients, -1)
    expected = average_channels(values, plain, occupied, previous)
    assert torch.allclose(expected[0], values[:3, 0].mean(dim=0))
    assert torch.allclose(expected[1], values[1:, 1].mean(dim=0))
    assert torch.equal(expected[2], previous[2])
    order = _permutations(clients, types)
    renumbered = values[torch.arange(clients).unsqueeze(1), order]
    assert torch.allclose(average_channels(renumbered, order, occupied, previous), expected)


def test_greedy_match_against_a_loop():
    similarity = torch.randn(6, 5, 5, generator=torch.Generator().manual_seed(3))
    match = greedy_match(similarity)
    for k in range(6):
        left = similarity[k].numpy().copy()
        for _ in range(5):
            own, server = np.unravel_index(left.argmax(), left.shape)
            assert int(match[k, own]) == server
            left[own, :] = left[:, server] = -np.inf


def _clustering(types: int = 3) -> tuple[EdgeClustering, Tensor]:
    federation = small_federation(clients=3, seed=1)
    source, target = federation.graph.edges()
    once = source < target
    clustering = EdgeClustering(source[once], target[once], Segments(federation.sizes), types)
    return clustering, torch.randn(federation.nodes, 4, generator=torch.Generator().manual_seed(0))


def test_em_step_against_a_loop():
    clustering, x = _clustering()
    centroids = torch.randn(3, 3, 8, generator=torch.Generator().manual_seed(1))
    kind = clustering.most_similar(x, centroids)
    near = clustering.nearest(x, centroids)
    means = clustering.means(x, kind, centroids)
    embedding = torch.cat([x[clustering.source], x[clustering.target]], dim=1)
    for e in range(len(kind)):
        own = centroids[clustering.client[e]]
        assert int(kind[e]) == int(torch.cosine_similarity(embedding[e : e + 1], own).argmax())
        assert int(near[e]) == int((embedding[e] - own).square().sum(dim=1).argmin())
    for k in range(3):
        for t in range(3):
            mine = (clustering.client == k) & (kind == t)
            expected = embedding[mine].mean(dim=0) if mine.any() else centroids[k, t]
            assert torch.allclose(means[k, t], expected, atol=1e-6)


def test_k_means_finds_planted_types():
    """Three far-apart clouds of edges in every client."""
    segments = Segments(torch.tensor([12, 9, 15]))
    nodes = torch.arange(segments.rows)
    planted = nodes % 3
    noise = torch.randn(segments.rows, 3, generator=torch.Generator().manual_seed(0))
    x = 10 * torch.eye(3)[planted] + 0.1 * noise
    clustering = EdgeClustering(nodes, nodes, segments, 3)
    _, kind = clustering.k_means(x, 5, torch.Generator().manual_seed(0))
    for k in range(3):
        mine = clustering.client == k
        for t in range(3):
            assert len(kind[mine & (planted == t)].unique()) == 1
        assert len(kind[mine].unique()) == 3


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage"])
def test_channels_against_a_dense_pass(backbone: str, self_loops: bool):
    method = _built(clients=2, backbone=backbone, self_loops=self_loops)
    with torch.no_grad():
        for value in method.parameters.values():
            value.normal_(std=0.5)
    federation, clustering = method.federation, method.clustering
    logits = method.predict()
    for k in range(2):
        mine = federation.client == k
        p = {name: value[k].detach() for name, value in method.parameters.items()}

        def channel(h: torch.Tensor, layer: str, t: int, mine=mine, p=p) -> torch.Tensor:
            dense = torch.zeros(federation.nodes, federation.nodes)
            own = method.kind == t
            dense[clustering.source[own], clustering.target[own]] = 1
            adjacency = (dense + dense.T)[mine][:, mine]
            looped = adjacency + torch.eye(len(adjacency)) if self_loops else adjacency
            scale = looped.sum(dim=1).clamp(min=1).rsqrt()
            smooth = scale.unsqueeze(1) * looped * scale
            bias, out = p[f"{layer}.bias"][t], h @ p[f"{layer}.weight"][t]
            if backbone == "sgc":
                return smooth @ (smooth @ out) + bias
            if backbone == "graphsage":
                mean = adjacency / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
                return torch.relu(out + mean @ (h @ p[f"{layer}.neighbour"][t]) + bias)
            return torch.relu(smooth @ out + bias)

        h = federation.features.to_dense()[mine] @ p["projection.weight"] + p["projection.bias"]
        for i in range(1 if backbone == "sgc" else 2):
            h = torch.stack([channel(h, f"channels.{i}", t) for t in range(3)]).sum(dim=0)
        expected = h @ p["head.weight"] + p["head.bias"]
        torch.testing.assert_close(logits[mine], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage"])
def test_round_trip(backbone: str):
    """After the exchange, a client's channel is the server's of the matched type."""
    setting = _setting(4, backbone, evaluate="received")
    method = registry.create("fedlit", {"types": 3, "width": 8}, setting)
    outcome = train(method)
    assert isinstance(method, FedLIT)
    assert method.server_centroids is not None
    match = align(method.centroids, method.server_centroids)
    assert torch.equal(method.server_centroids[match], method.centroids)
    for name, server in method.server_channels.items():
        assert torch.equal(server[match], method.parameters[name])
    size = sum(value.numel() for value in method.parameters.values()) + method.centroids.numel()
    # Besides, a client says which of its three channels its training nodes have.
    assert outcome.bytes["up"] == 4 * size + 4 * 3
    assert outcome.bytes["down"] == 4 * size


def test_occupied_needs_a_training_node():
    method = _built()
    occupied = method.occupied()
    for k in range(4):
        for t in range(3):
            own = (method.clustering.client == k) & (method.kind == t)
            ends = torch.cat([method.clustering.source[own], method.clustering.target[own]])
            assert bool(occupied[k, t]) == bool(method.federation.train[ends].any())


def test_clients_without_edges_have_no_say_in_link_types():
    dataset = small_dataset(nodes=60)
    nodes = np.arange(60)
    parts = Partition("alone", (nodes[:1], nodes[1:30], nodes[30:59], nodes[59:]))
    federation = federate(dataset, parts, make_split(dataset.labels.numpy(), parts, SPLIT, 0, 3))
    method = registry.create("fedlit", {"types": 3, "width": 8}, make_setting(federation, Architecture()))
    assert isinstance(method, FedLIT)
    method.build()
    start_round(method, 1)
    before = method.centroids.clone()
    assert before[0].abs().sum() == before[3].abs().sum() == 0
    end_round(method)
    match = align(before, before[1])
    assert match[1].tolist() == [0, 1, 2]
    expected = (before[1] + regroup(before, match)[2]) / 2
    assert method.server_centroids is not None
    torch.testing.assert_close(method.server_centroids, expected)


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage"])
def test_clients_may_be_without_any_edge(backbone: str):
    federation = small_federation(clients=4)
    federation.graph.remove_edges(torch.arange(federation.graph.num_edges()))
    setting = make_setting(federation, Architecture(backbone=backbone), Schedule(rounds=2))
    outcome = train(registry.create("fedlit", {"types": 3, "width": 8}, setting))
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


def test_bad_options():
    with pytest.raises(UserError, match="types"):
        registry.create("fedlit", {"types": 0}, _setting()).build()
