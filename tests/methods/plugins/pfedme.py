"""pFedMe: personal models on a leash to the shared one.

Dinh et al., Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020, algorithm 1:
    θ_k ≈ argmin F_k(θ) + λ/2 ‖θ − w_k‖²,    w_k ← w_k − 0.1 λ (w_k − θ_k),    w ← Σ_k p_k w_k
Clients predict with θ_k. θ is found by `steps` steps of the schedule's optimiser.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsub.datasets.limits import Count, Positive
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.core.steps import descend, local_epochs
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.mixing import for_clients, squared_distance
from fedsub.methods.stacked.parameters import Parameters, prefixed, unprefixed


@dataclass(frozen=True)
class PFedMeOptions(Options):
    """Hyper-parameters of pFedMe."""

    strength: Positive = 1.0
    """λ; the shared models step by a tenth of it."""
    steps: Count = 3
    """On θ in every local epoch."""


@register("pfedme", title="pFedMe", paper="Dinh et al. 2020", options=PFedMeOptions, tasks=BOTH_TASKS)
class PFedMe(FedAvg):
    """θ_k are parameters named `personal.<name>`, never sent."""

    unshared = ("personal",)

    def initial_parameters(self) -> Parameters:
        """w, and θ at the same start."""
        shared = super().initial_parameters()
        own = {name: value.detach().clone().requires_grad_() for name, value in shared.items()}
        return shared | prefixed("personal", own)

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The personal models' outputs, (n, C)."""
        return self.backbone.forward(self.inputs, unprefixed("personal", self.parameters), dropout)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k(θ) + λ/2 ‖θ − w‖², ()."""
        own = unprefixed("personal", self.parameters).items()
        drift = sum(squared_distance(value, self.parameters[name]) for name, value in own)
        return super().objective(logits) + 0.5 * self.options.strength * drift

    def train_round(self) -> Tensor:
        """`steps` steps on θ and one on w in every local epoch; returns the last loss, ()."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = torch.stack([descend(self) for _ in range(self.options.steps)])[-1]
            with torch.no_grad():
                for name, own in unprefixed("personal", self.parameters).items():
                    w, share = self.parameters[name], 0.1 * self.options.strength
                    w.copy_(for_clients(torch.lerp(w, own, share), w, self.working))
        return loss
