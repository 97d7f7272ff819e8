"""SCAFFOLD against a plain loop, and where it must be FedAvg."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients, assert_equal, leaves, mean, numbers, optimiser_of

SCHEDULE = Schedule(
    rounds=4, local_epochs=3, learning_rate=0.1, weight_decay=0.0, optimiser="sgd", evaluate="received"
)


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
@pytest.mark.parametrize("control", ["steps", "gradient"])
@pytest.mark.parametrize(("optimiser", "weighting"), [("sgd", "schedule"), ("adam", "uniform")])
def test_it_equals_a_plain_loop(backbone, control, optimiser, weighting):
    # Adam turns rounding into steps where a gradient and its control cancel: fewer rounds.
    exact = optimiser == "sgd"
    rounds = 4 if exact else 2
    schedule = replace(SCHEDULE, rounds=rounds, optimiser=optimiser, weight_decay=1e-3, learning_rate=0.02)
    clients = Clients(schedule, backbone)
    method, _ = clients.run("scaffold", control=control, control_weights=weighting, server_rate=0.7)
    start, weights = clients.start()
    server, models = start, [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, schedule) for model in models]
    zeros = {name: torch.zeros_like(value) for name, value in start.items()}
    common, own = zeros, [zeros for _ in models]
    for _ in range(schedule.rounds):
        for k, (part, model) in enumerate(zip(clients.parts, models, strict=True)):
            for epoch in range(schedule.local_epochs):
                loss = clients.loss(part, model)
                gradients = dict(zip(model, torch.autograd.grad(loss, list(model.values())), strict=True))
                if epoch == 0:
                    first = gradients
                for name, value in model.items():
                    value.grad = gradients[name] - own[k][name] + common[name]
                optimisers[k].step()
            walked = schedule.local_epochs * schedule.learning_rate
            own[k] = {
                name: first[name]
                if control == "gradient"
                else own[k][name] - common[name] + (server[name] - model[name].detach()) / walked
                for name in start
            }
        common = mean(own, weights if weighting == "schedule" else [1 / 3] * 3)
        middle = mean(models, weights)
        server = {name: server[name] + 0.7 * (middle[name] - server[name]) for name in start}
        for model in models:
            for name, value in model.items():
                value.data.copy_(server[name])
    assert_equal(method.parameters, models, 1e-5 if exact else 2e-4)
    # (ii) divides differences of parameters, and so their rounding, by τη = 0.06.
    assert_equal(method.control, own, 1e-4 if exact else 5e-3)


@pytest.mark.parametrize("control", ["steps", "gradient"])
def test_with_one_local_step_it_is_fedavg_and_the_controls_are_gradients(control):
    clients = Clients(replace(SCHEDULE, rounds=6, local_epochs=1))
    found, plain = clients.run("scaffold", control=control)[0], clients.run("fedavg")[0]
    for name, value in plain.parameters.items():
        torch.testing.assert_close(found.parameters[name], value, atol=1e-5, rtol=1e-5)
    before = Clients(replace(SCHEDULE, rounds=5, local_epochs=1)).run("fedavg")[0]
    for k, part in enumerate(clients.parts):
        model = leaves({name: value[k] for name, value in before.parameters.items()})
        clients.loss(part, model).backward()
        for name, value in model.items():
            torch.testing.assert_close(found.control[name][k], value.grad, atol=2e-5, rtol=1e-4)


def test_many_local_steps_do_not_drift_from_the_global_optimum():
    # Strongly convex: the weighted gradient of the regularised losses vanishes at the optimum alone.
    schedule = replace(
        SCHEDULE, rounds=16, local_epochs=8, learning_rate=0.5, weight_decay=0.02, evaluate_every=16
    )
    clients = Clients(schedule, "sgc")
    assert clients.slope(clients.run("scaffold")[0]) < 0.2 * clients.slope(clients.run("fedavg")[0])


def test_models_and_controls_travel_both_ways():
    clients = Clients(SCHEDULE)
    entries = numbers(clients.start()[0])
    assert entries == 12 * 8 + 8 + 8 * 6 + 6 + 6 * 3 + 3
    sent = 3 * 2 * 4 * entries
    assert clients.run("scaffold")[1].bytes == {"up": sent, "down": sent, "once": 0}


def test_rates_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="server_rate must be positive"):
        Clients(SCHEDULE).create("scaffold", {"server_rate": 0.0})
    with pytest.raises(UserError, match="learning rate: it must be positive"):
        Clients(replace(SCHEDULE, learning_rate=0.0)).create("scaffold").build()
