"""Class means: FedAvg that predicts by the nearest mean of a class in the last hidden layer.

Clients send the mean of every class among their training nodes, and the number of these nodes.
"""

import torch
from torch import Tensor

from fedsub.methods.core.base import Message, register
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.tasks import NodeClassification


@register(
    "classmeans", title="Class means", paper="none", backbones=NETWORKS, exchanges="models, class means"
)
class ClassMeans(FedAvg):
    """FedAvg with another classifier."""

    client_state = ("means",)
    task: NodeClassification
    means: Tensor | None = None
    """(C, width) as last received; None before the first exchange."""

    def hidden(self) -> Tensor:
        """Input of the classifier, (n, width)."""
        with torch.no_grad():
            return self.backbone.embed(self.inputs, self.parameters, None)

    def send(self) -> Message:
        """The model, `means` (K, C, width) and `count` (K, C)."""
        means = self.task.class_means(self.hidden()[self.task.train])
        return {**super().send(), "means": means, "count": self.task.held.float()}

    def aggregate(self, sent: Message) -> Message:
        """The mean model, and each class's mean over the training nodes of all clients present."""
        share = sent["count"] / sent["count"].sum(dim=0).clamp(min=1)
        means = (share.unsqueeze(2) * sent["means"]).sum(dim=0, keepdim=True)
        return {**super().aggregate({name: sent[name] for name in self.received}), "means": means}

    def receive(self, answer: Message) -> None:
        """Receive the model, and store the means."""
        super().receive(answer)
        self.means = answer["means"][0]

    def predict(self) -> Tensor:
        """−‖h − mean‖² for every class, (n, C); before the first exchange the classifier's outputs."""
        return super().predict() if self.means is None else -torch.cdist(self.hidden(), self.means).square()
