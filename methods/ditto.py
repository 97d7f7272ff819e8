"""Ditto: beside the shared model every client trains one of its own, held near what it received.

Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, algorithm 1.
Client k holds its copy w of the shared model and a personal v, and predicts with v:

    w ← w − η ∇F_k(w)        v ← v − η (∇F_k(v) + λ (v − w_s)),    w_s as received

The server averages w alone: it is FedAvg's, and with λ = 0 v is Local's. Both draw the same dropout
masks and pairs, so that both hold to the last bit. A client that is absent in a round keeps v as it is.

Departure: w and v step by the schedule's optimiser (Adam) as every method here does, v as often as w.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsub.datasets.limits import NonNegative
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.core.steps import local_epochs
from fedsub.methods.core.two_models import TwoModels
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.distance import squared_distance


@dataclass(frozen=True)
class DittoOptions(Options):
    strength: NonNegative = tunable(0.1, log=(0.01, 10))
    """λ, at least 0; 0 is Local. Usual searches lie in [0.01, 2]."""


@register("ditto", title="Ditto", paper="Li et al. 2021", options=DittoOptions, tasks=BOTH_TASKS)
class Ditto(TwoModels):
    """FedAvg, and a personal model in its proximity."""

    options: DittoOptions

    def logits(self, dropout: Dropout | None) -> Tensor:
        chosen = None if dropout is None else self.personal_dropout
        return self.backbone.forward(self.inputs, self.personal(), chosen)

    def train_round(self) -> Tensor:
        loss = torch.zeros((), device=self.device)
        forward, outputs_of = self.backbone.forward_to_read, self.setting.architecture.outputs_of
        for _ in local_epochs(self):
            self.optimiser.zero_grad(set_to_none=True)
            self.inputs.renew_gradients()
            shared = self.task.loss(outputs_of(forward(self.inputs, self.parameters, self.dropout)))
            loss = self.objective(outputs_of(forward(self.inputs, self.personal(), self.personal_dropout)))
            (shared + loss).backward()
            self.optimiser.step()
        return loss.detach()

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k(v) + λ/2 ‖v − w_s‖², ()."""
        drift = torch.zeros((), device=logits.device)
        for name, value in self.personal().items():
            drift = drift + squared_distance(value, self.received[name])
        return self.personal_task.loss(logits) + 0.5 * self.options.strength * drift
