"""FedDC against a plain loop, its first round, and where it comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from tests.methods.loops import Clients, assert_equal, leaves, mean, numbers, optimiser_of

SCHEDULE = Schedule(
    rounds=4, local_epochs=3, learning_rate=0.05, weight_decay=1e-3, optimiser="sgd", evaluate="received"
)
ALPHA = 0.3


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
@pytest.mark.parametrize("variant", ["paper", "authors", "openfgl"])
def test_it_equals_a_plain_loop(backbone, variant):
    clients = Clients(SCHEDULE, backbone)
    method, _ = clients.run("feddc", alpha=ALPHA, variant=variant)
    start, weights = clients.start()
    equal = [1 / 3] * 3
    server, models = start, [leaves(start) for _ in clients.parts]
    zeros = {name: torch.zeros_like(value) for name, value in start.items()}
    drift, state, update = [zeros] * 3, [zeros] * 3, [zeros] * 3
    common = zeros
    scale = 1 / (SCHEDULE.learning_rate * SCHEDULE.local_epochs)
    for number in range(SCHEDULE.rounds):
        for k, (part, model) in enumerate(zip(clients.parts, models, strict=True)):
            optimiser = optimiser_of(model, SCHEDULE)
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                loss = clients.loss(part, model)
                if number > 0 or variant != "openfgl":
                    for name, value in model.items():
                        penalty = (drift[k][name] + value - server[name]).square().sum()
                        loss = loss + ALPHA / 2 * penalty
                        if variant == "openfgl":  # as its code has it, ū inside the sum
                            loss = loss + scale * (value * update[k][name] - common[name]).sum()
                        else:
                            loss = loss + (value * (state[k][name] - common[name])).sum()
                loss.backward()
                optimiser.step()
            moved = {name: model[name].detach() - server[name] for name in start}
            if variant == "authors":
                state[k] = {n: state[k][n] - common[n] + scale * moved[n] for n in start}
            else:
                state[k] = {n: scale * moved[n] for n in start}
            added = update[k] if variant == "openfgl" else moved
            drift[k] = {n: drift[k][n] + added[n] for n in start}
            update[k] = moved
        common = mean(update if variant == "openfgl" else state, equal)
        share = equal if variant == "authors" else weights
        middle, drifted = mean(models, share), mean(drift, share)
        server = {n: middle[n] + drifted[n] for n in start}
        for model in models:
            for name, value in model.items():
                value.data.copy_(server[name])
    assert_equal(method.parameters, models)
    assert_equal(method.drift, drift)


def test_after_one_round_the_server_has_moved_twice_as_far_as_fedprox():
    clients = Clients(replace(SCHEDULE, rounds=1))
    found, near = clients.run("feddc", alpha=ALPHA)[0], clients.run("fedprox", mu=ALPHA)[0]
    start, _ = clients.start()
    for name, value in start.items():
        step = near.parameters[name] - value
        torch.testing.assert_close(found.parameters[name] - value, 2 * step, atol=1e-5, rtol=1e-4)


def test_many_local_steps_end_at_the_global_optimum():
    schedule = replace(SCHEDULE, rounds=30, learning_rate=0.3, weight_decay=0.02, evaluate_every=30)
    clients = Clients(replace(schedule, local_epochs=8), "sgc")
    assert clients.slope(clients.run("feddc", alpha=0.1)[0]) < 0.2 * clients.slope(clients.run("fedavg")[0])


def test_models_and_updates_travel_both_ways():
    clients = Clients(SCHEDULE)
    sent = 3 * 2 * 4 * numbers(clients.start()[0])
    assert clients.run("feddc")[1].bytes == {"up": sent, "down": sent, "once": 0}


def test_rates_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="feddc's alpha must not be negative"):
        registry.make_options("feddc", {"alpha": -1.0})
    with pytest.raises(UserError, match="learning rate: it must be positive"):
        Clients(replace(SCHEDULE, learning_rate=0.0)).create("feddc").build()
