"""FedDC: every client tracks the drift of its model from the server's, and sends its model plus the drift.

Gao et al., FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction, CVPR
2022, algorithm 1. Client k holds its drift h_k, 0 at the start; u_k = w_k − w_s is its last update. E local
steps of rate η begin at the received w_s:

    F_k(w) + α/2 ‖h_k + w − w_s‖² + ⟨w, g_k − ḡ⟩,    g_k = u_k / (η E),  ḡ = mean of the g_k
    h_k ← h_k + u_k
    w_s ← Σ_k p_k (w_k + h_k)

w_k + h_k and g_k go up, w_s and ḡ come down. A client that is absent in a round keeps h_k, u_k and g_k, and
counts in no mean. E is each client's own number of epochs.

Departures: the local steps are the schedule's. u_k / (η E) is minus a mean gradient only with plain descent,
`optimiser = "sgd"`. Adam changes an entry by about η in a step, however small its gradient, so that
u_k / (η E) is near ±1 and outweighs the gradient. w_s + mean of h_k accumulates every update, and a round
removes at most a share η α E of it, so that it oscillates with few steps a round. On Cora one Adam step a
round learns nothing (protocol all-methods); three on raw features do (fedtad-2).

The authors' code (github.com/gaoliang13/FedDC) keeps g_k as SCAFFOLD's control, g_k ← g_k − ḡ + u_k / (η E).
It sets w_s ← mean of w_k + mean of h_k, absent clients included, and clips gradients to length 10. In OpenFGL
(`variant = "openfgl"`) ḡ is a constant in the inner product and drops out. Its first round has no penalty,
and h_k adds the update before the last one.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedsub.datasets.limits import NonNegative, tunable
from fedsub.methods.core.base import BOTH_TASKS, Message, Options, register
from fedsub.methods.scaffold import CorrectedMethod
from fedsub.methods.stacked.mixing import for_clients, squared_distance, weighted_mean
from fedsub.methods.stacked.parameters import Parameters


@dataclass(frozen=True)
class FedDCOptions(Options):
    alpha: NonNegative = tunable(0.1, log=(1e-3, 1))
    """α, weight of the drift penalty, at least 0."""
    variant: Literal["paper", "openfgl"] = "paper"
    """Definition of ḡ and h_k: the paper's or OpenFGL's."""


@register("feddc", title="FedDC", paper="Gao et al. 2022", options=FedDCOptions, tasks=BOTH_TASKS)
class FedDC(CorrectedMethod):
    """FedAvg of drift-corrected models, with a drift penalty and a gradient correction."""

    options: FedDCOptions
    client_state = ("drift", "update", "gradient", "correction")
    drift: Parameters
    """h_k, name → (K, …)."""
    update: Parameters
    """u_k, name → (K, …); only the variant `openfgl` reads it."""
    target: Parameters
    """w_s − h_k during local training, name → (K, …)."""
    gradient: Parameters
    """g_k, name → (K, …); zero for a client that has never sent."""
    correction: Parameters
    """g_k − ḡ, name → (K, …); empty in the first round."""

    def build(self) -> None:
        super().build()
        self.drift = {name: torch.zeros_like(self.parameters[name]) for name in self.shared()}
        self.update, self.gradient, self.correction = dict(self.drift), dict(self.drift), {}

    def train_round(self) -> Tensor:
        """Train as FedAvg does, with the penalty towards w_s − h_k."""
        self.target = {name: value - self.drift[name] for name, value in self.received.items()}
        loss = super().train_round()
        self.target = {}
        return loss

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k + α/2 ‖h_k + w − w_s‖² + ⟨w, g_k − ḡ⟩, ()."""
        loss = super().objective(logits)
        for name, target in self.target.items():
            value = self.parameters[name]
            if name in self.correction:
                loss = loss + (value * self.correction[name]).sum()
            elif self.options.variant == "openfgl":
                continue
            loss = loss + 0.5 * self.options.alpha * squared_distance(value, target)
        return loss

    def send(self) -> Message:
        """w_k + h_k as `model.<name>`, and g_k as `gradient.<name>`."""
        message = {}
        for name in self.received:
            last, drift, value = self.update[name], self.drift[name], self.parameters[name].detach()
            update, new = value - self.received[name], -self.mean_gradient(name)
            step = last if self.options.variant == "openfgl" else update
            self.drift[name] = for_clients(drift + step, drift, self.present)
            self.update[name] = for_clients(update, last, self.present)
            self.gradient[name] = for_clients(new, self.gradient[name], self.present)
            message[f"model.{name}"] = value + self.drift[name]
            message[f"gradient.{name}"] = self.gradient[name]
        return message

    def aggregate(self, sent: Message) -> Message:
        """w_s, and ḡ as `gradient.<name>`."""
        uniform = self.present.to(self.weights.dtype) / self.present.sum()
        answer = {}
        for name in self.received:
            answer[name] = weighted_mean(sent[f"model.{name}"], self.weights)
            answer[f"gradient.{name}"] = weighted_mean(sent[f"gradient.{name}"], uniform)
        return answer

    def receive(self, answer: Message) -> None:
        super().receive(answer)
        for name in self.received:
            gradient = self.gradient[name]
            mean = 0 if self.options.variant == "openfgl" else answer[f"gradient.{name}"]
            new, old = gradient - mean, self.correction.get(name, torch.zeros_like(gradient[:1]))
            self.correction[name] = for_clients(new, old, self.receiving)
