"""MOON as a loop over clients, from Li et al., CVPR 2021.

A client begins at the model that it receives, w_glob. z is what the classifier reads: what the network puts
out, or, as in the paper, that through two more linear layers with a rectifier between them, which are
exchanged with the rest. With z, z_glob and z_prev the representations of one node by the model in training,
by w_glob and by what the client's last training left, and s the cosine, the client descends on

    CE + μ mean_v −log( e^{s(z, z_glob)/τ} / (e^{s(z, z_glob)/τ} + e^{s(z, z_prev)/τ}) ).

The mean is over the nodes of the batch in the paper, which here are the training nodes, and over all nodes of
the client in public code for graphs. z_glob and z_prev have no gradient. Before its first training a client's
last model is the common start: the second term is log 2 whatever z is, so the paper's first round is that
without it. SGC, whose features have no weights before its classifier, is contrasted by its logits without the
bias, a choice of `methods.moon`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, hidden_of, mean
from tests.methods.second_derivation.common import COMMUNITY, TOLERANCE, Pair, copied, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, Meter, fit, overwrite, supervised, turn

CLIENTS, STRENGTH, TEMPERATURE, DECAY = 5, 1.5, 0.3, 1e-3
SGD = {"optimiser": "sgd", "learning_rate": 0.3}


def representation(part: Part, model: Parameters, backbone: str) -> Tensor:
    """z, (n, width)."""
    return hidden_of(part, model, backbone)


def logits(part: Part, model: Parameters, backbone: str) -> Tensor:
    """(n, C)."""
    z = representation(part, model, backbone)
    # The head of SGC is in its representation.
    return z + model["head.bias"] if backbone == "sgc" else z @ model["head.weight"] + model["head.bias"]


def contrast(z: Tensor, received: Tensor, last: Tensor) -> Tensor:
    """The second term, without μ, of these nodes."""
    near, far = (
        torch.exp(functional.cosine_similarity(z, other, dim=1) / TEMPERATURE) for other in (received, last)
    )
    return -torch.log(near / (near + far)).mean()


def objective(part: Part, model: Parameters, backbone: str, fixed: tuple[Tensor, Tensor] | None) -> Tensor:
    """What a client descends on, its contrast to z_glob and z_prev of all nodes."""
    loss = supervised(part, logits(part, model, backbone))
    if fixed is None:
        return loss
    z = representation(part, model, backbone)
    return loss + STRENGTH * contrast(z, *fixed)


def compare(backbone: str, schedule: dict[str, Any]) -> None:
    """Every round's models, the bytes and the last prediction are the stacked method's."""
    options = {"mu": STRENGTH, "temperature": TEMPERATURE}
    pair = Pair(
        divided(COMMUNITY, CLIENTS),
        "moon",
        options,
        backbone,
        local_epochs=2,
        weight_decay=DECAY,
        **schedule,
    )
    models = pair.models
    server, last = copied(models[0]), [copied(model) for model in models]
    meter = Meter(pair)
    for number in range(1, schedule["rounds"] + 1):
        now = turn(pair, number)
        for k in now.present:
            part, model = pair.parts[k], models[k]
            received, left = (representation(part, each, backbone) for each in (server, last[k]))
            # Both are the start's in the first round, and the derivative is zero but for rounding.
            fixed = (received, left) if number > 1 else None
            fit(pair.optimisers[k], partial(objective, part, model, backbone, fixed), now.epochs[k])
            last[k] = copied(model)
        server = mean([models[k] for k in now.present], now.weights)
        overwrite(models, now.receiving, server)
        meter.count(now)
        pair.compare(number)
    meter.compare()
    expected = torch.cat(
        [logits(part, model, backbone) for part, model in zip(pair.parts, models, strict=True)]
    )
    torch.testing.assert_close(pair.method.predict(), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("attendance", [EVERYONE, {**SOME, **SGD}], ids=["everyone", "some"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp"])
def test_rounds_agree(backbone: str, attendance: dict[str, Any]) -> None:
    compare(backbone, attendance)


def test_rounds_agree_on_sgc() -> None:
    compare("sgc", EVERYONE)
