"""Ditto: every client also trains a personal model, kept near the shared model that it received.

Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, algorithm 1.
Client k holds its copy w of the shared model and a personal model v, and predicts with v:

    w ← w − η ∇F_k(w)        v ← v − η (∇F_k(v) + λ (v − w_s)),    w_s as received

The server averages only w. So w equals FedAvg's model, and with λ = 0 v equals Local's, to the last bit:
both draw the same dropout masks and pairs. A client that is absent in a round keeps v unchanged.

Departures: the schedule's optimiser (Adam) steps w and v, as in every method here, v as often as w.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedsub.datasets.limits import NonNegative, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Options, register
from fedsub.methods.core.steps import local_epochs
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.mixing import squared_distance
from fedsub.methods.stacked.parameters import Parameters, prefixed, unprefixed
from fedsub.methods.tasks import Task

PREFIX = "personal"


class TwoModels(FederatedMethod):
    """Base of methods whose clients hold the shared model and, as `personal.<name>`, a personal model."""

    unshared = (PREFIX,)
    client_state: ClassVar[tuple[str, ...]] = ("personal_dropout", "personal_task")
    labelled_outputs_only = True
    personal_dropout: Dropout
    """Dropout of the personal models; it draws the same masks as that of the shared models."""
    personal_task: Task
    """Task of the personal models; if it draws pairs, it draws the same ones as `task`."""

    def build(self) -> None:
        super().build()
        self.personal_task = self.setting.task.restarted()
        self.personal_dropout = Dropout(self.setting.architecture.dropout, self.setting.seed, self.device)

    def initial_parameters(self) -> Parameters:
        """The shared models and the personal ones, which start alike."""
        shared = super().initial_parameters()
        personal = {name: value.detach().clone().requires_grad_() for name, value in shared.items()}
        return shared | prefixed(PREFIX, personal)

    def predict(self) -> Tensor:
        """Outputs of every node, (n, C). If the schedule keeps dropout on, the shared models' random state
        skips the masks drawn here."""
        outputs = super().predict()
        self.dropout.source.state = self.personal_dropout.source.state
        return outputs

    def predicting(self) -> Parameters:
        """The parameters that clients predict with, named as the shared ones: the personal models."""
        return unprefixed(PREFIX, self.parameters)

    def logits(self, dropout: Dropout | None) -> Tensor:
        chosen = None if dropout is None else self.personal_dropout
        return self.backbone.forward(self.inputs, self.predicting(), chosen)

    def objective(self, logits: Tensor) -> Tensor:
        """The sum of the losses of the predicting models, ()."""
        return self.personal_task.loss(logits)

    def backward(self, predicting: Parameters) -> Tensor:
        """Compute gradients of the shared models' losses and of `predicting`'s objective; return it, ()."""
        self.optimiser.zero_grad(set_to_none=True)
        self.inputs.renew_gradients()
        forward, outputs_of = self.backbone.forward_to_read, self.setting.architecture.outputs_of
        shared = self.task.loss(outputs_of(forward(self.inputs, self.parameters, self.dropout)))
        loss = self.objective(outputs_of(forward(self.inputs, predicting, self.personal_dropout)))
        (shared + loss).backward()
        return loss.detach()


@dataclass(frozen=True)
class DittoOptions(Options):
    strength: NonNegative = tunable(0.1, log=(0.01, 10))
    """λ, weight of the distance to the received model, at least 0; 0 is Local. Usual range: [0.01, 2]."""


@register("ditto", title="Ditto", paper="Li et al. 2021", options=DittoOptions, tasks=BOTH_TASKS)
class Ditto(TwoModels):
    """FedAvg with a personal model kept near the shared one."""

    options: DittoOptions

    def train_round(self) -> Tensor:
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = self.backward(self.predicting())
            self.optimiser.step()
        return loss

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k(v) + λ/2 ‖v − w_s‖², ()."""
        drift = sum(squared_distance(v, self.received[name]) for name, v in self.predicting().items())
        return super().objective(logits) + 0.5 * self.options.strength * drift
