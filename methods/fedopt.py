"""FedOpt, FedAdagrad and FedAdam: the server treats the clients' mean change as a gradient.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithms 1 and 2, Δ = Σ_k p_k (w_k − w_server):
    w_server ← w_server + η Δ       (FedOpt with plain descent, as in FederatedScope; η = 1 is FedAvg)
    m ← β₁ m + (1 − β₁) Δ
    v ← v + Δ²                      (FedAdagrad)
    v ← β₂ v + (1 − β₂) Δ²          (FedAdam)
    w_server ← w_server + η m / (√v + τ),   m = 0 and v = τ² at the start

A client that is absent in a round is not in Δ.

Departures: clients use the schedule's optimiser; `optimiser = "sgd"` gives the paper's.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedsub.datasets.limits import Positive, ShareBelowOne, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Message, Options, register
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.mixing import weighted_mean
from fedsub.methods.stacked.parameters import Parameters, Weights


@dataclass(frozen=True)
class FedOptOptions(Options):
    server_learning_rate: Positive = tunable(0.5, log=(0.05, 2))
    """η, the server's learning rate; FederatedScope-GNN's script tries 0.5 and 0.1."""


@dataclass(frozen=True)
class FedAdagradOptions(Options):
    server_learning_rate: Positive = tunable(0.1, log=(1e-3, 1))
    """η, the server's learning rate."""
    tau: Positive = tunable(0.01, log=(1e-4, 0.1))
    """τ, adaptivity: smaller values make the steps of all entries more equal; FedCog searches [1e-5, 0.1]."""
    beta1: ShareBelowOne = 0.0
    """β₁, decay of the mean change; the paper runs FedAdagrad without momentum."""

    def rule(self) -> "ServerRule":
        return AdaptiveServer(self)


@dataclass(frozen=True)
class FedAdamOptions(FedAdagradOptions):
    server_learning_rate: Positive = tunable(0.01, log=(1e-3, 1))
    tau: Positive = tunable(0.001, log=(1e-4, 0.1))
    beta1: ShareBelowOne = 0.9
    beta2: ShareBelowOne = 0.99
    """β₂, decay of the squared change."""


class ServerRule:
    """How the server updates its model from the clients'; by default as FedAvg does.

    `methods.feddyn` has another rule, and FedCog can use any. Shared parameters are name → (K, …), the
    server's name → (1, …).
    """

    state: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that a rule keeps from round to round."""

    def penalty(self, parameters: Weights, server: Weights) -> float | Tensor:
        """Term added to the sum of the clients' objectives, ()."""
        return 0.0

    def after_training(self, own: Weights, server: Weights, present: Tensor) -> None:
        """Update the state of the clients `present`, (K,) bool, which send the trained parameters `own`."""

    def step(self, sent: Weights, weights: Tensor, server: Weights, share: float | Tensor) -> Parameters:
        """The server's next parameters from what the clients sent. `weights`, (K,), sums to 1, and is 0 for
        absent clients; `share`, (), is the present clients' share of all clients' weights."""
        return {name: weighted_mean(value, weights) for name, value in sent.items()}


class ServedMethod(FederatedMethod):
    """A method whose server follows the `ServerRule` that the options' method `rule` makes."""

    labelled_outputs_only = True
    server_state = ("rule",)
    rule: ServerRule

    def build(self) -> None:
        self.rule = self.options.rule()
        super().build()

    def objective(self, logits: Tensor) -> Tensor:
        """The clients' losses and the rule's penalty, ()."""
        return super().objective(logits) + self.rule.penalty(self.parameters, self.received)

    def send(self) -> Message:
        message = super().send()
        self.rule.after_training(message, self.received, self.present)
        return message

    def aggregate(self, sent: Message) -> Message:
        """The result of the rule's step, name → (1, …)."""
        share = 1.0 if self.channel.everyone else self.shares[self.present].sum()
        return self.rule.step(sent, self.weights, self.received, share)


class AdaptiveServer(ServerRule):
    """FedAdagrad's and FedAdam's server: v is the sum of squared changes, with β₂ their moving average."""

    state = ("first", "second")
    first: Parameters
    """m, name → (1, …)."""
    second: Parameters
    """v, name → (1, …); starts at τ²."""

    def __init__(self, options: FedAdagradOptions) -> None:
        self.options, self.first, self.second = options, {}, {}

    def step(self, sent: Weights, weights: Tensor, server: Weights, share: float | Tensor) -> Parameters:
        """m ← β₁ m + (1 − β₁) Δ; v by the rule; w ← w_server + η m / (√v + τ)."""
        options, result = self.options, {}
        for name, value in sent.items():
            change = weighted_mean(value - server[name], weights)
            first = self.first.get(name, torch.zeros_like(change))
            second = self.second.get(name, torch.full_like(change, options.tau**2))
            first = options.beta1 * first + (1 - options.beta1) * change
            if isinstance(options, FedAdamOptions):
                second = options.beta2 * second + (1 - options.beta2) * change.square()
            else:
                second = second + change.square()
            self.first[name], self.second[name] = first, second
            result[name] = server[name] + options.server_learning_rate * first / (second.sqrt() + options.tau)
        return result


@register("fedopt", title="FedOpt", paper="Reddi et al. 2021", options=FedOptOptions, tasks=BOTH_TASKS)
class FedOpt(FedAvg):
    """The server takes a plain step."""

    def aggregate(self, sent: Message) -> Message:
        """w_server + η Δ, name → (1, …)."""
        rate, server = self.options.server_learning_rate, self.received
        return {
            name: server[name] + rate * weighted_mean(value - server[name], self.weights)
            for name, value in sent.items()
        }


@register(
    "fedadagrad", title="FedAdagrad", paper="Reddi et al. 2021", options=FedAdagradOptions, tasks=BOTH_TASKS
)
class FedAdagrad(ServedMethod):
    """The server sums squared changes."""


@register("fedadam", title="FedAdam", paper="Reddi et al. 2021", options=FedAdamOptions, tasks=BOTH_TASKS)
class FedAdam(FedAdagrad):
    """The server keeps a moving average of squared changes."""
