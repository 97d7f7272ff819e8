"""FedProx, FedPer, FedDyn, FedAdagrad, FedAdam and FedSGD as loops over clients.

With w the server's model, f_k the loss of client k on its training nodes, S the clients present of K:

    FedProx (Li et al. 2020)            client: min f_k(w_k) + μ/2 ‖w_k − w‖²;  server: w ← Σ p_k w_k
    FedPer (Arivazhagan et al. 2019)    as FedAvg, but the classifier stays with the client (all of an SGC)
    FedDyn (Acar et al. 2021)           client: min f_k(w_k) − ⟨g_k, w_k⟩ + α/2 ‖w_k − w‖²,
                                        g_k ← g_k − α (w_k − w), an absent client keeps its g_k
                                        server: h ← h − α/K Σ_S (w_k − w),  w ← mean_S w_k − h/α;
                                        here 1/K and the mean by training nodes, or alike, as p_k
    FedAdagrad, FedAdam                 Δ = Σ p_k (w_k − w),  m ← β₁ m + (1 − β₁) Δ,
    (Reddi et al. 2021)                 v ← v + Δ²  or  v ← β₂ v + (1 − β₂) Δ²,  w ← w + η m / (√v + τ),
                                        m = 0 and v = τ² before the first round
    FedSGD (McMahan et al. 2017)        w ← one step along Σ p_k ∇f_k(w), in every epoch of a round

Clients descend by the schedule's optimiser, whose state they keep, where the papers' take plain steps.
"""

from typing import Any

import pytest
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.second_derivation.common import Pair
from tests.methods.second_derivation.rounds import SCHEDULES, distance
from tests.methods.second_derivation.served import (
    Adaptive,
    FedDyn,
    average,
    cross_entropy,
    plain,
    play,
    play_by_gradients,
    weights_of,
)

CLIENTS = 5
UNIFORM = SCHEDULES["half"] | {"optimiser": "sgd", "learning_rate": 0.2, "weighting": "uniform"}
EVERY = dict(zip((*SCHEDULES, "half-uniform"), (*SCHEDULES.values(), UNIFORM), strict=True))
every_schedule = pytest.mark.parametrize("schedule", EVERY.values(), ids=EVERY.keys())
every_run = pytest.mark.parametrize(
    ("schedule", "backbone"),
    [*zip(EVERY.values(), ("gcn", "graphsage", "sgc", "gcn"), strict=True)],
    ids=EVERY.keys(),
)


@every_run
def test_fedprox(federation: Federation, backbone: str, schedule: dict[str, Any]) -> None:
    mu = 0.5
    pair = Pair(federation, "fedprox", {"mu": mu}, backbone, **schedule)

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        return cross_entropy(pair.parts[k], model, backbone) + mu / 2 * distance(model, received)

    play(pair, loss, average)


@every_run
def test_fedper(federation: Federation, backbone: str, schedule: dict[str, Any]) -> None:
    pair = Pair(federation, "fedper", {}, backbone, **schedule)
    play(pair, plain(pair, backbone), average, lambda name: not name.startswith("head."))


@every_run
@pytest.mark.parametrize("alpha", [0.02, 0.2])
def test_feddyn(federation: Federation, alpha: float, backbone: str, schedule: dict[str, Any]) -> None:
    pair = Pair(federation, "feddyn", {"alpha": alpha}, backbone, **schedule)
    server = FedDyn(pair.models[0], alpha, weights_of(pair, list(range(CLIENTS))))

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        return cross_entropy(pair.parts[k], model, backbone) + server.penalty(k, model, received)

    play(pair, loss, server)


@every_schedule
@pytest.mark.parametrize(
    ("name", "options", "backbone"),
    [
        ("fedadagrad", {"server_learning_rate": 0.1, "tau": 0.01, "beta1": 0.0}, "gcn"),
        ("fedadagrad", {"server_learning_rate": 0.05, "tau": 0.1, "beta1": 0.5}, "graphsage"),
        ("fedadam", {"server_learning_rate": 0.01, "tau": 0.001, "beta1": 0.9, "beta2": 0.99}, "gcn"),
        ("fedadam", {"server_learning_rate": 0.1, "tau": 0.1, "beta1": 0.8, "beta2": 0.9}, "graphsage"),
    ],
)
def test_fedopt(
    federation: Federation, name: str, options: dict[str, float], backbone: str, schedule: dict[str, Any]
) -> None:
    pair = Pair(federation, name, options, backbone, **schedule)
    play(pair, plain(pair, backbone), Adaptive(pair.models[0], *options.values()))


@every_run
def test_fedsgd(federation: Federation, backbone: str, schedule: dict[str, Any]) -> None:
    pair = Pair(federation, "fedsgd", {}, backbone, **schedule)
    play_by_gradients(pair, plain(pair, backbone))
