"""GCFL and GCFL+: what is split, when, and what the clusters average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import end_round, start_round, train
from fedsub.methods.gcfl import GCFL, GCFLPlus, minimum_cut, time_warping_distances
from tests.methods.federations import SPLIT, small_dataset, small_federation

ARCHITECTURE = Architecture(hidden=(8, 6), dropout=0.5)


def create(name: str, federation: Federation, schedule: Schedule | None = None, **options: Any) -> GCFL:
    setting = make_setting(federation, ARCHITECTURE, schedule or Schedule(), seed=1)
    method = registry.create(name, options, setting)
    assert isinstance(method, GCFL)
    return method


def run(name: str, federation: Federation, schedule: Schedule, **options: Any) -> GCFL:
    method = create(name, federation, schedule, **options)
    train(method)
    return method


def run_fedavg(federation: Federation, schedule: Schedule) -> FederatedMethod:
    method = registry.create("fedavg", {}, make_setting(federation, ARCHITECTURE, schedule, seed=1))
    train(method)
    return method


def planted() -> Federation:
    """Six clients; the first three share out class 0, the last three the others."""
    dataset = small_dataset(nodes=240)
    labels = dataset.labels.numpy()
    first, second = np.nonzero(labels == 0)[0], np.nonzero(labels != 0)[0]
    parts = Partition("planted", tuple([first[k::3] for k in range(3)] + [second[k::3] for k in range(3)]))
    return federate(dataset, parts, make_split(labels, parts, SPLIT, 7, 3))


def test_a_planted_federation_is_split_along_its_seam():
    schedule = Schedule(rounds=12, local_epochs=2, weighting="uniform", optimiser="sgd", learning_rate=0.5)
    method = run("gcfl", planted(), schedule, epsilon1=1e9, epsilon2=0.0, first_round=11)
    assert method.extras == {"clusters": 2.0, "largest_cluster": 3.0, "first_split": 12.0, "splits": 1.0}
    assert len(set(method.clusters[:3].tolist())) == 1
    assert len(set(method.clusters[3:].tolist())) == 1


def test_shifted_cosines_peel_off_one_client_where_positive_ones_find_the_halves() -> None:
    """Two groups of three, cosines 0.3 inside and 0 between: (1.3·2 + 3) < 9, but 0 < 0.6."""
    group = torch.arange(6) // 3
    products = torch.eye(6) * 0.7 + 0.3 * (group.unsqueeze(0) == group.unsqueeze(1))
    sizes = {}
    for weights in ("shifted", "positive"):
        method = create("gcfl", small_federation(clients=6, nodes=80), weights=weights)
        side = minimum_cut(method.edge_weights(products, torch.arange(6)))
        sizes[weights] = sorted((int(side.sum()), int((~side).sum())))
    assert sizes == {"shifted": [1, 5], "positive": [3, 3]}


def test_clusters_average_by_their_clients_shares():
    schedule = Schedule(rounds=1, weighting="training-nodes")
    method = create("gcfl", planted(), schedule)
    method.build()
    method.clusters = torch.tensor([0, 1, 0, 2, 1, 0])
    start_round(method, 1)
    before = {name: value.detach().clone() for name, value in method.parameters.items()}
    end_round(method)
    for members in ([0, 2, 5], [1, 4], [3]):
        share = method.task.train_count[members].float()
        for name, value in before.items():
            mean = sum(s * value[k] for s, k in zip(share / share.sum(), members, strict=True))
            for client in members:
                torch.testing.assert_close(method.parameters[name][client].detach(), mean)


def test_the_criterion_by_hand():
    method = create("gcfl", small_federation(), epsilon1=1.0, epsilon2=2.0)
    # Changes (3, 0), (−3, 0), (0, 2.4): mean (0, 0.8), the longest 3.
    changes = torch.tensor([[3.0, 0], [-3, 0], [0, 2.4]])
    products = changes @ changes.T
    for clusters, factor, expected in (
        ([0] * len(changes), 1.0, [True]),
        ([0, 0], 1.0, [False]),  # two clients stay together
        ([0] * len(changes), 4.0, [False]),  # mean 1.6
        ([0] * len(changes), 0.25, [False]),  # longest 1.5
        ([1] * len(changes) + [0, 0], 1.0, [False, True]),
    ):
        method.clusters = torch.tensor(clusters)
        among = torch.zeros(len(clusters), len(clusters))
        kept = min(len(clusters), len(changes))
        among[:kept, :kept] = products[:kept, :kept] * factor
        assert method.meeting_criterion(among).tolist() == expected


def test_gcfl_plus_splits_by_the_course_of_the_gradient_norms():
    federation = small_federation(clients=5, nodes=100)
    method = create("gcfl+", federation, epsilon1=9.0, epsilon2=0.0, sequence=4)
    assert isinstance(method, GCFLPlus)
    rising, falling = torch.tensor([0.0, 1, 2, 3]), torch.tensor([3.0, 2, 1, 0])
    products = torch.eye(5)
    for step in range(4):
        method.norms.append(torch.stack([rising, falling, rising + 0.1, falling, rising])[:, step])
        method.split(products, 21 + step)
    assert len(set(method.clusters[[0, 2, 4]].tolist())) == 1
    assert len(set(method.clusters[[1, 3]].tolist())) == 1
    assert int(method.clusters.max()) == 1
    assert method.first_split == 24
    assert not method.norms, "a split begins new sequences"


def test_gcfl_plus_sends_one_norm_a_client_and_splits():
    federation = small_federation(clients=4, nodes=80)
    schedule = Schedule(rounds=5)
    fedavg = run_fedavg(federation, schedule)
    method = run("gcfl+", federation, schedule, epsilon1=1e9, epsilon2=0.0, first_round=0, sequence=3)
    assert method.channel.bytes_up - fedavg.channel.bytes_up == 5 * 4 * 4
    assert method.extras["first_split"] == 3.0


def test_a_stragglers_norm_is_of_its_own_last_step():
    """As if the round had ended with it."""
    federation = small_federation(clients=4, nodes=80)
    fixed = {"epsilon1": 0.0, "first_round": 0}
    norms = {}
    for epochs in (1, 2, 3):
        method = create("gcfl+", federation, Schedule(rounds=1, local_epochs=epochs), **fixed)
        method.build()
        start_round(method, 1)
        assert isinstance(method, GCFLPlus)
        norms[epochs] = method.norm.clone()
    method = create("gcfl+", federation, Schedule(rounds=1, local_epochs=3, stragglers=0.5), **fixed)
    method.build()
    begin_round(method, 1)
    start_round(method, 1)
    own = method.epochs.tolist()
    assert isinstance(method, GCFLPlus)
    assert min(own) < 3
    expected = torch.stack([norms[epochs][client] for client, epochs in enumerate(own)])
    # Dropout is drawn for all clients in every epoch.
    torch.testing.assert_close(method.norm, expected)


def test_the_minimum_cut_is_the_cheapest_of_all():
    generator = np.random.default_rng(0)
    for _ in range(10):
        weights = generator.random((6, 6))
        weights = weights + weights.T
        weights[generator.random((6, 6)) < 0.3] = 0
        weights = np.minimum(weights, weights.T)
        np.fill_diagonal(weights, 1.0)
        sides = [np.array([bool(code >> i & 1) for i in range(6)]) for code in range(1, 63)]
        costs = [weights[side][:, ~side].sum() for side in sides]
        side = minimum_cut(weights)
        assert side.any()
        assert not side.all()
        assert weights[side][:, ~side].sum() == pytest.approx(min(costs))


def test_time_warping_equals_the_recursion():
    def warp(first, second):
        if len(first) == 1 and len(second) == 1:
            return (first[0] - second[0]) ** 2
        ways = []
        if len(first) > 1:
            ways.append(warp(first[:-1], second))
        if len(second) > 1:
            ways.append(warp(first, second[:-1]))
        if len(first) > 1 and len(second) > 1:
            ways.append(warp(first[:-1], second[:-1]))
        return min(ways) + (first[-1] - second[-1]) ** 2

    sequences = np.random.default_rng(1).random((3, 5))
    distances = time_warping_distances(sequences)
    expected = [[np.sqrt(warp(list(a), list(b))) for b in sequences] for a in sequences]
    np.testing.assert_allclose(distances, expected)
    shifted = time_warping_distances(np.array([[0.0, 0, 1, 2], [0.0, 1, 2, 2]]))
    assert shifted[0, 1] == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [("gcfl", {"epsilon1": -1.0}), ("gcfl", {"first_round": -1}), ("gcfl+", {"sequence": 1})],
)
def test_bad_options_are_refused(name, options):
    with pytest.raises(UserError, match="gcfl"):
        create(name, small_federation(), **options)


@pytest.mark.parametrize("name", ["gcfl", "gcfl+"])
def test_it_predicts_links(name):
    setting = make_setting(
        small_federation(nodes=120), Architecture(hidden=(8, 6)), Schedule(rounds=3), task="link-prediction"
    )
    outcome = train(registry.create(name, {}, setting))
    assert 0 <= outcome.metrics["roc_auc"] <= 1
