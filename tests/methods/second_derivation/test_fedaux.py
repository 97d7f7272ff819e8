"""FedAux as a loop over clients, from Zhuo et al., NeurIPS 2025.

A client's model ends in an auxiliary vector a and a classifier of twice the width. With H what the network
puts out before the classifier, over all nodes of the client,

    ĥ_v = h_v / max_u ‖h_u‖,    s_v = ⟨ĥ_v, a⟩,    κ_vu = exp(−(s_v − s_u)² / σ²),
    z_v = Σ_u κ_vu h_u / Σ_u κ_vu,    logits_v = [h_v ‖ z_v] W + b.

Client k receives Σ_l W_kl (θ_l, a_l), W_kl = softmax over l of β cos(a_k, a_l). The public code takes
s_v = cos(h_v, a). Masks multiply the weights, start at one, are trained and stay with the client.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided

CLIENTS, SHARPNESS, SIGMA, DECAY, WIDTH = 5, 10.0, 0.3, 5e-4, 12


def hidden(part: Part, model: Parameters, backbone: str) -> Tensor:
    """H, (n, WIDTH)."""
    straight = {"head.weight": torch.eye(WIDTH), "head.bias": torch.zeros(WIDTH)}
    return forward(part, model | straight, backbone)


def logits(part: Part, model: Parameters, backbone: str, score: str) -> Tensor:
    """(n, C), node by node where the text is."""
    h, a = hidden(part, model, backbone), model["auxiliary"]
    if score == "max-norm":
        s = h / h.norm(dim=1).max() @ a
    else:
        s = functional.cosine_similarity(h, a[None, :], dim=1)
    rows = []
    for v in range(len(h)):
        kernel = torch.exp(-((s[v] - s) ** 2) / SIGMA**2)
        z = (kernel[:, None] * h).sum(dim=0) / kernel.sum()
        rows.append(torch.cat([h[v], z]))
    return torch.stack(rows) @ model["head.weight"] + model["head.bias"]


def masked(model: Parameters) -> Parameters:
    """The weights that the network uses."""
    return {
        name: value * model[f"mask.{name}"] if f"mask.{name}" in model else value
        for name, value in model.items()
    }


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("score", ["max-norm", "cosine"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp"])
def test_rounds_agree(backbone: str, score: str, masks: bool) -> None:
    pair = Pair(
        divided(COMMUNITY, CLIENTS),
        "fedaux",
        {"beta": SHARPNESS, "sigma": SIGMA, "score": score, "masks": masks},
        backbone,
        (16, WIDTH),
        local_epochs=2,
        weight_decay=DECAY,
    )
    models = pair.models
    sent = [name for name in pair.start if not name.startswith("mask.")]
    for number in (1, 2, 3):
        pair.train(lambda part, model: logits(part, masked(model), backbone, score))
        with torch.no_grad():
            rows = []
            for mine in models:
                near = [
                    functional.cosine_similarity(mine["auxiliary"], theirs["auxiliary"], dim=0)
                    for theirs in models
                ]
                rows.append(torch.softmax(SHARPNESS * torch.stack(near), dim=0))
            mixed = [
                {n: sum(w * m[n] for w, m in zip(row, models, strict=True)) for n in sent} for row in rows
            ]
            for model, new in zip(models, mixed, strict=True):
                for name in sent:
                    model[name].copy_(new[name])
        pair.compare(number)
    pair.compare_bytes(3 * CLIENTS * numbers({name: models[0][name] for name in sent}))
