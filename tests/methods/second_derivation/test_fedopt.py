"""FedOpt's plain server, and models scored on the whole graph, by a loop over clients in float64."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.evaluation import whole_graph
from fedsub.methods.core.rounds import RoundDone
from fedsub.methods.core.training import train
from tests.methods.federations import make_method, small_federation
from tests.methods.oracle import client_parts
from tests.methods.rounding import assert_agree
from tests.methods.second_derivation.common import symmetric

CLIENTS, ROUNDS, EPOCHS, RATE, DECAY = 4, 3, 4, 0.25, 5e-4
Model = dict[str, Tensor]


def created(name: str, federation: Federation, evaluate: str = "whole-graph", **options: float) -> Any:
    schedule = Schedule(
        rounds=ROUNDS,
        local_epochs=EPOCHS,
        learning_rate=RATE,
        weight_decay=DECAY,
        optimiser="sgd",
        evaluate=evaluate,
        selection="pooled-validation-loss",
    )
    architecture = Architecture(hidden=(8,), head="convolution", dropout=0.0)
    return make_method(name, options, federation, architecture, schedule)


def logits_of(model: Model, adjacency: Tensor, features: Tensor) -> Tensor:
    """A GCN of two layers, Kipf & Welling eq. (9)."""
    spread = symmetric(adjacency.double())
    hidden = functional.relu(spread @ features @ model["layers.0.weight"] + model["layers.0.bias"])
    return spread @ hidden @ model["head.weight"] + model["head.bias"]


def locally_trained(model: Model, part: dict[str, Tensor]) -> Model:
    """Plain steps w ← w − η (∇F + λ w) of one client."""
    for _ in range(EPOCHS):
        leaves = {name: value.clone().requires_grad_() for name, value in model.items()}
        output = logits_of(leaves, part["adjacency"], part["features"].double())[part["train"]]
        loss = functional.cross_entropy(output, part["labels"][part["train"]])
        found = torch.autograd.grad(loss, list(leaves.values()))
        model = {n: model[n] - RATE * (g + DECAY * model[n]) for n, g in zip(model, found, strict=True)}
    return model


def whole(federation: Federation) -> tuple[Tensor, Tensor]:
    """Adjacency and features of the graph that was divided."""
    source = federation.source
    return torch.from_numpy(source.adjacency().toarray()), source.features.to_dense().double()


def score(output: Tensor, mask: Tensor, federation: Federation) -> tuple[float, float]:
    """Accuracy and mean cross-entropy on the nodes of the graph that have a role."""
    nodes = federation.origin[mask]
    labels = federation.source.labels[nodes]
    right = (output[nodes].argmax(dim=1) == labels).double().mean()
    return float(right), float(functional.cross_entropy(output[nodes], labels))


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.1])
def test_the_server_steps_along_the_mean_change_and_is_scored_on_the_whole_graph(rate: float) -> None:
    federation = small_federation(CLIENTS, nodes=80)
    method = created("fedopt", federation, server_learning_rate=rate)
    method.build()
    server = {name: value[0].detach().double() for name, value in method.parameters.items()}
    rounds: list[RoundDone] = []
    method = created("fedopt", federation, server_learning_rate=rate)
    outcome = train(method, on_round=rounds.append)
    weight = federation.count(federation.train).double()
    adjacency, features = whole(federation)
    for each in rounds:
        sent = [locally_trained(server, part) for part in client_parts(federation)]
        for name, value in server.items():
            change = torch.stack([model[name] - value for model in sent])
            mean = torch.einsum("k...,k->...", change, weight / weight.sum())
            server[name] = value + rate * mean
        output = logits_of(server, adjacency, features)
        for role, mask in (("validation", federation.validation), ("test", federation.test)):
            assert each.scores[role] == pytest.approx(100 * score(output, mask, federation)[0])
        loss = score(output, federation.validation, federation)[1]
        assert each.losses["validation"] == pytest.approx(loss, abs=1e-5)
    for name, value in server.items():
        assert_agree(method.parameters[name][0].detach(), value.float())
    assert len(set(outcome.test_by_client)) == 1
    assert len(outcome.test_by_client) == CLIENTS


def test_each_client_alone_is_scored_on_the_whole_graph() -> None:
    federation = small_federation(CLIENTS, nodes=80)
    method = created("local", federation)
    outcome = train(method)
    found = whole_graph(method)[1]().view(CLIENTS, 80, -1)
    adjacency, features = whole(federation)
    order = np.argsort(federation.origin.numpy())
    assert (federation.origin[order] == torch.arange(80)).all()
    scores = []
    for client in range(CLIENTS):
        model = {name: value[client].detach().double() for name, value in method.parameters.items()}
        output = logits_of(model, adjacency, features)
        assert_agree(found[client], output.float())
        scores.append(score(output, federation.test, federation)[0])
    assert outcome.curve["test"][-1] == pytest.approx(np.mean(scores))
    assert len(set(scores)) > 1
    plain = train(created("local", federation, evaluate="local"))
    assert_agree(plain.curve["loss"], outcome.curve["loss"])
    assert plain.curve["test"] != outcome.curve["test"]


def test_one_model_of_all_data_scores_the_same_from_all_clients() -> None:
    outcome = train(created("central", small_federation(CLIENTS, nodes=80)))
    assert len(set(outcome.test_by_client)) == 1
    assert len(outcome.test_by_client) == CLIENTS
