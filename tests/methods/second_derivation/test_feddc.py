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

from typing import Any

import pytest
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import mean
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, difference, distance, inner, zeros
from tests.methods.second_derivation.served import average, cross_entropy, play

CLIENTS, ALPHA, DECAY = 5, 0.3, 1e-3
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 3, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 3, "weight_decay": DECAY}


def total(left: Parameters, right: Parameters) -> Parameters:
    return {name: left[name].detach() + right[name].detach() for name in left}


def compare(backbone: str, variant: str, schedule: dict[str, Any]) -> None:
    """Every round's models, and the bytes, are the stacked method's."""
    options = {"alpha": ALPHA, "variant": variant}
    pair = Pair(divided(COMMUNITY, CLIENTS), "feddc", options, backbone, **schedule)
    openfgl, nothing = variant == "openfgl", zeros(pair.models[0])
    drift, moved, slope = ([nothing] * CLIENTS for _ in range(3))
    mean_slope = [nothing]

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        """Return the loss (1)."""
        alpha = 0.0 if openfgl and pair.method.round_number == 1 else ALPHA
        goal, correction = difference(received, drift[k]), difference(slope[k], mean_slope[0])
        entropy = cross_entropy(pair.parts[k], model, backbone)
        return entropy + alpha / 2 * distance(model, goal) + inner(model, correction)

    def update(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
        """Apply (2), and update the terms of (1) for the next round."""
        for k, model in sent.items():
            before, moved[k] = moved[k], difference(model, received)
            drift[k] = total(drift[k], before if openfgl else moved[k])
            steps = int(pair.method.epochs[k]) * schedule["learning_rate"]
            slope[k] = {name: value / steps for name, value in moved[k].items()}
        if not openfgl:
            mean_slope[0] = mean([slope[k] for k in sent], [1 / len(sent)] * len(sent))
        return average(received, {k: total(model, drift[k]) for k, model in sent.items()}, weights)

    play(pair, loss, update, times=2)


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize("variant", ["paper", "openfgl"])
@pytest.mark.parametrize("backbone", ["gcn", "graphsage", "mlp", "sgc"])
def test_rounds_agree(backbone: str, variant: str, attendance: dict[str, Any]) -> None:
    compare(backbone, variant, {**SGD, **attendance})


@pytest.mark.parametrize("variant", ["paper", "openfgl"])
def test_rounds_agree_with_adam(variant: str) -> None:
    compare("gcn", variant, {**ADAM, **EVERYONE})
