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

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsub.datasets.federation import Federation
from fedsub.methods.core.participation import begin_round
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import numbers, optimiser_of
from tests.methods.oracle import client_parts
from tests.methods.second_derivation.common import (
    FLOAT,
    TOLERANCE,
    Pair,
    copied,
    created,
    leaves,
)
from tests.methods.second_derivation.rounds import distance
from tests.methods.second_derivation.served import average, cross_entropy, play, weights_of

CLIENTS = 5
SCHEDULES: dict[str, dict[str, Any]] = {
    "adam": {"rounds": 3, "local_epochs": 2, "weight_decay": 5e-4},
    "sgd": {"rounds": 3, "local_epochs": 3, "optimiser": "sgd", "learning_rate": 0.2, "weight_decay": 5e-4},
    "half": {"rounds": 5, "local_epochs": 2, "participation": 0.5},
    "half-uniform": {
        "rounds": 5,
        "local_epochs": 2,
        "optimiser": "sgd",
        "learning_rate": 0.2,
        "participation": 0.5,
        "weighting": "uniform",
    },
}
every_schedule = pytest.mark.parametrize("schedule", list(SCHEDULES.values()), ids=list(SCHEDULES))
every_backbone = pytest.mark.parametrize("backbone", ["gcn", "graphsage"])


@every_schedule
@every_backbone
def test_fedprox(federation: Federation, backbone: str, schedule: dict[str, Any]) -> None:
    mu = 0.5
    pair = Pair(federation, "fedprox", {"mu": mu}, backbone, **schedule)
    play(
        pair,
        lambda k, model, received: (
            cross_entropy(pair.parts[k], model, backbone) + mu / 2 * distance(model, received)
        ),
        average,
    )


@every_schedule
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "sgc"])
def test_fedper(federation: Federation, backbone: str, schedule: dict[str, Any]) -> None:
    pair = Pair(federation, "fedper", {}, backbone, **schedule)
    play(
        pair,
        lambda k, model, received: cross_entropy(pair.parts[k], model, backbone),
        average,
        lambda name: not name.startswith("head."),
    )


@every_schedule
@every_backbone
@pytest.mark.parametrize("alpha", [0.02, 0.2])
def test_feddyn(federation: Federation, alpha: float, backbone: str, schedule: dict[str, Any]) -> None:
    pair = Pair(federation, "feddyn", {"alpha": alpha}, backbone, **schedule)
    zero = {name: torch.zeros_like(value[0]) for name, value in pair.start.items()}
    gradients = [dict(zero) for _ in range(CLIENTS)]
    correction = dict(zero)
    share = weights_of(pair, list(range(CLIENTS)))

    def loss(k: int, model: Parameters, received: Parameters) -> torch.Tensor:
        linear = torch.stack([(gradients[k][name] * value).sum() for name, value in model.items()]).sum()
        return cross_entropy(pair.parts[k], model, backbone) - linear + alpha / 2 * distance(model, received)

    def update(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
        new = average(received, sent, weights)
        for name, value in received.items():
            for k, model in sent.items():
                gradients[k][name] = gradients[k][name] - alpha * (model[name] - value)
                correction[name] = correction[name] - alpha * share[k] * (model[name] - value)
            new[name] = new[name] - correction[name] / alpha
        return new

    play(pair, loss, update)


@every_schedule
@every_backbone
@pytest.mark.parametrize(
    ("name", "rate", "tau", "beta1", "beta2"),
    [
        ("fedadagrad", 0.1, 0.01, 0.0, None),
        ("fedadagrad", 0.05, 0.1, 0.5, None),
        ("fedadam", 0.01, 0.001, 0.9, 0.99),
        ("fedadam", 0.1, 0.1, 0.8, 0.9),
    ],
)
def test_fedopt(
    federation: Federation,
    name: str,
    rate: float,
    tau: float,
    beta1: float,
    beta2: float | None,
    backbone: str,
    schedule: dict[str, Any],
) -> None:
    options = {"server_learning_rate": rate, "tau": tau, "beta1": beta1}
    if beta2 is not None:
        options["beta2"] = beta2
    pair = Pair(federation, name, options, backbone, **schedule)
    first = {name: torch.zeros_like(value[0]) for name, value in pair.start.items()}
    second = {name: torch.full_like(value[0], tau**2) for name, value in pair.start.items()}

    def update(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
        new = {}
        for name, value in received.items():
            change = torch.stack([weights[k] * (model[name] - value) for k, model in sent.items()]).sum(dim=0)
            first[name] = beta1 * first[name] + (1 - beta1) * change
            kept = second[name] if beta2 is None else beta2 * second[name]
            second[name] = kept + (1 if beta2 is None else 1 - beta2) * change**2
            new[name] = value + rate * first[name] / (second[name].sqrt() + tau)
        return new

    play(pair, lambda k, model, received: cross_entropy(pair.parts[k], model, backbone), update)


@every_schedule
@every_backbone
def test_fedsgd(federation: Federation, backbone: str, schedule: dict[str, Any]) -> None:
    method = created(federation, "fedsgd", {}, backbone, **schedule)
    method.build()
    parts, model = client_parts(federation), leaves(copied(method.parameters), 0)
    optimiser = optimiser_of(model, method.schedule)
    counts = federation.count(federation.train).float()
    if method.schedule.weighting == "uniform":
        counts = torch.ones_like(counts)
    sent = 0
    for number in range(1, method.schedule.rounds + 1):
        begin_round(method, number)
        present = method.present.nonzero().flatten().tolist()
        for _ in range(method.schedule.local_epochs):
            optimiser.zero_grad()
            for k in present:
                share = counts[k] / counts[present].sum()
                (share * cross_entropy(parts[k], model, backbone)).backward()
            optimiser.step()
            sent += len(present)
        start_round(method, number)
        end_round(method)
        for name, value in model.items():
            torch.testing.assert_close(method.parameters[name][0], value, atol=TOLERANCE, rtol=TOLERANCE)
    assert method.channel.bytes_up == method.channel.bytes_down == FLOAT * sent * numbers(model)
