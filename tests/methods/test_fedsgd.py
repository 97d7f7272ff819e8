"""FedSGD: the one weighted loss equals the clients' own gradients, averaged; the server is one Adam."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import start_round, train
from fedsub.methods.fedsgd import FedSGD
from tests.methods.federations import small_federation

BACKBONES = ("graphsage", "mlp", "gcn")


def make(backbone: str, weighting: str, rounds: int = 3, epochs: int = 1) -> FedSGD:
    setting = make_setting(
        small_federation(clients=4, nodes=80),
        Architecture(backbone, (8,), dropout=0.0, input_norm=True),
        Schedule(
            rounds=rounds,
            local_epochs=epochs,
            learning_rate=0.01,
            weight_decay=1e-3,
            weighting=weighting,
            evaluate="received",
            selection="last",
            averaging="pooled",
        ),
        seed=1,
    )
    method = registry.create("fedsgd", {}, setting)
    assert isinstance(method, FedSGD)
    return method


def client_gradients(method: FedSGD) -> list[list[torch.Tensor]]:
    """Every client's gradient of its own mean loss, one client after another."""
    federation = method.federation
    gradients = []
    for client in range(federation.clients):
        mine = federation.train & (federation.client == client)
        loss = functional.cross_entropy(method.logits(None)[mine], federation.labels[mine])
        gradients.append(list(torch.autograd.grad(loss, list(method.parameters.values()))))
    return gradients


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("weighting", ["nodes", "training-nodes", "uniform"])
def test_three_rounds_equal_averaged_client_gradients(backbone: str, weighting: str) -> None:
    shared, looped = make(backbone, weighting), make(backbone, weighting)
    shared.build()
    looped.build()
    adam = torch.optim.Adam(looped.parameters.values(), lr=0.01, weight_decay=1e-3)
    for number in range(1, 4):
        start_round(shared, number)
        gradients = client_gradients(looped)
        for index, value in enumerate(looped.parameters.values()):
            terms = zip(looped.weights, gradients, strict=True)
            value.grad = torch.stack([share * gradient[index] for share, gradient in terms]).sum(0)
        adam.step()
    torch.testing.assert_close(shared.logits(None), looped.logits(None), rtol=1e-4, atol=1e-5)


def test_weighted_by_training_nodes_the_loss_is_the_pooled_mean() -> None:
    method = make("mlp", "training-nodes")
    method.build()
    logits = method.logits(None)
    federation = method.federation
    pooled = functional.cross_entropy(logits[federation.train], federation.labels[federation.train])
    torch.testing.assert_close(method.objective(logits), pooled)


def test_every_epoch_costs_a_gradient_and_a_model_per_client() -> None:
    method = make("mlp", "nodes", rounds=2, epochs=3)
    outcome = train(method)
    size = 4 * sum(value.numel() for value in method.parameters.values())
    assert outcome.bytes == {"up": 3 * 4 * size, "down": 3 * 4 * size, "once": 0}
    assert outcome.curve["loss"][0] == pytest.approx(outcome.curve["loss"][1], rel=0.5)
