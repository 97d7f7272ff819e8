"""FedDC as a loop over clients: as Gao et al., CVPR 2022, print it, as their code and as OpenFGL have it.

Client k keeps a drift h_k and its last update u_k = θ_k − w, θ_k being its model after training and w what it
had received; both are zero at the start. It takes τ steps of rate η from w on

    F_k(θ) + α/2 ‖h_k + θ − w‖² + ⟨θ, g_k − ḡ⟩,    g_k = u_k / (τη),  ḡ = mean of g_k,   (1)

the last term with what the round before left, and then

    h_k ← h_k + u_k,    w ← Σ_k p_k (θ_k + h_k).                                         (2)

The paper has one τ; with more than one, g_k has the τ of the client's last training (`methods.feddc`). ḡ
and w are means over the clients of the round.

OpenFGL has (1) and (2) without ḡ, which is a
constant in its formula, without the two terms in the first round, and with the update of the round before
in h_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, copied, divided
from tests.methods.second_derivation.rounds import (
    EVERYONE,
    SOME,
    Meter,
    difference,
    distance,
    fit,
    inner,
    overwrite,
    supervised,
    turn,
    zeros,
)

CLIENTS, ALPHA, DECAY = 5, 0.3, 1e-3
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 3, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 3, "weight_decay": DECAY}


def objective(
    part: Part, model: Parameters, backbone: str, alpha: float, goal: Parameters, correction: Parameters
) -> Tensor:
    """Cross-entropy, α/2 ‖θ − goal‖² and ⟨θ, correction⟩."""
    loss = supervised(part, forward(part, model, backbone))
    return loss + alpha / 2 * distance(model, goal) + inner(model, correction)


def scaled(model: Parameters, factor: float) -> Parameters:
    """A model's numbers times a factor."""
    return {name: factor * value for name, value in model.items()}


def total(left: Parameters, right: Parameters) -> Parameters:
    """The sum of two models."""
    return {name: left[name].detach() + right[name].detach() for name in left}


def compare(backbone: str, variant: str, schedule: dict[str, Any]) -> None:
    """Every round's models, and the bytes, are the stacked method's."""
    options = {"alpha": ALPHA, "variant": variant}
    pair = Pair(divided(COMMUNITY, CLIENTS), "feddc", options, backbone, **schedule)
    models, openfgl = pair.models, variant == "openfgl"
    server, nothing = copied(models[0]), zeros(models[0])
    drift, update, slope = ([nothing] * CLIENTS for _ in range(3))
    average = nothing
    meter = Meter(pair, up=2, down=2)
    for number in range(1, schedule["rounds"] + 1):
        now = turn(pair, number)
        for k in now.present:
            model, goal = models[k], difference(server, drift[k])
            correction = difference(slope[k], average)
            alpha = 0.0 if openfgl and number == 1 else ALPHA
            loss = partial(objective, pair.parts[k], model, backbone, alpha, goal, correction)
            fit(pair.optimisers[k], loss, now.epochs[k])
            before, update[k] = update[k], difference(model, server)
            drift[k] = total(drift[k], before if openfgl else update[k])
            slope[k] = scaled(update[k], 1 / (now.epochs[k] * schedule["learning_rate"]))
        server = mean([total(models[k], drift[k]) for k in now.present], now.weights)
        average = nothing if openfgl else mean([slope[k] for k in now.present], equal(now.present))
        overwrite(models, now.receiving, server)
        meter.count(now)
        pair.compare(number)
    meter.compare()


def equal(members: Sequence[Any]) -> list[float]:
    """One weight for all of them."""
    return [1 / len(members)] * len(members)


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("variant", ["paper", "openfgl"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
def test_rounds_agree(backbone: str, variant: str, attendance: dict[str, Any]) -> None:
    compare(backbone, variant, {**SGD, **attendance})


@pytest.mark.parametrize("variant", ["paper", "openfgl"])
def test_rounds_agree_with_adam(variant: str) -> None:
    compare("gcn", variant, {**ADAM, **EVERYONE})
