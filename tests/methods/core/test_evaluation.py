"""What clients are evaluated with."""

from __future__ import annotations

from dataclasses import replace

import torch

from methods.core.base import Schedule
from methods.core.training import train
from tests.methods.federations import community_federation
from tests.methods.loops import Clients

SCHEDULE = Schedule(rounds=2, local_epochs=2, learning_rate=0.05)


def test_dropout_in_evaluation_is_drawn_anew_and_right_on_average():
    """The layer after the only hidden one is linear in what dropout leaves: its mean over the draws is the
    plain output."""
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


def test_without_dropout_there_is_none_in_evaluation():
    federation = community_federation(nodes=60)
    outcomes = [
        train(Clients(schedule, dropout=0.0, federation=federation).create("fedavg"))
        for schedule in (SCHEDULE, replace(SCHEDULE, evaluate_dropout=True))
    ]
    assert outcomes[0].metrics == outcomes[1].metrics
