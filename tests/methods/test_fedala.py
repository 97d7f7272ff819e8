"""FedALA against a plain loop, and where it is FedAvg."""

from __future__ import annotations

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.fedala import FedALA
from tests.methods.loops import Clients, assert_equal, leaves, mean, optimiser_of

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.3, weight_decay=1e-3, optimiser="sgd")
TOPMOST = {1: ("head",), 2: ("layers.1", "head"), 0: ("layers", "head")}


@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
@pytest.mark.parametrize(("layers", "threshold"), [(1, 0.1), (2, 0.004), (0, 0.0)])
def test_it_equals_a_plain_loop(backbone, layers, threshold):
    options = {"rate": 0.7, "threshold": threshold, "window": 3, "first_steps": 8}
    clients = Clients(SCHEDULE, backbone)
    method, _ = clients.run("fedala", share=1.0, layers=layers, **options)
    start, weights = clients.start()
    models = [leaves(start) for _ in clients.parts]
    optimisers = [optimiser_of(model, SCHEDULE) for model in models]
    upper = [name for name in start if name.startswith(TOPMOST[layers])]
    mixtures = [{name: torch.ones_like(start[name]) for name in upper} for _ in models]
    steps = []
    for number in range(SCHEDULE.rounds):
        for part, model, optimiser in zip(clients.parts, models, optimisers, strict=True):
            for _ in range(SCHEDULE.local_epochs):
                optimiser.zero_grad()
                clients.loss(part, model).backward()
                optimiser.step()
        server = mean(models, weights)
        for part, model, mixture in zip(clients.parts, models, mixtures, strict=True):
            own = {name: value.detach().clone() for name, value in model.items()}
            gap = {name: server[name] - own[name] for name in upper}

            losses: list[float] = []
            while len(losses) < (8 if number == 0 else 1):
                trial = leaves(server | {name: own[name] + mixture[name] * gap[name] for name in upper})
                loss = clients.loss(part, trial)
                loss.backward()
                losses.append(float(loss.detach()))
                for name in upper:
                    slope = trial[name].grad
                    assert slope is not None
                    mixture[name] = (mixture[name] - 0.7 * slope * gap[name]).clamp(0, 1)
                if len(losses) > 3 and torch.tensor(losses[-3:]).std(correction=0) < threshold:
                    break
            if number == 0:
                steps.append(len(losses))
            final = server | {name: own[name] + mixture[name] * gap[name] for name in upper}
            for name, value in final.items():
                model[name].data.copy_(value)
    assert_equal(method.parameters, models)
    assert_equal(method.mixture, mixtures)
    assert method.steps_taken == max(steps)
    assert min(float(value.min()) for value in method.mixture.values()) < 1


def test_lower_layers_are_the_servers_and_upper_ones_each_clients_own():
    method, outcome = Clients(SCHEDULE).run("fedala")
    assert set(method.mixture) == {"head.weight", "head.bias"}
    for name, value in method.parameters.items():
        assert torch.equal(value[0], value[1]) is (name not in method.mixture)
    assert 0 < outcome.extras["mixture_mean"] < 1
    assert outcome.extras["steps_taken"] == 11


@pytest.mark.parametrize("share", [0.8, 0.3, 0.01])
def test_the_share_is_drawn_from_each_clients_training_nodes_and_anew(share):
    method = Clients(SCHEDULE).create("fedala", {"share": share})
    assert isinstance(method, FedALA)
    method.build()
    federation = method.federation
    draws = [rows for rows in (method._draw() for _ in range(6)) if rows is not None]
    assert len(draws) == 6
    for rows in draws:
        assert federation.train[rows].all()
        assert len(rows.unique()) == len(rows)
        for client, count in enumerate(federation.count(federation.train).tolist()):
            assert int((federation.client[rows] == client).sum()) == max(1, int(share * count))
    assert len({tuple(rows.tolist()) for rows in draws}) > 1


def test_with_part_of_the_nodes_mixing_lowers_the_loss_of_what_was_received():
    clients = Clients(SCHEDULE)
    ours = clients.create("fedala", {"rate": 10.0, "layers": 0})
    ours.build()
    start_round(ours, 1)
    end_round(ours)
    plain = clients.create("fedavg")
    plain.build()
    start_round(plain, 1)
    end_round(plain)
    with torch.no_grad():
        assert float(ours.task.loss(ours.logits(None))) < float(plain.task.loss(plain.logits(None)))


@pytest.mark.parametrize(
    "bad", [{"share": 0.0}, {"share": 1.1}, {"rate": -1.0}, {"layers": -1}, {"window": 0}]
)
def test_options_that_cannot_be_are_refused(bad):
    with pytest.raises(UserError, match="fedala's"):
        registry.make_options("fedala", bad)
    assert "layers" in registry.make_options("fedala", {"rate": 0.0}).unused("gcn")
    assert set(registry.make_options("fedala", {"threshold": 0.0}).unused("gcn")) == {"window"}
