"""GCFL and GCFL+: what is split, and by which cut and distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsub.datasets.federation import Federation, federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.gcfl import GCFL, minimum_cut, time_warping_distances
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
