"""SCAFFOLD: every local step is corrected by the difference of the client's gradient from the federation's.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020,
algorithm 1. The server holds a control c, client k a control c_k, all zero at the start; τ local steps
of rate η begin at the received w_s:

    w_k ← w_k − η (∇F_k(w_k) − c_k + c)                               τ times
    c_k ← ∇F_k(w_s)                       (i)    or    c_k − c + (w_s − w_k) / (τ η)    (ii)
    w_s ← w_s + η_g Σ_k p_k (w_k − w_s),  c ← c + Σ_k p_k Δc_k = Σ_k p_k c_k

With one local step of plain descent, all clients present and equal weights in both means, the corrections
cancel: SCAFFOLD equals FedAvg. w_k and c_k go up, w_s and c come down. An absent client keeps c_k, which
becomes stale, and its Δc_k is 0. So c is the mean over all clients, w_s the mean over those present. τ is
each client's own number of epochs.

Departures: the local steps are the schedule's. (ii) is a mean gradient only with plain descent,
`optimiser = "sgd"`. With Adam, (ii) is kept as in OpenFGL; (i) has the gradient's scale with both.
Algorithm 1 has no weight decay. (ii) contains its mean over the steps; (i) leaves it out, since it does not
differ between clients. p_k are the schedule's weights, where the paper has 1/K.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Positive, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Message, Options, register
from fedsub.methods.core.steps import backward, local_epochs
from fedsub.methods.stacked.mixing import column, for_clients, weighted_mean
from fedsub.methods.stacked.parameters import Parameters, prefixed, unprefixed

CONTROL = "control"
"""First part of the controls' names in messages."""


@dataclass(frozen=True)
class ScaffoldOptions(Options):
    server_rate: Positive = tunable(1.0, log=(0.1, 2))
    """η_g, the server's learning rate, positive; 1 takes the clients' mean, as the paper's experiments do."""
    control: Literal["steps", "gradient"] = tunable("steps", choices=("steps", "gradient"))
    """How clients compute their control: from local `steps`, or as the `gradient` at the received model."""
    control_weights: Literal["schedule", "uniform"] = "schedule"
    """Clients' weights in the server's control c: those of the models, or 1/K (OpenFGL), with which controls
    no longer correct towards the weighted objective."""


class CorrectedMethod(FederatedMethod):
    """Base of methods that correct local steps by mean gradients, estimated from a round's updates."""

    labelled_outputs_only = True

    def build(self) -> None:
        """FedAvg's set-up. Raises UserError for a learning rate of 0."""
        super().build()
        if self.schedule.learning_rate == 0:
            raise UserError(f"{self.info.title} divides by the learning rate: it must be positive")

    def mean_gradient(self, name: str) -> Tensor:
        """(w_s − w_k) / (η E) of a shared parameter, (K, …); E is each client's local epochs, at least 1."""
        way = self.received[name] - self.parameters[name].detach()
        length = self.epochs.clamp(min=1).double() * self.schedule.learning_rate
        return way / column(length.float(), way)


@register(
    "scaffold", title="SCAFFOLD", paper="Karimireddy et al. 2020", options=ScaffoldOptions, tasks=BOTH_TASKS
)
class Scaffold(CorrectedMethod):
    """FedAvg with controls at the clients and at the server."""

    options: ScaffoldOptions
    client_state = ("control", "server_control")
    server_state = ("heard",)
    control: Parameters
    """c_k, name → (K, …)."""
    server_control: Parameters
    """c as last received, name → (1, …)."""
    heard: Parameters
    """c_k as the server last received it, name → (K, …)."""
    gradient: Parameters
    """∇F_k at the received model, name → (K, …); only kept for (i)."""

    def build(self) -> None:
        super().build()
        self.control = {name: torch.zeros_like(self.parameters[name]) for name in self.shared()}
        self.heard = dict(self.control)
        self.server_control = {name: torch.zeros_like(value) for name, value in self.received.items()}

    def train_round(self) -> Tensor:
        """w_k ← w_k − η (∇F_k − c_k + c) in every epoch; the first ∇F_k is at the received model."""
        loss, self.gradient = torch.zeros((), device=self.device), {}
        for _ in local_epochs(self):
            loss = backward(self)
            keep = self.options.control == "gradient" and not self.gradient
            for name, control in self.control.items():
                gradient = self.parameters[name].grad
                if gradient is None:
                    continue
                if keep:
                    self.gradient[name] = gradient.clone()
                gradient.sub_(control).add_(self.server_control[name])
            self.optimiser.step()
        return loss

    def send(self) -> Message:
        """The model, and c_k by (i) or (ii)."""
        for name, control in self.control.items():
            if self.options.control == "gradient":
                # A parameter that no loss depends on has no gradient.
                new = self.gradient[name] if name in self.gradient else torch.zeros_like(control)
            else:
                new = control - self.server_control[name] + self.mean_gradient(name)
            self.control[name] = for_clients(new, control, self.present)
        return {**super().send(), **prefixed(CONTROL, self.control)}

    def aggregate(self, sent: Message) -> Message:
        """w_s + η_g Σ_k p_k (w_k − w_s), and c, the mean of the c_k last received."""
        rate, uniform = self.options.server_rate, self.options.control_weights == "uniform"
        weights = torch.full_like(self.shares, 1 / len(self.shares)) if uniform else self.shares
        controls = unprefixed(CONTROL, sent)
        self.heard = {
            name: for_clients(new, self.heard[name], self.present) for name, new in controls.items()
        }
        answer = {f"{CONTROL}.{name}": weighted_mean(each, weights) for name, each in self.heard.items()}
        for name, value in super().aggregate({name: sent[name] for name in self.received}).items():
            answer[name] = value if rate == 1 else torch.lerp(self.received[name], value, rate)
        return answer

    def receive(self, answer: Message) -> None:
        super().receive(answer)
        self.server_control = unprefixed(CONTROL, answer)
