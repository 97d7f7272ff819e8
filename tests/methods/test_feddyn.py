"""FedDyn comes out at the global optimum; what a client remembers."""

from __future__ import annotations

import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.server_rules import ServerRule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.feddyn import DynamicRegularisation, FedDyn
from tests.methods.federations import small_federation

CURVATURE = torch.tensor([[1.0], [3.0]])
CENTRE = torch.tensor([[1.0], [-1.0]])


def play(rule: ServerRule, rounds: int, steps: int, rate: float, weights: torch.Tensor) -> list[float]:
    """The server's w after each round: client k minimises a_k/2 (w − c_k)² by gradient steps from w."""
    server = {"w": torch.zeros(1, 1)}
    values = []
    for _ in range(rounds):
        w = server["w"].repeat(2, 1).requires_grad_()
        for _ in range(steps):
            loss = (CURVATURE / 2 * (w - CENTRE).square()).sum()
            penalty = rule.penalty({"w": w}, server)
            (gradient,) = torch.autograd.grad(loss if penalty is None else loss + penalty, w)
            w = (w - rate * gradient).detach().requires_grad_()
        rule.after_training({"w": w.detach()}, server)
        server = rule.step({"w": w.detach()}, weights, server)
        values.append(float(server["w"]))
    return values


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.25, 0.75)])
def test_many_local_steps_meet_at_the_global_optimum(weights: tuple[float, float]) -> None:
    share = torch.tensor(weights)
    optimum = float((share @ (CURVATURE * CENTRE)) / (share @ CURVATURE))
    assert play(DynamicRegularisation(0.5), 50, 15, 0.2, share)[-1] == pytest.approx(optimum, abs=1e-4)
    assert abs(play(ServerRule(), 50, 15, 0.2, share)[-1] - optimum) > 0.1


def test_a_client_remembers_what_it_trained_and_not_what_it_sent() -> None:
    schedule = Schedule(rounds=2, top_k=0.05)
    setting = make_setting(small_federation(clients=3), Architecture(hidden=(8,), dropout=0.0), schedule)
    method = registry.create("feddyn", {"alpha": 0.1}, setting)
    assert isinstance(method, FedDyn)
    method.build()
    start_round(method, 1)
    drift = {name: (value - method.received[name]).detach() for name, value in method.parameters.items()}
    end_round(method)
    assert isinstance(method.rule, DynamicRegularisation)
    for name, value in drift.items():
        torch.testing.assert_close(method.rule.gradient[name], -0.1 * value)
    sent = torch.cat([value.flatten() for value in method.rule.correction.values()])
    assert 0 < sent.count_nonzero() <= 3 * 0.05 * len(sent) + 3
