"""Ditto's shared model is FedAvg's, with dropout too."""

from __future__ import annotations

import pytest

from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.02, weight_decay=1e-3)


@pytest.mark.parametrize("strength", [0.0, 5.0])
def test_the_shared_model_is_fedavgs(strength):
    clients = Clients(SCHEDULE, dropout=0.5)
    ditto, fedavg = clients.run("ditto", strength=strength)[0], clients.run("fedavg")[0]
    assert_agree({name: ditto.parameters[name] for name in fedavg.parameters}, fedavg.parameters)
