"""GCFL and GCFL+ as a loop over clients, from Xie et al., NeurIPS 2021 (arXiv 2106.13423).

Equation numbers are those of an early arXiv version. With Δθ_i = θ̂_i − θ_k (6), the change of client i of
cluster C_k in a round, C_k is split in two when

    δ_mean = ‖mean Δθ_i‖ < ε₁  (4; the sum in print, the mean in the public code)
    δ_max  = max ‖Δθ_i‖ > ε₂   (5)

That version clusters the cosine matrix α_k agglomeratively; the public code takes the Stoer–Wagner minimum
cut of the complete graph with weights α + 1. Here the minimum is found by trying every bipartition. Clusters
average with weights |G_i| (7). GCFL+ takes the dynamic time warping distance β(p, q) of the clients' last d
norms (8), ‖Δθ_i‖ in print, of the last gradient in the public code and here, and cuts weights max β − β.

The paper's clients are always there. Of one that is absent the server has the last Δθ_i and the last norm
that it sent, zeros before the first, and splits clusters by these; it is in no average, and comes back to the
newest model of its cluster, which is the one from before where no client of the cluster was there
(`methods.gcfl`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import mean
from tests.methods.second_derivation.common import Pair
from tests.methods.second_derivation.rounds import Meter, difference
from tests.methods.second_derivation.served import cross_entropy, played

Matrix = list[list[float]]
DECAY, CLIENTS = 1e-4, 6


@dataclass(frozen=True)
class Plan:
    """One run."""

    rounds: int
    epochs: int = 2
    optimiser: str = "sgd"
    learning_rate: float = 0.1
    epsilon1: float = 1e9
    epsilon2: float = 0.0
    first_round: int = 2
    sequence: int = 0
    """Gradient norms that GCFL+ compares; 0 is GCFL."""
    participation: float = 1.0
    stragglers: float = 0.0

    def schedule(self) -> dict[str, Any]:
        """The stacked method's schedule."""
        return {
            "rounds": self.rounds,
            "local_epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "optimiser": self.optimiser,
            "weight_decay": DECAY,
            "participation": self.participation,
            "stragglers": self.stragglers,
        }

    def options(self) -> dict[str, Any]:
        """The stacked method's options."""
        common = {"epsilon1": self.epsilon1, "epsilon2": self.epsilon2, "first_round": self.first_round}
        if not self.sequence:
            return common
        return {**common, "sequence": self.sequence}


@dataclass
class Round:
    """What a round left: clusters, and the criterion's two numbers for each cluster before it."""

    clusters: set[frozenset[int]]
    criterion: list[tuple[float, float]]
    present: list[int]
    receiving: list[int]


def warping_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """Least root of summed squares over all monotone alignments, by recursion from both ends."""

    def best(i: int, j: int) -> float:
        if i < 0 or j < 0:
            return 0.0 if i == j else math.inf
        before = min(best(i - 1, j), best(i, j - 1), best(i - 1, j - 1))
        return (left[i] - right[j]) ** 2 + before

    return math.sqrt(best(len(left) - 1, len(right) - 1))


def lightest_cut(weights: Matrix) -> list[int]:
    """One side of the bipartition with the least weight across, by trying them all."""
    size = len(weights)
    sides = [[i for i in range(size) if mask >> i & 1] for mask in range(1, 2 ** (size - 1))]
    return min(sides, key=lambda side: sum(weights[i][j] for i in side for j in range(size) if j not in side))


def _flat(model: Parameters) -> Tensor:
    return torch.cat([value.flatten() for value in model.values()])


def _gradient(value: Tensor) -> Tensor:
    assert value.grad is not None
    return value.grad


def _nearness(sequences: list[list[float]]) -> Matrix:
    """Largest distance minus the distance."""
    distance = [[warping_distance(left, right) for right in sequences] for left in sequences]
    farthest = max(max(row) for row in distance)
    return [[farthest - entry for entry in row] for row in distance]


class Server:
    """What the server has of every client: what it sent last, and its cluster."""

    def __init__(self, pair: Pair, plan: Plan) -> None:
        self.pair, self.plan, self.number = pair, plan, 0
        self.clients = range(len(pair.models))
        self.clusters = [list(self.clients)]
        self.change = [torch.zeros_like(_flat(model)) for model in pair.models]
        self.norm = [0.0 for _ in self.clients]
        self.norms: list[list[float]] = [[] for _ in self.clients]
        self.criterion: list[tuple[float, float]] = []

    def answer(
        self, kept: dict[int, Parameters], sent: dict[int, Parameters], weights: dict[int, float]
    ) -> dict[int, Parameters]:
        """Split where it must be, then average clusters by (7)."""
        self.number += 1
        for k, model in sent.items():
            self.change[k] = _flat(difference(model, kept[k]))
            self.norm[k] = float(_flat({n: _gradient(v) for n, v in self.pair.models[k].items()}).norm())
        for k in self.clients:
            self.norms[k].append(self.norm[k])
        self.criterion = [self.measured(cluster) for cluster in self.clusters]
        found = []
        for cluster, (average, largest) in zip(self.clusters, self.criterion, strict=True):
            splits = average < self.plan.epsilon1 and largest > self.plan.epsilon2
            splits &= len(cluster) > 2 and self.number > self.plan.first_round
            if not splits or any(len(self.norms[i]) < self.plan.sequence for i in cluster):
                found.append(cluster)
                continue
            side = lightest_cut(self.weights(cluster))
            found.append([cluster[i] for i in side])
            found.append([client for i, client in enumerate(cluster) if i not in side])
        self.clusters = found
        new = {}
        for cluster in self.clusters:
            there = [k for k in cluster if k in sent]
            if there:
                total = sum(weights[k] for k in there)
                average = mean([sent[k] for k in there], [weights[k] / total for k in there])
                new |= dict.fromkeys(cluster, average)
        return new

    def measured(self, cluster: list[int]) -> tuple[float, float]:
        """δ_mean and δ_max."""
        changes = torch.stack([self.change[i] for i in cluster])
        return float(changes.mean(dim=0).norm()), float(changes.norm(dim=1).max())

    def weights(self, cluster: list[int]) -> Matrix:
        """Of the edges that are cut; the public code begins new sequences for all clients after a split."""
        if self.plan.sequence:
            found = _nearness([self.norms[i][-self.plan.sequence :] for i in cluster])
            self.norms = [[] for _ in self.clients]
            return found
        changes = torch.stack([self.change[i] for i in cluster])
        near: Matrix = functional.cosine_similarity(changes[:, None], changes, dim=2).tolist()
        return [[cosine + 1 for cosine in row] for row in near]


def compare(federation: Federation, plan: Plan) -> list[Round]:
    """Run both; every round's clusters and parameters must agree. Returns the rounds."""
    name = "gcfl+" if plan.sequence else "gcfl"
    pair, rounds = Pair(federation, name, plan.options(), **plan.schedule()), []
    server, meter = Server(pair, plan), Meter(pair)

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        return cross_entropy(pair.parts[k], model, "gcn")

    for now in played(pair, loss, server.answer):
        clusters = pair.method.clusters
        members = {frozenset((clusters == c).nonzero().flatten().tolist()) for c in clusters.unique()}
        assert members == {frozenset(cluster) for cluster in server.clusters}
        rounds.append(Round(members, server.criterion, now.present, now.receiving))
        meter.count(now)
    # A client of GCFL+ sends one more number, its gradient norm.
    meter.compare(beside=int(plan.sequence > 0))
    return rounds


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_splits_and_averages_alike(federation: Federation, optimiser: str, rate: float) -> None:
    found = compare(federation, Plan(8, optimiser=optimiser, learning_rate=rate))
    assert len(found[1].clusters) == 1
    assert len(found[-1].clusters) >= 3


def test_gcfl_splits_when_the_mean_change_has_shrunk(federation: Federation) -> None:
    free = compare(federation, Plan(6, epsilon1=0.0))
    means = [each.criterion[0][0] for each in free]
    threshold = (means[3] + means[4]) / 2
    found = compare(federation, Plan(6, epsilon1=threshold, first_round=0))
    first = next(number for number, mean in enumerate(means) if mean < threshold)
    assert [len(r.clusters) == 1 for r in found[: first + 1]] == [True] * first + [False]
    assert 0 < first < 6


def test_gcfl_splits_only_if_one_client_still_moves(federation: Federation) -> None:
    free = compare(federation, Plan(6, epsilon1=0.0))
    largest = [each.criterion[0][1] for each in free]
    threshold = (min(largest) + max(largest)) / 2
    found = compare(federation, Plan(6, epsilon2=threshold, first_round=0))
    first = next(number for number, length in enumerate(largest) if length > threshold)
    assert len(found[first].clusters) == 2


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_plus_splits_and_averages_alike(federation: Federation, optimiser: str, rate: float) -> None:
    plan = Plan(12, optimiser=optimiser, learning_rate=rate, sequence=4)
    found = compare(federation, plan)
    assert len(found[3].clusters) == 2
    assert len(found[-1].clusters) >= 3


def returns_of_the_unheard(found: list[Round]) -> int:
    """How often a client comes back whose cluster no client was there of in the round before."""
    return sum(
        any(k in cluster and not cluster & set(mine.present) for cluster in mine.clusters)
        for mine in found[:-1]
        for k in mine.receiving
    )


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_knows_absent_clients_by_what_they_sent_last(
    federation: Federation, optimiser: str, rate: float
) -> None:
    """They come back to the newest model of their cluster, or to that from before if all of it was away."""
    plan = Plan(10, optimiser=optimiser, learning_rate=rate, participation=0.6, stragglers=0.5)
    found = compare(federation, plan)
    assert len(found[-1].clusters) >= 3
    assert returns_of_the_unheard(found) > 1


def test_a_client_that_has_sent_nothing_has_not_changed(federation: Federation) -> None:
    """The server has moved when clusters are split, and one client has not been there yet."""
    plan = Plan(6, first_round=1, participation=0.5)
    found = compare(federation, plan)
    assert len({*found[0].present, *found[1].present}) == 5
    assert len(found[1].clusters) == 2


@pytest.mark.parametrize("sequence", [3, 4])
@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_plus_knows_absent_clients_by_the_norm_that_they_sent_last(
    federation: Federation, optimiser: str, rate: float, sequence: int
) -> None:
    """With sequences of three one of them is constant, of a client that was absent all the time."""
    plan = Plan(
        14,
        optimiser=optimiser,
        learning_rate=rate,
        sequence=sequence,
        participation=0.6,
        stragglers=0.5,
    )
    found = compare(federation, plan)
    assert len(found[-1].clusters) >= 3
    assert returns_of_the_unheard(found) > 1
