"""Methods whose clients hold two models: a copy of the shared one, and one of their own."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.tasks import Task
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.parameters import Parameters, prefixed, unprefixed

PREFIX = "personal"


class TwoModels(FederatedMethod):
    """The personal models are parameters named `personal.<name>`, never sent."""

    unshared = (PREFIX,)
    client_state: ClassVar[tuple[str, ...]] = ("personal_dropout", "personal_task")
    labelled_outputs_only = True
    personal_dropout: Dropout
    """Draws for the personal models the masks that the shared ones draw."""
    personal_task: Task
    """The same of pairs, where the task draws any."""

    def build(self) -> None:
        """FedAvg's set-up, and a second source of all that is drawn in training."""
        super().build()
        self.personal_task = self.setting.task.restarted()
        self.personal_dropout = Dropout(self.setting.architecture.dropout, self.setting.seed, self.device)

    def initial_parameters(self) -> Parameters:
        """The shared models, and the personal ones at the same start."""
        shared = super().initial_parameters()
        personal = {name: value.detach().clone().requires_grad_() for name, value in shared.items()}
        return shared | prefixed(PREFIX, personal)

    def predict(self) -> Tensor:
        """Outputs of every node, (n, C). Where the schedule keeps dropout on, the shared models pass over the
        masks that these drew."""
        outputs = super().predict()
        self.dropout.source.state = self.personal_dropout.source.state
        return outputs

    def personal(self) -> Parameters:
        """The personal models under the shared ones' names."""
        return unprefixed(PREFIX, self.parameters)
