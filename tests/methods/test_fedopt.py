"""FedAdagrad's and FedAdam's two rounds by hand."""

from __future__ import annotations

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from fedsub.methods.fedopt import AdaptiveServer, FedAdagradOptions, FedAdamOptions
from tests.methods.federations import small_federation
from tests.methods.test_feddyn import play

EVEN = torch.tensor([0.5, 0.5])


def test_fedadagrad_two_rounds_by_hand() -> None:
    # η = 1, τ = 0.1, one local step of 0.1. Round 1: w_k = 0.1, −0.3; Δ = −0.1; v = 0.01 + 0.01 = 0.02;
    # w = −0.1 / (√0.02 + 0.1) = −0.41421. Round 2: gradients w − 1 = −1.41421, 3 (w + 1) = 1.75736;
    # Δ = −0.1 · (−1.41421 + 1.75736) / 2 = −0.01716; v = 0.02029; w = −0.41421 − 0.01716 / 0.24246.
    rounds = play(AdaptiveServer(FedAdagradOptions(1.0, 0.1, 0.0)), 2, 1, 0.1, EVEN)
    assert rounds == pytest.approx([-0.414214, -0.484980], abs=2e-5)


def test_fedadam_two_rounds_by_hand() -> None:
    # β₁ = 0.9, β₂ = 0.99. Round 1: Δ = −0.1; m = −0.01; v = 0.99 · 0.01 + 0.01 · 0.01 = 0.01;
    # w = −0.01 / 0.2 = −0.05. Round 2: gradients −1.05, 2.85; Δ = −0.09; m = −0.009 − 0.009 = −0.018;
    # v = 0.0099 + 0.01 · 0.0081 = 0.009981; w = −0.05 − 0.018 / (0.099905 + 0.1) = −0.140043.
    rounds = play(AdaptiveServer(FedAdamOptions(1.0, 0.1, 0.9, 0.99)), 2, 1, 0.1, EVEN)
    assert rounds == pytest.approx([-0.05, -0.140043], abs=1e-6)


def test_weights_scale_the_change() -> None:
    # p = ¼, ¾: Δ = 0.025 − 0.225 = −0.2; v = 0.01 + 0.04; w = −0.2 / (√0.05 + 0.1).
    rounds = play(AdaptiveServer(FedAdagradOptions(1.0, 0.1, 0.0)), 1, 1, 0.1, torch.tensor([0.25, 0.75]))
    assert rounds == pytest.approx([-0.618034], abs=1e-6)


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam"])
def test_trains_and_sends_models_only(name: str) -> None:
    federation = small_federation(clients=3)
    architecture = Architecture(hidden=(8, 8), dropout=0.0)
    schedule = Schedule(rounds=20, local_epochs=5, learning_rate=0.1, optimiser="sgd")
    setting = make_setting(federation, architecture, schedule, seed=0)
    outcome = train(registry.create(name, {}, setting))
    assert outcome.bytes == train(registry.create("fedavg", {}, setting)).bytes
    assert outcome.curve["loss"][-1] < outcome.curve["loss"][0]


def test_bad_options() -> None:
    with pytest.raises(UserError, match="must be positive"):
        AdaptiveServer(FedAdamOptions(tau=0.0))
