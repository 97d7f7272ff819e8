"""What FedALA reports, and which of its layers are mixed."""

from __future__ import annotations

import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.3, weight_decay=1e-3, optimiser="sgd")


def test_lower_layers_are_the_servers_and_upper_ones_each_clients_own():
    method, outcome = Clients(SCHEDULE).run("fedala")
    assert set(method.mixture) == {"head.weight", "head.bias"}
    for name, value in method.parameters.items():
        assert torch.equal(value[0], value[1]) is (name not in method.mixture)
    assert 0 < outcome.extras["mixture_mean"] < 1
    assert outcome.extras["steps_taken"] == 11


def test_options_that_cannot_act():
    assert "layers" in registry.make_options("fedala", {"rate": 0.0}).unused("gcn")
    assert set(registry.make_options("fedala", {"threshold": 0.0}).unused("gcn")) == {"window"}
