"""APFL: every client predicts with its own blend of a personal model and the shared model.

Deng et al., Adaptive Personalized Federated Learning, 2020, algorithm 1. Client k holds its copy w of
the shared model, a personal model v and α in [0, 1], and predicts with v̄ = α v + (1 − α) w:

    w ← w − η ∇f(w)      v ← v − η ∇_v f(v̄), w held fixed      α ← clip(α − η ⟨v − w, ∇f(v̄)⟩, 0, 1)

The server averages only w. Both draw the same dropout masks and pairs: α = 0 is exactly FedAvg, α = 1 Local.

Departures: the schedule's optimiser (Adam) steps w and v; α takes a plain gradient step of the same rate each
time. The code (github.com/MLOPTPSU/FedTorch) changes α only in a round's first step, and pulls it to zero.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsub.datasets.limits import Share, tunable
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.core.steps import local_epochs
from fedsub.methods.ditto import PREFIX, TwoModels
from fedsub.methods.stacked.mixing import by_client, column, for_clients
from fedsub.methods.stacked.parameters import Parameters


@dataclass(frozen=True)
class APFLOptions(Options):
    alpha: Share = tunable(0.5, linear=(0.1, 0.9))
    """Initial weight α of the personal model, in [0, 1]."""
    adaptive: bool = True
    """Whether α is learned; otherwise it stays constant."""


@register(
    "apfl",
    title="APFL",
    paper="Deng et al. 2020",
    options=APFLOptions,
    tasks=BOTH_TASKS,
    predicts_with="each client's α",
)
class APFL(TwoModels):
    """The personal models are never sent. An absent client keeps its personal model and its α."""

    options: APFLOptions
    client_state = ("alpha",)
    alpha: Tensor
    """(K,) α of each client, in [0, 1]."""

    def build(self) -> None:
        super().build()
        self.alpha = torch.full((self.federation.clients,), self.options.alpha, device=self.device)

    def predicting(self) -> Parameters:
        """Return every client's v̄, detached."""
        with torch.no_grad():
            return {
                name: torch.lerp(self.parameters[name], value, column(self.alpha, value))
                for name, value in super().predicting().items()
            }

    def train_round(self) -> Tensor:
        """Step the shared models, the personal models and α; return the last loss of the blends, ()."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            blended = {name: value.requires_grad_() for name, value in self.predicting().items()}
            loss = self.backward(blended)
            with torch.no_grad():
                slope = self._pass_on(blended)
            self.optimiser.step()
            if self.options.adaptive:
                moved = (self.alpha - self.schedule.learning_rate * slope).clamp_(0, 1)
                self.alpha.copy_(for_clients(moved, self.alpha, self.working))
        return loss

    def _pass_on(self, blended: Parameters) -> Tensor:
        """Set the gradient of every v to α ∇f(v̄); return ⟨v − w, ∇f(v̄)⟩, (K,)."""
        slope = torch.zeros_like(self.alpha)
        for name, value in blended.items():
            gradient, personal = value.grad, self.parameters[f"{PREFIX}.{name}"]
            if gradient is None:
                continue
            if self.options.adaptive:
                slope += by_client((personal - self.parameters[name]).mul_(gradient)).sum(dim=1)
            personal.grad = gradient * column(self.alpha, gradient)
        return slope

    def finish(self) -> None:
        self.extras["alpha_mean"] = float(self.alpha.mean())
        self.extras["alpha_min"] = float(self.alpha.min())
        self.extras["alpha_max"] = float(self.alpha.max())
