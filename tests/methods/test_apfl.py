"""APFL between FedAvg and Local, and its α."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.methods.apfl import APFL
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import start_round, train
from tests.methods.federations import small_federation
from tests.methods.oracle import client_parts, forward

SCHEDULE = Schedule(rounds=4, local_epochs=2, learning_rate=0.02, weight_decay=1e-3)


def run(name: str, schedule: Schedule = SCHEDULE, dropout: float = 0.5, **options: Any) -> FederatedMethod:
    setting = make_setting(small_federation(), Architecture(hidden=(8, 6), dropout=dropout), schedule, seed=2)
    method = registry.create(name, options, setting)
    train(method)
    return method


def run_apfl(**options: Any) -> APFL:
    method = run("apfl", **options)
    assert isinstance(method, APFL)
    return method


def test_fixed_alpha_stays_and_bytes_are_those_of_fedavg():
    apfl, fedavg = run_apfl(alpha=0.3, adaptive=False), run("fedavg")
    assert apfl.extras == pytest.approx({"alpha_mean": 0.3, "alpha_min": 0.3, "alpha_max": 0.3})
    assert apfl.channel.bytes_up == fedavg.channel.bytes_up
    assert apfl.channel.bytes_down == fedavg.channel.bytes_down


def test_two_steps_equal_a_plain_loop_over_clients():
    rate, start_alpha = 0.1, 0.4
    schedule = Schedule(rounds=1, local_epochs=2, learning_rate=rate, weight_decay=0.0, optimiser="sgd")
    federation = small_federation(clients=2)
    setting = make_setting(federation, Architecture(hidden=(8, 6), dropout=0.0), schedule, seed=2)
    method = registry.create("apfl", {"alpha": start_alpha}, setting)
    assert isinstance(method, APFL)
    method.build()
    start = {name: method.parameters[name][0].detach().clone() for name in method.shared()}
    start_round(method, 1)
    for client, part in enumerate(client_parts(federation)):
        shared = {name: value.clone().requires_grad_() for name, value in start.items()}
        personal = {name: value.clone().requires_grad_() for name, value in start.items()}
        alpha = torch.tensor(start_alpha)
        train_rows, target = part["train"], part["labels"][part["train"]]
        for _ in range(2):
            blend = {n: (alpha * personal[n] + (1 - alpha) * shared[n]).detach() for n in start}
            for value in blend.values():
                value.requires_grad_()
            own = functional.cross_entropy(forward(part, shared, "gcn")[train_rows], target)
            mixed = functional.cross_entropy(forward(part, blend, "gcn")[train_rows], target)
            to_shared = torch.autograd.grad(own, list(shared.values()))
            to_blend = torch.autograd.grad(mixed, list(blend.values()))
            slope = sum(
                ((personal[n] - shared[n]) * g).sum().detach() for n, g in zip(start, to_blend, strict=True)
            )
            with torch.no_grad():
                for name, g_shared, g_blend in zip(start, to_shared, to_blend, strict=True):
                    shared[name] -= rate * g_shared
                    personal[name] -= rate * alpha * g_blend
            alpha = (alpha - rate * slope).clamp(0, 1)
        assert float(method.alpha[client]) == pytest.approx(float(alpha), abs=1e-6)
        assert float(alpha) != start_alpha
        for name in start:
            torch.testing.assert_close(method.parameters[name][client], shared[name], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(
                method.parameters["personal." + name][client], personal[name], atol=1e-5, rtol=1e-5
            )


def test_alpha_is_clipped():
    apfl = run_apfl(alpha=0.5, alpha_rate=1e4)
    assert bool(((apfl.alpha == 0) | (apfl.alpha == 1)).all())


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"alpha": -0.1}, {"alpha_rate": -1.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(UserError, match="apfl"):
        run_apfl(**options)


@pytest.mark.parametrize("name", ["apfl"])
def test_it_predicts_links(name):
    setting = make_setting(
        small_federation(nodes=120), Architecture(hidden=(8, 6)), Schedule(rounds=3), task="link-prediction"
    )
    outcome = train(registry.create(name, {}, setting))
    assert 0 <= outcome.metrics["roc_auc"] <= 1
