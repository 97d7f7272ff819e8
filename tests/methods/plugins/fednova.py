"""FedNova: clients that took more steps count no more than others.

Wang et al., Tackling the Objective Inconsistency Problem, NeurIPS 2020, eq. (6), plain local descent:
    w ← w + τ Σ_k p_k (w_k − w) / τ_k,    τ = Σ_k p_k τ_k,    τ_k client k's steps
"""

from fedsub.methods.core.base import BOTH_TASKS, Message, register
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.mixing import weighted_mean


@register("fednova", title="FedNova", paper="Wang et al. 2020", tasks=BOTH_TASKS)
class FedNova(FedAvg):
    """FedAvg of normalised updates."""

    def send(self) -> Message:
        """The model, and `steps`, (K,)."""
        return {**super().send(), "steps": self.epochs.float()}

    def aggregate(self, sent: Message) -> Message:
        """Name → (1, …); an absent client weighs 0."""
        steps = sent["steps"]
        share = self.weights / steps.clamp(min=1) * (self.weights * steps).sum()
        return {
            name: server + weighted_mean(sent[name] - server, share) for name, server in self.received.items()
        }
