"""SCAFFOLD as a loop over clients, from algorithm 1 of Karimireddy et al., ICML 2020.

The server holds a model x and a control c, client k a control c_k; controls start at zero. A client of the
round begins at y = x and takes τ steps along g_k(y) − c_k + c, which plain gradient descent makes

    y ← y − η (g_k(y) − c_k + c).                                                       (1)

Then its control is the gradient at the model that it received, or the mean of its steps:

    c_k⁺ = g_k(x)                            (option I)
    c_k⁺ = c_k − c + (x − y) / (τ η)         (option II)                                (2)

and the server moves, S being the clients of the round and N all clients,

    x ← x + η_g · mean_{k ∈ S} (y_k − x),    c ← c + |S|/N · mean_{k ∈ S} (c_k⁺ − c_k).  (3)

Weighted means take p_k for 1/N in both; then c is Σ_k p_k c_k over all clients at any time. Public code for
graphs gives g_k − c_k + c to Adam. Algorithm 1 has no weight decay: here, as in `methods.scaffold`, steps are
along it too, so that option II has its mean, while option I is the gradient of the cross-entropy alone.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import mean
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, copied, divided
from tests.methods.second_derivation.rounds import (
    EVERYONE,
    SOME,
    Meter,
    difference,
    fit,
    inner,
    overwrite,
    supervised,
    turn,
    zeros,
)

CLIENTS, DECAY = 5, 1e-2
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 3, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 3, "weight_decay": DECAY}


def compare(backbone: str, options: dict[str, Any], schedule: dict[str, Any]) -> None:
    """Every round's models, and the bytes, are the stacked method's."""
    pair = Pair(divided(COMMUNITY, CLIENTS), "scaffold", options, backbone, **schedule)
    models, rate = pair.models, schedule["learning_rate"]
    by_steps, server_rate = options.get("control", "steps") == "steps", options.get("server_rate", 1.0)
    uniform = options.get("control_weights") == "uniform"
    server, control = copied(models[0]), zeros(models[0])
    controls = [zeros(model) for model in models]
    training = [int(part["train"].sum()) for part in pair.parts]
    shares = [1 / CLIENTS if uniform else size / sum(training) for size in training]
    meter = Meter(pair, up=2, down=2)
    for number in range(1, schedule["rounds"] + 1):
        now = turn(pair, number)
        step = zeros(control)
        for k in now.present:
            part, model = pair.parts[k], models[k]
            before, correction = controls[k], difference(control, controls[k])
            if by_steps:
                # (1), for the derivative of ⟨y, c − c_k⟩ is c − c_k.
                _train(pair, k, backbone, correction, now.epochs[k])
                moved = difference(server, model)
                scale = now.epochs[k] * rate
                controls[k] = {n: before[n] - control[n] + moved[n] / scale for n in model}
            else:
                slope = torch.autograd.grad(
                    supervised(part, forward(part, model, backbone)), list(model.values())
                )
                controls[k] = dict(zip(model, slope, strict=True))
                _train(pair, k, backbone, correction, now.epochs[k])
            changed = difference(controls[k], before)
            step = {n: step[n] + shares[k] * changed[n] for n in model}
        control = {n: control[n] + step[n] for n in control}
        moved = mean([difference(models[k], server) for k in now.present], now.weights)
        server = {n: server[n] + server_rate * moved[n] for n in server}
        overwrite(models, now.receiving, server)
        meter.count(now)
        pair.compare(number)
    meter.compare()


def _train(pair: Pair, client: int, backbone: str, correction: Parameters, epochs: int) -> None:
    part, model = pair.parts[client], pair.models[client]
    fit(
        pair.optimisers[client],
        lambda: supervised(part, forward(part, model, backbone)) + inner(model, correction),
        epochs,
    )


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("weights", ["schedule", "uniform"])
@pytest.mark.parametrize("control", ["steps", "gradient"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
def test_rounds_agree(backbone: str, control: str, weights: str, attendance: dict[str, Any]) -> None:
    compare(backbone, {"control": control, "control_weights": weights}, {**SGD, **attendance})


@pytest.mark.parametrize("control", ["steps", "gradient"])
def test_rounds_agree_with_adam(control: str) -> None:
    # Two rounds: option II divides differences of single precision by τη = 0.03, and Adam enlarges the error.
    compare("gcn", {"control": control}, {**ADAM, **EVERYONE, "rounds": 2})


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
def test_rounds_agree_with_a_server_that_steps_less(attendance: dict[str, Any]) -> None:
    compare("gcn", {"server_rate": 0.5}, {**SGD, **attendance})
