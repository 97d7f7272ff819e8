"""APFL as a loop over clients, from Deng et al. 2020 (arXiv 2003.13461), algorithm 1 and its adaptive α.

Client k has a copy w of the server's model, a personal v that never leaves it, and a share α_k:

    v̄ = α_k v + (1 − α_k) w
    w ← w − η ∇f_k(w),    v ← v − η ∇_v f_k(v̄) = v − η α_k ∇f_k(v̄)
    α_k ← α_k − η ⟨v − w, ∇f_k(v̄)⟩,    all three from what the step found

The server averages w; the client predicts with v̄. α_k is kept within [0, 1], and moves in every step; the
authors' public code moves it in a round's first alone, by the two models' own gradients and with a term that
pulls it to zero, none of which the text has. w and v descend by the schedule's optimiser, α_k by plain steps.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, divided
from tests.methods.second_derivation.rounds import SCHEDULES
from tests.methods.second_derivation.served import average, cross_entropy, play

CLIENTS, PERSONAL = 5, "personal."


def own(name: str) -> bool:
    """Whether a parameter belongs to v."""
    return name.startswith(PERSONAL)


def mixed(model: Parameters, alpha: Tensor) -> Parameters:
    """v̄; w is not trained through it."""
    return {
        name: alpha * model[PERSONAL + name] + (1 - alpha) * value.detach()
        for name, value in model.items()
        if not own(name)
    }


@pytest.mark.parametrize(
    ("schedule", "backbone"), [*zip(SCHEDULES.values(), ("gcn", "graphsage", "gcn"), strict=True)]
)
@pytest.mark.parametrize(("start", "adaptive"), [(0.3, True), (1.0, True), (0.3, False)])
def test_rounds_agree(start: float, adaptive: bool, backbone: str, schedule: dict[str, Any]) -> None:
    options = {"alpha": start, "adaptive": adaptive}
    pair = Pair(divided(COMMUNITY, CLIENTS), "apfl", options, backbone, **schedule)
    alphas = [torch.tensor(start) for _ in range(CLIENTS)]
    step = pair.method.schedule.learning_rate

    def loss(k: int, model: Parameters, received: Parameters) -> Tensor:
        alpha = alphas[k].clone().requires_grad_()
        part, shared = pair.parts[k], {name: value for name, value in model.items() if not own(name)}
        personal = cross_entropy(part, mixed(model, alpha), backbone)
        if adaptive:
            (slope,) = torch.autograd.grad(personal, [alpha], retain_graph=True)
            alphas[k] = (alphas[k] - step * slope).clamp(0, 1)
        return cross_entropy(part, shared, backbone) + personal

    play(pair, loss, average, lambda name: not own(name))
    torch.testing.assert_close(pair.method.alpha.flatten(), torch.stack(alphas), atol=1e-5, rtol=1e-5)
    pair.method.finish()
    final = torch.stack(alphas)
    figures = {"alpha_mean": float(final.mean()), "alpha_min": float(final.min())}
    figures["alpha_max"] = float(final.max())
    assert pair.method.extras == pytest.approx(figures, abs=1e-5)
    pair.compare_predictions(lambda k, model: forward(pair.parts[k], mixed(model, alphas[k]), backbone))
