"""Ditto as a loop over clients, from algorithm 1 of Li et al., ICML 2021.

Client k has two models. One is FedAvg's: it begins at the received w, descends on F_k, and is averaged. The
other, v_k, never leaves the client; it takes as many steps on

    F_k(v_k) + λ/2 ‖v_k − w‖²                                                             (1)

with the w that was received, not what the first model becomes in training. Nodes are classified by v_k.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean, numbers, optimiser_of
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, TOLERANCE, Pair, copied, divided
from tests.methods.second_derivation.rounds import (
    EVERYONE,
    SOME,
    Meter,
    distance,
    fit,
    overwrite,
    turn,
)
from tests.methods.second_derivation.served import cross_entropy

CLIENTS, DECAY, PERSONAL = 5, 1e-2, "personal."
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 2, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 2, "weight_decay": DECAY}


def personal(part: Part, model: Parameters, backbone: str, strength: float, server: Parameters) -> Tensor:
    """(1)."""
    return cross_entropy(part, model, backbone) + strength / 2 * distance(model, server)


def compare(backbone: str, strength: float, schedule: dict[str, Any]) -> None:
    """Every round's two models, the bytes and the last prediction are the stacked method's."""
    federation = divided(COMMUNITY, CLIENTS)
    pair = Pair(federation, "ditto", {"strength": strength}, backbone, **schedule)
    ones = [{n: v for n, v in model.items() if not n.startswith(PERSONAL)} for model in pair.models]
    others = [{n: model[PERSONAL + n] for n in ones[0]} for model in pair.models]
    optimisers = [[optimiser_of(model, pair.method.schedule) for model in both] for both in (ones, others)]
    server, meter = copied(ones[0]), Meter(pair)
    for number in range(1, schedule["rounds"] + 1):
        now = turn(pair, number)
        for k in now.present:
            part, epochs = pair.parts[k], now.epochs[k]
            fit(optimisers[0][k], partial(cross_entropy, part, ones[k], backbone), epochs)
            fit(optimisers[1][k], partial(personal, part, others[k], backbone, strength, server), epochs)
        server = mean([ones[k] for k in now.present], now.weights)
        overwrite(ones, now.receiving, server)
        meter.count(now)
        pair.compare(number)
    meter.compare(numbers(server))
    expected = [forward(part, model, backbone) for part, model in zip(pair.parts, others, strict=True)]
    torch.testing.assert_close(pair.method.predict(), torch.cat(expected), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("optimiser", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("strength", [0.1, 2.0])
@pytest.mark.parametrize("backbone", ["gcn", "sgc", "graphsage", "mlp"])
def test_rounds_agree(
    backbone: str, strength: float, optimiser: dict[str, Any], attendance: dict[str, Any]
) -> None:
    compare(backbone, strength, {**optimiser, **attendance})
