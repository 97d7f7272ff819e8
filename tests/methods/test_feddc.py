"""FedDC comes out at the global optimum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients

SCHEDULE = Schedule(
    rounds=4, local_epochs=3, learning_rate=0.05, weight_decay=1e-3, optimiser="sgd", evaluate="received"
)


def test_many_local_steps_end_at_the_global_optimum():
    schedule = replace(SCHEDULE, rounds=30, learning_rate=0.3, weight_decay=0.02, evaluate_every=30)
    clients = Clients(replace(schedule, local_epochs=8), "sgc")
    assert clients.slope(clients.run("feddc", alpha=0.1)[0]) < 0.2 * clients.slope(clients.run("fedavg")[0])


def test_rates_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="learning rate: it must be positive"):
        Clients(replace(SCHEDULE, learning_rate=0.0)).create("feddc").build()
