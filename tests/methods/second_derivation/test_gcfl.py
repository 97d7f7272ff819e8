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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import mean
from tests.methods.second_derivation.common import Pair
from tests.methods.second_derivation.rounds import Meter, cosines, difference
from tests.methods.second_derivation.served import plain, played

Matrix = list[list[float]]
DECAY, CLIENTS = 1e-4, 6


SCHEDULE = {"local_epochs": 2, "learning_rate": 0.1, "optimiser": "sgd", "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01}
AWAY = {"participation": 0.6, "stragglers": 0.5}
OPTIONS: dict[str, Any] = {"epsilon1": 1e9, "epsilon2": 0.0, "first_round": 2}
either_optimiser = pytest.mark.parametrize("optimiser", [{}, ADAM], ids=["sgd", "adam"])


@dataclass
class Round:
    """Result of a round: clusters, and the criterion's two numbers for each cluster before the round."""

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


def _nearness(sequences: list[list[float]]) -> Matrix:
    """Return the largest distance minus each distance."""
    distance = [[warping_distance(left, right) for right in sequences] for left in sequences]
    farthest = max(max(row) for row in distance)
    return [[farthest - entry for entry in row] for row in distance]


class Server:
    """The server's state for every client: its last message and its cluster."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.options, self.number = pair, pair.method.options, 0
        # Number of gradient norms that GCFL+ compares; 0 for GCFL.
        self.sequence: int = getattr(self.options, "sequence", 0)
        self.clients = range(len(pair.models))
        self.clusters = [list(self.clients)]
        self.change = [torch.zeros_like(_flat(model)) for model in pair.models]
        self.norm = [0.0 for _ in self.clients]
        self.norms: list[list[float]] = [[] for _ in self.clients]
        self.criterion: list[tuple[float, float]] = []

    def answer(
        self, kept: dict[int, Parameters], sent: dict[int, Parameters], weights: dict[int, float]
    ) -> dict[int, Parameters]:
        """Split clusters if the criterion is met, then average each cluster by (7)."""
        self.number += 1
        for k, model in sent.items():
            self.change[k] = _flat(difference(model, kept[k]))
            gradient = {name: torch.as_tensor(v.grad) for name, v in self.pair.models[k].items()}
            self.norm[k] = float(_flat(gradient).norm())
        for k in self.clients:
            self.norms[k].append(self.norm[k])
        self.criterion = [self.measured(cluster) for cluster in self.clusters]
        found = []
        for cluster, (average, largest) in zip(self.clusters, self.criterion, strict=True):
            splits = average < self.options.epsilon1 and largest > self.options.epsilon2
            splits &= len(cluster) > 2 and self.number > self.options.first_round
            if not splits or any(len(self.norms[i]) < self.sequence for i in cluster):
                found.append(cluster)
                continue
            side = lightest_cut(self.weights(cluster))
            found.append([cluster[i] for i in side])
            found.append([client for i, client in enumerate(cluster) if i not in side])
        self.clusters = found
        new: dict[int, Parameters] = {}
        for cluster in self.clusters:
            there = [k for k in cluster if k in sent]
            if there:
                total = sum(weights[k] for k in there)
                model = mean([sent[k] for k in there], [weights[k] / total for k in there])
                new |= dict.fromkeys(cluster, model)
        return new

    def measured(self, cluster: list[int]) -> tuple[float, float]:
        """δ_mean and δ_max."""
        changes = torch.stack([self.change[i] for i in cluster])
        return float(changes.mean(dim=0).norm()), float(changes.norm(dim=1).max())

    def weights(self, cluster: list[int]) -> Matrix:
        """Return the cut's edge weights; as in the public code, all sequences start anew after a split."""
        if self.sequence:
            found = _nearness([self.norms[i][-self.sequence :] for i in cluster])
            self.norms = [[] for _ in self.clients]
            return found
        near: Matrix = cosines(torch.stack([self.change[i] for i in cluster])).tolist()
        return [[cosine + 1 for cosine in row] for row in near]


def compare(
    federation: Federation, rounds: int, options: dict[str, Any] | None = None, **schedule: Any
) -> list[Round]:
    """Run both; every round's clusters and parameters must agree. Returns the rounds."""
    options = OPTIONS | (options or {})
    name = "gcfl+" if "sequence" in options else "gcfl"
    pair, seen = Pair(federation, name, options, **{**SCHEDULE, **schedule, "rounds": rounds}), []
    server, meter = Server(pair), Meter(pair)
    for now in played(pair, plain(pair, "gcn"), server.answer):
        clusters = pair.method.clusters
        members = {frozenset((clusters == c).nonzero().flatten().tolist()) for c in clusters.unique()}
        assert members == {frozenset(cluster) for cluster in server.clusters}
        seen.append(Round(members, server.criterion, now.present, now.receiving))
        meter.count(now)
    pair.method.finish()
    sizes = [len(cluster) for cluster in server.clusters]
    first = next((number for number, each in enumerate(seen, 1) if len(each.clusters) > 1), 0)
    figures = {"clusters": len(sizes), "largest_cluster": max(sizes), "splits": len(sizes) - 1}
    assert pair.method.extras == {**figures, "first_split": first}
    # A client of GCFL+ sends one more number, its gradient norm.
    meter.compare(beside=int(server.sequence > 0))
    return seen


@either_optimiser
def test_gcfl_splits_and_averages_alike(federation: Federation, optimiser: dict[str, Any]) -> None:
    found = compare(federation, 8, **optimiser)
    assert len(found[1].clusters) == 1
    assert len(found[-1].clusters) >= 3


def test_gcfl_splits_when_the_mean_change_has_shrunk(federation: Federation) -> None:
    free = compare(federation, 6, {"epsilon1": 0.0})
    means = [each.criterion[0][0] for each in free]
    threshold = (means[3] + means[4]) / 2
    found = compare(federation, 6, {"epsilon1": threshold, "first_round": 0})
    first = next(number for number, mean in enumerate(means) if mean < threshold)
    assert [len(r.clusters) == 1 for r in found[: first + 1]] == [True] * first + [False]
    assert 0 < first < 6


def test_gcfl_splits_only_if_one_client_still_moves(federation: Federation) -> None:
    free = compare(federation, 6, {"epsilon1": 0.0})
    largest = [each.criterion[0][1] for each in free]
    threshold = (min(largest) + max(largest)) / 2
    found = compare(federation, 6, {"epsilon2": threshold, "first_round": 0})
    first = next(number for number, length in enumerate(largest) if length > threshold)
    assert len(found[first].clusters) == 2


@either_optimiser
def test_gcfl_plus_splits_and_averages_alike(federation: Federation, optimiser: dict[str, Any]) -> None:
    found = compare(federation, 12, {"sequence": 4}, **optimiser)
    assert len(found[3].clusters) == 2
    assert len(found[-1].clusters) >= 3


def returns_of_the_unheard(found: list[Round]) -> int:
    """Return how often a client receives whose whole cluster was absent in the round before."""
    return sum(
        any(k in cluster and not cluster & set(mine.present) for cluster in mine.clusters)
        for mine in found[:-1]
        for k in mine.receiving
    )


@pytest.mark.parametrize(("rounds", "options"), [(10, {}), (14, {"sequence": 3}), (14, {"sequence": 4})])
@either_optimiser
def test_absent_clients_are_known_by_what_they_sent_last(
    federation: Federation, rounds: int, options: dict[str, Any], optimiser: dict[str, Any]
) -> None:
    """Returning clients receive their cluster's newest model, or its previous one if the whole cluster was
    absent. With sequences of three one is constant: its client was absent all the time."""
    found = compare(federation, rounds, options, **AWAY, **optimiser)
    assert len(found[-1].clusters) >= 3
    assert returns_of_the_unheard(found) > 1


def test_a_client_that_has_sent_nothing_has_not_changed(federation: Federation) -> None:
    """The server has moved when clusters are split, and one client has not been there yet."""
    found = compare(federation, 6, {"first_round": 1}, participation=0.5)
    assert len({*found[0].present, *found[1].present}) == 5
    assert len(found[1].clusters) == 2
