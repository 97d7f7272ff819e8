"""Ditto between FedAvg and Local, and against a plain loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients, assert_equal, leaves, mean, numbers, optimiser_of
from tests.methods.rounding import assert_agree

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.02, weight_decay=1e-3)


@pytest.mark.parametrize(
    ("backbone", "optimiser"), [("gcn", "adam"), ("sgc", "adam"), ("graphsage", "sgd"), ("mlp", "sgd")]
)
def test_it_equals_a_plain_loop(backbone, optimiser):
    schedule = replace(SCHEDULE, optimiser=optimiser, learning_rate=0.3 if optimiser == "sgd" else 0.01)
    clients = Clients(schedule, backbone)
    method, _ = clients.run("ditto", strength=0.7)
    start, weights = clients.start()
    shared, own = ([leaves(start) for _ in clients.parts] for _ in range(2))
    steps = [[optimiser_of(model, schedule) for model in models] for models in (shared, own)]
    server = start
    for _ in range(schedule.rounds):
        for k, part in enumerate(clients.parts):
            for _ in range(schedule.local_epochs):
                for models, optimisers, strength in ((shared, steps[0], 0.0), (own, steps[1], 0.7)):
                    optimisers[k].zero_grad()
                    loss = clients.loss(part, models[k])
                    near = sum((value - server[name]).square().sum() for name, value in models[k].items())
                    (loss + strength / 2 * near).backward()
                    optimisers[k].step()
        server = mean(shared, weights)
        for model in shared:
            for name, value in model.items():
                value.data.copy_(server[name])
    assert_equal(method.parameters, shared)
    assert_equal(method.personal(), own)


@pytest.mark.parametrize("strength", [0.0, 5.0])
def test_the_shared_model_is_fedavgs(strength):
    clients = Clients(SCHEDULE, dropout=0.5)
    ditto, fedavg = clients.run("ditto", strength=strength)[0], clients.run("fedavg")[0]
    assert_agree({name: ditto.parameters[name] for name in fedavg.parameters}, fedavg.parameters)


def test_great_strength_holds_the_personal_models_at_what_was_received():
    schedule = replace(SCHEDULE, rounds=30, optimiser="sgd", learning_rate=0.05)

    def distance(strength):
        method = Clients(schedule).run("ditto", strength=strength)[0]
        return sum(
            float((value - method.received[name]).detach().square().sum())
            for name, value in method.personal().items()
        )

    assert distance(20.0) < 0.05 * distance(0.0)


def test_only_the_shared_model_travels():
    clients = Clients(SCHEDULE)
    sent = 3 * 4 * numbers(clients.start()[0])
    assert clients.run("ditto")[1].bytes == {"up": sent, "down": sent, "once": 0}


def test_a_strength_that_cannot_be_is_refused():
    with pytest.raises(UserError, match="ditto's strength must not be negative"):
        registry.make_options("ditto", {"strength": -1.0})
