"""MOON against a plain loop, and where it is FedAvg."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import start_round
from tests.methods.federations import small_federation
from tests.methods.loops import Clients, assert_equal, hidden_of, leaves, mean, numbers, optimiser_of
from tests.methods.rounding import agree

SCHEDULE = Schedule(rounds=3, local_epochs=2, learning_rate=0.02, weight_decay=1e-3)


def cosine(first, second):
    return (first * second).sum(1) / (first.norm(dim=1) * second.norm(dim=1)).clamp(min=1e-8)


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
@pytest.mark.parametrize(("nodes", "optimiser"), [("all", "sgd"), ("training", "adam")])
def test_it_equals_a_plain_loop(backbone, nodes, optimiser):
    rate = 0.3 if optimiser == "sgd" else 0.01
    schedule = replace(SCHEDULE, optimiser=optimiser, learning_rate=rate)
    clients = Clients(schedule, backbone)
    method, _ = clients.run("moon", mu=2.0, temperature=0.3, nodes=nodes)
    start, weights = clients.start()
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, schedule) for model in models]
    previous = [torch.zeros(()) for _ in models]
    for number in range(schedule.rounds):
        for k, (part, model) in enumerate(zip(clients.parts, models, strict=True)):
            received = hidden_of(part, model, backbone).detach()
            for _ in range(schedule.local_epochs):
                optimisers[k].zero_grad()
                loss = clients.loss(part, model)
                if number > 0:
                    hidden = hidden_of(part, model, backbone)
                    near = torch.exp(cosine(hidden, received) / 0.3)
                    far = torch.exp(cosine(hidden, previous[k]) / 0.3)
                    contrast = -torch.log(near / (near + far))
                    loss = loss + 2.0 * (contrast if nodes == "all" else contrast[part["train"]]).mean()
                loss.backward()
                optimisers[k].step()
            previous[k] = hidden_of(part, model, backbone).detach()
        server = mean(models, weights)
        for model in models:
            for name, value in model.items():
                value.data.copy_(server[name])
    assert_equal(method.parameters, models)
    plain = clients.run("fedavg")[0]
    assert (
        max(float((plain.parameters[n] - v).detach().abs().max()) for n, v in method.parameters.items())
        > 1e-3
    )


def test_the_contrast_moves_clients_towards_the_received_hidden_layers():
    clients = Clients(SCHEDULE)

    def distance(mu):
        method = clients.run("moon", mu=mu)[0]
        anchor = method.received_hidden
        start_round(method, 4)
        with torch.no_grad():
            return float((1 - cosine(method.embed(None), anchor)).mean())

    assert distance(10.0) < 0.8 * distance(0.0)


def test_the_papers_projection_head_is_trained_and_sent():
    clients = Clients(SCHEDULE)
    method, outcome = clients.run("moon", projection=True)
    start, _ = clients.start("moon", projection=True)
    width = 6
    assert numbers(start) == numbers(clients.start()[0]) + 2 * (width * width + width)
    assert outcome.bytes["down"] == 3 * 4 * numbers(start)
    k, rows = 1, method.federation.client == 1
    model = {name: value[k] for name, value in method.parameters.items()}
    hidden = hidden_of(clients.parts[k], model, "gcn")
    inner = torch.relu(hidden @ model["projection.0.weight"] + model["projection.0.bias"])
    outer = inner @ model["projection.1.weight"] + model["projection.1.bias"]
    with torch.no_grad():
        torch.testing.assert_close(method.embed(None)[rows], outer, atol=1e-5, rtol=1e-5)
        logits = outer @ model["head.weight"] + model["head.bias"]
        torch.testing.assert_close(method.predict()[rows], logits, atol=1e-5, rtol=1e-5)
    for name, value in start.items():
        assert not agree(method.parameters[name][0], value), name


def test_options_that_cannot_be_or_cannot_act():
    for bad in ({"mu": -1.0}, {"temperature": 0.0}):
        with pytest.raises(UserError, match="moon's"):
            registry.make_options("moon", bad)
    assert set(registry.make_options("moon", {"mu": 0.0}).unused("gcn")) == {"temperature", "nodes"}
    assert set(registry.make_options("moon", {}).unused("sgc")) == {"projection"}
    setting = make_setting(small_federation(), Architecture(hidden=(8, 8)), task="link-prediction")
    with pytest.raises(UserError, match=r"moon\[nodes=training\] needs nodes to train on"):
        registry.create("moon", {"nodes": "training"}, setting).build()
