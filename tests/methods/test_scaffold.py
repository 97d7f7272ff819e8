"""SCAFFOLD does not drift from the global optimum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients

SCHEDULE = Schedule(
    rounds=4, local_epochs=3, learning_rate=0.1, weight_decay=0.0, optimiser="sgd", evaluate="received"
)


def test_many_local_steps_do_not_drift_from_the_global_optimum():
    # Strongly convex: the weighted gradient of the regularised losses vanishes at the optimum alone.
    schedule = replace(
        SCHEDULE, rounds=16, local_epochs=8, learning_rate=0.5, weight_decay=0.02, evaluate_every=16
    )
    clients = Clients(schedule, "sgc")
    assert clients.slope(clients.run("scaffold")[0]) < 0.2 * clients.slope(clients.run("fedavg")[0])


def test_rates_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="learning rate: it must be positive"):
        Clients(replace(SCHEDULE, learning_rate=0.0)).create("scaffold").build()
