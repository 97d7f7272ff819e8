"""Models that clients are evaluated with."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.evaluation import WholeGraph
from fedsub.methods.core.training import train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation, make_method
from tests.methods.loops import Clients
from tests.methods.rounding import assert_agree
from tests.methods.variants import CASES

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.05)
OPTIONS: dict[str, dict[str, Any]] = {
    "fedlit": {"dropout": 0.0},
    "fedsage+": {"wide": 16, "narrow": 8, "latent": 8, "generator_epochs": 2},
}
"""Options with which a method is fast and has no dropout."""


def test_dropout_in_evaluation_is_drawn_anew_and_right_on_average():
    """The output layer is linear in the hidden layer after dropout: the mean over draws is the output without
    dropout."""
    kept_on = replace(SCHEDULE, evaluate_dropout=True)
    clients = Clients(kept_on, dropout=0.5, federation=community_federation(nodes=60))
    clients.architecture = replace(clients.architecture, hidden=(16,))
    method = clients.create("fedavg")
    train(method)
    drawn = torch.stack([method.predict() for _ in range(600)])
    assert not torch.equal(drawn[0], drawn[1])
    method.schedule = SCHEDULE
    plain = method.predict()
    assert torch.equal(plain, method.predict())
    error = drawn.std(dim=0) / len(drawn) ** 0.5
    assert ((drawn.mean(dim=0) - plain).abs() < 5 * error + 1e-5).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, OPTIONS.get(name, {})) for name in registry.names()),
        ("fedcog", {"convolution": "gcn"}),
        ("fedpub", {"lambda1": 0.95}),
        ("fedgta", {"network": "gamlp", "hop_weights": "reference"}),
        ("fedstruct", {"version": "b"}),
        ("fedstruct", {"inference": "structure"}),
    ],
)
def test_what_evaluation_does_besides_does_not_hang_on_dropout(name: str, options: dict[str, Any]) -> None:
    """With dropout 0 it makes no difference whether dropout stays on."""
    architecture = Architecture(registry.describe(name).backbones[0], hidden=(8, 8), dropout=0.0)
    federation = community_federation(nodes=60)
    predicted = []
    for schedule in (SCHEDULE, replace(SCHEDULE, evaluate_dropout=True)):
        method = make_method(name, options, federation, architecture, schedule)
        train(method)
        predicted.append(method.predict())
    assert_agree(*predicted)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_on_the_whole_graph_nothing_of_the_own_graph_predicts(name: str, options: dict[str, Any]) -> None:
    """A method is refused, or each client's model predicts as if the whole graph were the client's own."""
    federation = community_federation(nodes=60)
    architecture = Architecture(registry.describe(name).backbones[0], hidden=(8, 8), dropout=0.0)
    schedule = replace(SCHEDULE, evaluate="whole-graph")
    method = make_method(name, options, federation, architecture, schedule)
    method.build()
    try:
        WholeGraph(method)
    except UserError:
        return
    train(method)
    predicted = WholeGraph(method).predict(method).view(federation.clients, federation.nodes, -1)
    twin = make_method(name, options, federation.merged()[0], architecture, schedule)
    twin.build()
    for client in range(federation.clients):
        for key, own in method.parameters.items():
            model = method.received.get(key, own)
            twin.parameters[key] = model[min(client, len(model) - 1)].unsqueeze(0)
        assert_agree(predicted[client], twin.predict())
