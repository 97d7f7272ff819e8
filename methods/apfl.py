"""APFL: every client predicts with its own blend of a personal and the shared model.

Deng et al., Adaptive Personalized Federated Learning, 2020, algorithm 1. Client k holds its copy w of
the shared model, a personal v and α in [0, 1], and predicts with v̄ = α v + (1 − α) w:

    w ← w − η ∇f(w)        v ← v − η ∇_v f(v̄), w held fixed        α ← α − η ⟨v − w, ∇f(v̄)⟩

α is clipped to [0, 1]; the server averages w alone. Both models draw the same dropout masks and pairs,
so that α = 0 is FedAvg and α = 1 Local to the last bit. Departure: w and v step by the schedule's optimiser
(Adam) as every method here does; α takes plain gradient steps, one beside each of theirs. (The authors'
public code, github.com/MLOPTPSU/FedTorch, moves α in a round's first step alone, and pulls it to zero.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsub.datasets.limits import NonNegative, Share
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.core.steps import local_epochs
from fedsub.methods.ditto import PREFIX, TwoModels
from fedsub.methods.stacked.mixing import column, for_clients
from fedsub.methods.stacked.parameters import Parameters


@dataclass(frozen=True)
class APFLOptions(Options):
    alpha: Share = tunable(0.5, linear=(0.1, 0.9))
    """Weight of the personal model at the start, in [0, 1]."""
    adaptive: bool = True
    """Whether α is learned; otherwise it stays as given."""
    alpha_rate: NonNegative = 0.0
    """Step size of α; 0 takes the schedule's learning rate."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return {} if self.adaptive else {"alpha_rate": "adaptive=true"}


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
    """(K,), in [0, 1]."""

    def build(self) -> None:
        super().build()
        self.alpha = torch.full((self.federation.clients,), self.options.alpha, device=self.device)

    def predicting(self) -> Parameters:
        """v̄ of every client, detached."""
        with torch.no_grad():
            return {
                name: torch.lerp(self.parameters[name], value, column(self.alpha, value))
                for name, value in self.personal().items()
            }

    def train_round(self) -> Tensor:
        """Steps of the shared and the personal models and of α; returns the blends' last loss, ()."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            blended = {name: value.requires_grad_() for name, value in self.predicting().items()}
            loss = self.backward(blended)
            with torch.no_grad():
                slope = self._pass_on(blended)
            self.optimiser.step()
            if self.options.adaptive:
                rate = self.options.alpha_rate or self.schedule.learning_rate
                moved = (self.alpha - rate * slope).clamp_(0, 1)
                self.alpha.copy_(for_clients(moved, self.alpha, self.working))
        return loss

    def _pass_on(self, blended: Parameters) -> Tensor:
        """Give every v its gradient α ∇f(v̄); returns ⟨v − w, ∇f(v̄)⟩, (K,)."""
        slope = torch.zeros_like(self.alpha)
        for name, value in blended.items():
            gradient, personal = value.grad, self.parameters[f"{PREFIX}.{name}"]
            if gradient is None:
                continue
            if self.options.adaptive:
                slope += (personal - self.parameters[name]).mul_(gradient).flatten(1).sum(dim=1)
            personal.grad = gradient * column(self.alpha, gradient)
        return slope

    def finish(self) -> None:
        self.extras["alpha_mean"] = float(self.alpha.mean())
        self.extras["alpha_min"] = float(self.alpha.min())
        self.extras["alpha_max"] = float(self.alpha.max())
