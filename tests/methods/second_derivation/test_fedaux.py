"""FedAux as a loop over clients, from Zhuo et al., NeurIPS 2025.

A client's model ends in an auxiliary vector a and a classifier of twice the width. With H what the network
puts out before the classifier, over all nodes of the client,

    ĥ_v = h_v / max_u ‖h_u‖,    s_v = ⟨ĥ_v, a⟩,    κ_vu = exp(−(s_v − s_u)² / σ²),
    z_v = Σ_u κ_vu h_u / Σ_u κ_vu,    logits_v = [h_v ‖ z_v] W + b.

Client k receives Σ_l W_kl (θ_l, a_l), W_kl = softmax over l of β cos(a_k, a_l). The public code takes
s_v = cos(h_v, a). Masks multiply the weights, start at one, are trained and stay with the client.

The paper's clients are always there. Here l goes over those who sent in the round, and for a client that did
not the server keeps the last average that it made (`methods.fedaux`): with that the client comes back.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, cosines, supervised
from tests.methods.second_derivation.served import play_apart

CLIENTS, SHARPNESS, SIGMA, DECAY, WIDTH = 5, 10.0, 0.3, 5e-4, 12
SGD = {"optimiser": "sgd", "learning_rate": 0.2}


def logits(part: Part, model: Parameters, backbone: str, score: str) -> Tensor:
    straight = {"head.weight": torch.eye(WIDTH), "head.bias": torch.zeros(WIDTH)}
    h, a = forward(part, model | straight, backbone), model["auxiliary"]
    if score == "max-norm":
        s = h / h.norm(dim=1).max() @ a
    else:
        s = functional.cosine_similarity(h, a[None, :], dim=1)
    kernel = torch.exp(-((s[:, None] - s) ** 2) / SIGMA**2)
    z = kernel @ h / kernel.sum(dim=1, keepdim=True)
    return torch.cat([h, z], dim=1) @ model["head.weight"] + model["head.bias"]


def masked(model: Parameters) -> Parameters:
    return {
        name: value * model[f"mask.{name}"] if f"mask.{name}" in model else value
        for name, value in model.items()
    }


@pytest.mark.parametrize("attendance", [EVERYONE, {**SOME, **SGD}], ids=["everyone", "some"])
@pytest.mark.parametrize(("score", "masks"), [("max-norm", True), ("cosine", False)])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp"])
def test_rounds_agree(backbone: str, score: str, masks: bool, attendance: dict[str, Any]) -> None:
    pair = Pair(
        divided(COMMUNITY, CLIENTS),
        "fedaux",
        {"beta": SHARPNESS, "sigma": SIGMA, "score": score, "masks": masks},
        backbone,
        (16, WIDTH),
        local_epochs=2,
        weight_decay=DECAY,
        **attendance,
    )
    seen = []

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        return supervised(pair.parts[k], logits(pair.parts[k], masked(model), backbone, score))

    def answer(
        kept: dict[int, Parameters], sent: dict[int, Parameters], weights: dict[int, float]
    ) -> dict[int, Parameters]:
        """Until a client is first present, the server's model for it is the common start."""
        near = cosines(torch.stack([each["auxiliary"] for each in sent.values()]))
        seen.append(float(near[~torch.eye(len(sent), dtype=torch.bool)].mean()))
        rows = zip(sent, torch.softmax(SHARPNESS * near, dim=1), strict=True)
        return {k: mean(list(sent.values()), row) for k, row in rows}

    play_apart(pair, loss, answer, lambda name: not name.startswith("mask."))
    assert pair.method.by_round["vector_cosine"] == pytest.approx(seen, abs=1e-4)
