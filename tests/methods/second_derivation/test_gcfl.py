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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import mean, numbers
from tests.methods.second_derivation.common import Pair, copied
from tests.methods.second_derivation.rounds import difference, fit, overwrite, turn
from tests.methods.second_derivation.served import cross_entropy

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


def loop(pair: Pair, plan: Plan) -> Iterator[Round]:
    """Rounds of GCFL or GCFL+ on the clients one by one, whose models they change."""
    models, clients = pair.models, range(len(pair.models))
    size = pair.federation.count(pair.federation.train).float()
    clusters = [list(clients)]
    # What the server has of every client: the model of its cluster, and what it sent last.
    served = [copied(model) for model in models]
    change = [torch.zeros_like(_flat(model)) for model in served]
    norm = [0.0 for _ in clients]
    norms: list[list[float]] = [[] for _ in clients]
    for number in range(1, plan.rounds + 1):
        now = turn(pair, number)
        for k in now.present:
            fit(pair.optimisers[k], partial(cross_entropy, pair.parts[k], models[k], "gcn"), now.epochs[k])
            change[k] = _flat(difference(models[k], served[k]))
            norm[k] = float(_flat({n: _gradient(v) for n, v in models[k].items()}).norm())
        for k in clients:
            norms[k].append(norm[k])
        criterion, divided_now = [], []
        for cluster in clusters:
            average = float(torch.stack([change[i] for i in cluster]).mean(dim=0).norm())
            largest = max(float(change[i].norm()) for i in cluster)
            criterion.append((average, largest))
            splits = average < plan.epsilon1 and largest > plan.epsilon2
            splits &= len(cluster) > 2 and number > plan.first_round
            if not splits or any(len(norms[i]) < plan.sequence for i in cluster):
                divided_now.append(cluster)
                continue
            if plan.sequence:
                weights = _nearness([norms[i][-plan.sequence :] for i in cluster])
                # The public code begins new sequences for all clients after a split.
                norms = [[] for _ in clients]
            else:
                weights = [
                    [1 + float(functional.cosine_similarity(change[i], change[j], dim=0)) for j in cluster]
                    for i in cluster
                ]
            side = lightest_cut(weights)
            divided_now.append([cluster[i] for i in side])
            divided_now.append([client for i, client in enumerate(cluster) if i not in side])
        clusters = divided_now
        for cluster in clusters:
            there = [k for k in cluster if k in now.present]
            if there:
                new = mean([models[k] for k in there], size[there] / size[there].sum())
                for k in cluster:
                    served[k] = new
        for k in now.receiving:
            overwrite(models, [k], served[k])
        yield Round({frozenset(cluster) for cluster in clusters}, criterion, now.present, now.receiving)


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


def compare(federation: Federation, plan: Plan) -> list[Round]:
    """Run both; every round's clusters and parameters must agree. Returns the loop's rounds."""
    name = "gcfl+" if plan.sequence else "gcfl"
    pair, played = Pair(federation, name, plan.options(), **plan.schedule()), []
    for number, mine in enumerate(loop(pair, plan), 1):
        pair.compare(number)
        clusters = pair.method.clusters
        members = {frozenset((clusters == c).nonzero().flatten().tolist()) for c in clusters.unique()}
        assert members == mine.clusters
        played.append(mine)
    size = numbers(pair.models[0])
    # A client of GCFL+ sends one more number, its gradient norm.
    up = sum(len(mine.present) for mine in played) * (size + bool(plan.sequence))
    pair.compare_bytes(up, sum(len(mine.receiving) for mine in played) * size)
    return played


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_splits_and_averages_alike(federation: Federation, optimiser: str, rate: float) -> None:
    played = compare(federation, Plan(8, optimiser=optimiser, learning_rate=rate))
    assert len(played[1].clusters) == 1
    assert len(played[-1].clusters) >= 3


def test_gcfl_splits_when_the_mean_change_has_shrunk(federation: Federation) -> None:
    free = compare(federation, Plan(6, epsilon1=0.0))
    means = [played.criterion[0][0] for played in free]
    threshold = (means[3] + means[4]) / 2
    played = compare(federation, Plan(6, epsilon1=threshold, first_round=0))
    first = next(number for number, mean in enumerate(means) if mean < threshold)
    assert [len(r.clusters) == 1 for r in played[: first + 1]] == [True] * first + [False]
    assert 0 < first < 6


def test_gcfl_splits_only_if_one_client_still_moves(federation: Federation) -> None:
    free = compare(federation, Plan(6, epsilon1=0.0))
    largest = [played.criterion[0][1] for played in free]
    threshold = (min(largest) + max(largest)) / 2
    played = compare(federation, Plan(6, epsilon2=threshold, first_round=0))
    first = next(number for number, length in enumerate(largest) if length > threshold)
    assert len(played[first].clusters) == 2


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_plus_splits_and_averages_alike(federation: Federation, optimiser: str, rate: float) -> None:
    plan = Plan(12, optimiser=optimiser, learning_rate=rate, sequence=4)
    played = compare(federation, plan)
    assert len(played[3].clusters) == 2
    assert len(played[-1].clusters) >= 3


def returns_of_the_unheard(played: list[Round]) -> int:
    """How often a client comes back whose cluster no client was there of in the round before."""
    return sum(
        any(k in cluster and not cluster & set(mine.present) for cluster in mine.clusters)
        for mine in played[:-1]
        for k in mine.receiving
    )


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_gcfl_knows_absent_clients_by_what_they_sent_last(
    federation: Federation, optimiser: str, rate: float
) -> None:
    """They come back to the newest model of their cluster, or to that from before if all of it was away."""
    plan = Plan(10, optimiser=optimiser, learning_rate=rate, participation=0.6, stragglers=0.5)
    played = compare(federation, plan)
    assert len(played[-1].clusters) >= 3
    assert returns_of_the_unheard(played) > 1


def test_a_client_that_has_sent_nothing_has_not_changed(federation: Federation) -> None:
    """The server has moved when clusters are split, and one client has not been there yet."""
    plan = Plan(6, first_round=1, participation=0.5)
    played = compare(federation, plan)
    assert len({*played[0].present, *played[1].present}) == 5
    assert len(played[1].clusters) == 2


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
    played = compare(federation, plan)
    assert len(played[-1].clusters) >= 3
    assert returns_of_the_unheard(played) > 1
