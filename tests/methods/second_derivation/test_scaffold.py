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

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import leaves
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided
from tests.methods.second_derivation.rounds import EVERYONE, SOME, difference, inner, zeros
from tests.methods.second_derivation.served import average, cross_entropy, play, weights_of

CLIENTS, DECAY = 5, 1e-2
SGD = {"optimiser": "sgd", "learning_rate": 0.2, "local_epochs": 3, "weight_decay": DECAY}
ADAM = {"optimiser": "adam", "learning_rate": 0.01, "local_epochs": 3, "weight_decay": DECAY}


def compare(backbone: str, options: dict[str, Any], schedule: dict[str, Any]) -> None:
    """Every round's models, and the bytes, are the stacked method's."""
    pair = Pair(divided(COMMUNITY, CLIENTS), "scaffold", options, backbone, **schedule)
    by_steps, server_rate = options.get("control", "steps") == "steps", options.get("server_rate", 1.0)
    control, controls = zeros(pair.models[0]), [zeros(model) for model in pair.models]
    shares = weights_of(pair, list(range(CLIENTS)))
    if options.get("control_weights") == "uniform":
        shares = dict.fromkeys(shares, 1 / CLIENTS)

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        """Return a loss whose gradient step is (1): the derivative of ⟨y, c − c_k⟩ is c − c_k."""
        return cross_entropy(pair.parts[k], model, backbone) + inner(model, difference(control, controls[k]))

    def renewed(k: int, received: Parameters, model: Parameters) -> Parameters:
        """Return the new control c_k⁺."""
        if by_steps:
            scale = int(pair.method.epochs[k]) * schedule["learning_rate"]
            moved = difference(received, model)
            return {n: controls[k][n] - control[n] + moved[n] / scale for n in model}
        start = leaves(received)
        slopes = torch.autograd.grad(cross_entropy(pair.parts[k], start, backbone), list(start.values()))
        return dict(zip(start, slopes, strict=True))

    def update(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
        """Apply (2) and (3); return the server's new model."""
        new = {k: renewed(k, received, model) for k, model in sent.items()}
        for k, mine in new.items():
            changed, controls[k] = difference(mine, controls[k]), mine
            control.update({n: control[n] + shares[k] * changed[n] for n in control})
        moved = difference(average(received, sent, weights), received)
        return {n: received[n] + server_rate * moved[n] for n in received}

    play(pair, loss, update, times=2)


@pytest.mark.parametrize("attendance", [EVERYONE, SOME], ids=["everyone", "some"])
@pytest.mark.parametrize(("control", "weights"), [("steps", "uniform"), ("gradient", "schedule")])
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
