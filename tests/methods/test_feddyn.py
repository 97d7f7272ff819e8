"""FedDyn's two rounds by hand, and where it must come out."""

from __future__ import annotations

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.server_rules import ServerRule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import end_round, start_round, train
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


def test_two_rounds_by_hand() -> None:
    # α = 1, one step of 0.1. Round 1, from 0: gradients −1 and 3, so w_k = 0.1 and −0.3;
    # g = −0.1, 0.3; h = −(0.1 − 0.3)/2 = 0.1; w = −0.1 − 0.1 = −0.2.
    # Round 2, from −0.2: gradients (−0.2 − 1) + 0.1 = −1.1 and 3 · 0.8 − 0.3 = 2.1, so w_k = −0.09 and
    # −0.41; drifts 0.11 and −0.21; h = 0.1 − (0.11 − 0.21)/2 = 0.15; w = −0.25 − 0.15 = −0.4.
    rule = DynamicRegularisation(1.0)
    assert play(rule, 2, 1, 0.1, torch.tensor([0.5, 0.5])) == pytest.approx([-0.2, -0.4])
    torch.testing.assert_close(rule.gradient["w"], torch.tensor([[-0.21], [0.51]]))
    torch.testing.assert_close(rule.correction["w"], torch.tensor([[0.15]]))


def test_two_rounds_by_hand_with_unequal_weights() -> None:
    # p = ¼, ¾. Round 1: h = −(0.025 − 0.225) = 0.2; w = −0.2 − 0.2 = −0.4.
    # Round 2, from −0.4: gradients −1.4 + 0.1 = −1.3 and 1.8 − 0.3 = 1.5; w_k = −0.27 and −0.55;
    # drifts 0.13 and −0.15; h = 0.2 − (0.0325 − 0.1125) = 0.28; w = −0.48 − 0.28 = −0.76.
    rounds = play(DynamicRegularisation(1.0), 2, 1, 0.1, torch.tensor([0.25, 0.75]))
    assert rounds == pytest.approx([-0.4, -0.76])


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.25, 0.75)])
def test_many_local_steps_meet_at_the_global_optimum(weights: tuple[float, float]) -> None:
    share = torch.tensor(weights)
    optimum = float((share @ (CURVATURE * CENTRE)) / (share @ CURVATURE))
    assert play(DynamicRegularisation(0.5), 60, 40, 0.1, share)[-1] == pytest.approx(optimum, abs=1e-4)
    assert abs(play(ServerRule(), 60, 40, 0.1, share)[-1] - optimum) > 0.1


def test_trains_and_sends_models_only() -> None:
    federation = small_federation(clients=3)
    architecture = Architecture(hidden=(8, 8), dropout=0.0)
    schedule = Schedule(rounds=20, local_epochs=5, learning_rate=0.1, optimiser="sgd", evaluate="received")
    setting = make_setting(federation, architecture, schedule, seed=0)
    untrained = registry.create("feddyn", {"alpha": 0.1}, setting)
    untrained.build()
    before = float(untrained.task.loss(untrained.predict()))
    method = registry.create("feddyn", {"alpha": 0.1}, setting)
    outcome = train(method)
    plain = train(registry.create("fedavg", {}, setting))
    assert outcome.bytes == plain.bytes
    # The curve's loss holds the penalty, which may grow: the clients' own losses must fall.
    assert float(method.task.loss(method.predict())) < 0.5 * before
    kept = method.rule.gradient  # type: ignore[attr-defined]
    assert {name: value.shape for name, value in kept.items()} == {
        name: value.shape for name, value in method.parameters.items()
    }


def test_alpha_must_be_positive() -> None:
    with pytest.raises(UserError, match="alpha must be positive"):
        registry.make_options("feddyn", {"alpha": 0.0})


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
