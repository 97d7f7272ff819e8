"""FedProx: FedAvg with a proximal term that keeps each client near the model it received.

Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, eq. (2):
    h_k(w) = F_k(w) + μ/2 · ‖w − w_server‖²

With one local step per round the proximal term has gradient zero, so such a run equals FedAvg exactly.
"""

from dataclasses import dataclass

from torch import Tensor

from fedsub.datasets.limits import NonNegative, tunable
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.mixing import squared_distance


@dataclass(frozen=True)
class FedProxOptions(Options):
    mu: NonNegative = tunable(0.01, log=(1e-4, 10))
    """Weight of the proximal term, at least 0; 0 is FedAvg. The paper searches it; GCFL's code uses 0.01,
    OpenFGL 0.001."""


@register("fedprox", title="FedProx", paper="Li et al. 2020", options=FedProxOptions, tasks=BOTH_TASKS)
class FedProx(FedAvg):
    """FedAvg with a proximal term in the local objective; the paper has experiments with `stragglers`."""

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k h_k, ()."""
        drift = sum(squared_distance(self.parameters[name], w) for name, w in self.received.items())
        return super().objective(logits) + 0.5 * self.options.mu * drift
