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

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, hidden_of
from tests.methods.second_derivation.common import COMMUNITY, Pair, copied, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, supervised
from tests.methods.second_derivation.served import average, play

CLIENTS, STRENGTH, TEMPERATURE, DECAY = 5, 1.5, 0.3, 1e-3
SGD = {"optimiser": "sgd", "learning_rate": 0.3}


def representation(part: Part, model: Parameters, backbone: str) -> Tensor:
    z = hidden_of(part, model, backbone)
    if "projection.0.weight" not in model:
        return z
    z = functional.relu(z @ model["projection.0.weight"] + model["projection.0.bias"])
    return z @ model["projection.1.weight"] + model["projection.1.bias"]


def logits(part: Part, model: Parameters, backbone: str) -> Tensor:
    z = representation(part, model, backbone)
    # The head of SGC is in its representation.
    return z + model["head.bias"] if backbone == "sgc" else z @ model["head.weight"] + model["head.bias"]


def contrast(z: Tensor, received: Tensor, last: Tensor) -> Tensor:
    """The second term, without μ, of these nodes."""
    near, far = (
        torch.exp(functional.cosine_similarity(z, other, dim=1) / TEMPERATURE) for other in (received, last)
    )
    return -torch.log(near / (near + far)).mean()


def compare(backbone: str, options: dict[str, Any], schedule: dict[str, Any]) -> None:
    """Every round's models, the bytes and the last prediction are the stacked method's."""
    options, on_all = {"mu": STRENGTH, "temperature": TEMPERATURE, **options}, options["nodes"] == "all"
    pair = Pair(
        divided(COMMUNITY, CLIENTS), "moon", options, backbone, local_epochs=2, weight_decay=DECAY, **schedule
    )
    last: dict[int, Parameters] = {}
    start = copied(pair.models[0])

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        part = pair.parts[k]
        entropy = supervised(part, logits(part, model, backbone))
        # Both are the start's in the first round, and the derivative is zero but for rounding.
        if not last:
            return entropy
        of = torch.ones_like(part["train"]) if on_all else part["train"]
        z, near, far = (
            representation(part, each, backbone)[of] for each in (model, received, last.get(k, start))
        )
        return entropy + STRENGTH * contrast(z, near, far)

    def update(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
        last.update(sent)
        return average(received, sent, weights)

    play(pair, loss, update)
    pair.compare_predictions(lambda k, model: logits(pair.parts[k], model, backbone))


@pytest.mark.parametrize("attendance", [EVERYONE, {**SOME, **SGD}], ids=["everyone", "some"])
@pytest.mark.parametrize(("nodes", "projection"), [("all", False), ("training", True)])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp"])
def test_rounds_agree(backbone: str, nodes: str, projection: bool, attendance: dict[str, Any]) -> None:
    compare(backbone, {"nodes": nodes, "projection": projection}, attendance)


@pytest.mark.parametrize("nodes", ["all", "training"])
def test_rounds_agree_on_sgc(nodes: str) -> None:
    compare("sgc", {"nodes": nodes}, EVERYONE)
