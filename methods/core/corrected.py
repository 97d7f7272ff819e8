"""Methods that read a mean gradient off how far each client went in a round."""

from __future__ import annotations

from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.stacked.mixing import column


class CorrectedMethod(FederatedMethod):
    """FedAvg whose local steps are corrected by such gradients."""

    labelled_outputs_only = True

    def build(self) -> None:
        """FedAvg's set-up. Raises UserError for a learning rate of 0."""
        super().build()
        if self.schedule.learning_rate == 0:
            raise UserError(f"{self.info.name} divides by the learning rate: it must be positive")

    def mean_gradient(self, name: str) -> Tensor:
        """(w_s − w_k) / (η E) of a shared parameter, (K, …); E is each client's local epochs, at least 1."""
        way = self.received[name] - self.parameters[name].detach()
        length = self.epochs.clamp(min=1).double() * self.schedule.learning_rate
        return way / column(length.float(), way)
