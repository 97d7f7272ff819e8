"""FedDyn: a dynamic regulariser in every client's loss makes the clients' optima agree with the global one.

Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021, algorithm 1:
    w_k  = argmin F_k(w) − ⟨g_k, w⟩ + α/2 ‖w − w_server‖²
    g_k ← g_k − α (w_k − w_server)
    h   ← h − α Σ_k p_k (w_k − w_server)
    w_server ← Σ_k p_k w_k − h/α

A client that is absent in a round keeps g_k. As in the paper, h sums over the clients present with their
weights among all clients, and w_server is the mean over the clients present.

Departures: the schedule's local epochs replace the argmin; `optimiser = "sgd"` gives the paper's steps.
p_k are the schedule's weights, where the paper has 1/K (`weighting = "uniform"`). Σ p_k ∇F_k = 0 at the
fixed point, so the weights decide which objective is minimised, as in FedAvg. The public code
(github.com/alpemreacar/FedDyn) averages evenly instead, and divides client k's α by K p_k.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsub.datasets.limits import Positive, tunable
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.fedopt import ServedMethod, ServerRule
from fedsub.methods.stacked.mixing import for_clients, squared_distance, weighted_mean
from fedsub.methods.stacked.parameters import Parameters, Weights


@dataclass(frozen=True)
class FedDynOptions(Options):
    alpha: Positive = tunable(0.01, log=(1e-3, 1))
    """α, strength of the regularisation, positive; FedCog's paper searches [0.001, 0.1]."""

    def rule(self) -> ServerRule:
        return DynamicRegularisation(self.alpha)


class DynamicRegularisation(ServerRule):
    """FedDyn's server step and its penalty in the clients' losses."""

    state = ("gradient", "correction")
    gradient: Parameters
    """g_k, name → (K, …); it never leaves the client. Its w_k is the one before the uplink changes it."""
    correction: Parameters
    """h, name → (1, …)."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.gradient, self.correction = {}, {}

    def penalty(self, parameters: Weights, server: Weights) -> Tensor:
        """Σ_k −⟨g_k, w_k⟩ + α/2 ‖w_k − w_server‖²."""
        total = torch.zeros((), device=next(iter(server.values())).device)
        for name, received in server.items():
            total = total + 0.5 * self.alpha * squared_distance(parameters[name], received)
            if name in self.gradient:
                total = total - (self.gradient[name] * parameters[name]).sum()
        return total

    def after_training(self, own: Weights, server: Weights, present: Tensor) -> None:
        """g_k ← g_k − α (w_k − w_server)."""
        for name, value in own.items():
            old = self.gradient.get(name, torch.zeros_like(server[name]))
            self.gradient[name] = for_clients(old - self.alpha * (value - server[name]), old, present)

    def step(self, sent: Weights, weights: Tensor, server: Weights, share: float | Tensor) -> Parameters:
        """h ← h − α Σ p_k (w_k − w_server); w ← Σ p_k w_k − h/α."""
        result = {}
        for name, value in sent.items():
            mean_drift = share * weighted_mean(value - server[name], weights)
            self.correction[name] = self.correction.get(name, 0) - self.alpha * mean_drift
            result[name] = weighted_mean(value, weights) - self.correction[name] / self.alpha
        return result


@register("feddyn", title="FedDyn", paper="Acar et al. 2021", options=FedDynOptions, tasks=BOTH_TASKS)
class FedDyn(ServedMethod):
    """Dynamic regularisation of all parameters."""
