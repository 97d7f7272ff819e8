"""Models that clients are evaluated with."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.training import train
from fedsub.methods.stacked.architecture import Architecture
from tests.methods.federations import community_federation, make_method
from tests.methods.loops import Clients
from tests.methods.rounding import assert_agree

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
