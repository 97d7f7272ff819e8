"""MOON: what the clients' hidden layers say is drawn to the received model's and away from their last one's.

Li et al., Model-Contrastive Federated Learning, CVPR 2021, eq. (3): at a node of client k, with h the
hidden layer that the classifier reads, h_glob that of the received model, h_prev that of the client's
model at the end of its last training, and s the cosine,

    ℓ = −log( e^{s(h, h_glob)/τ} / (e^{s(h, h_glob)/τ} + e^{s(h, h_prev)/τ}) )
      = log(1 + e^{(s(h, h_prev) − s(h, h_glob))/τ})

    F_k(w) + μ · mean of ℓ over the client's nodes,    w_s ← Σ_k p_k w_k

h_glob and h_prev are computed once a round, without dropout, and are constants. In the first round
both models are the common start, ℓ has no gradient and is left out. A client that is absent in a round keeps
its model, of which h_prev is taken, until it receives the newest one for its next.

Departures: ℓ is the mean over all of a client's nodes, as in OpenFGL; the paper has the labelled ones
(`nodes = "training"`). The paper's network has a projection head, two linear layers with a ReLU between
them, below its classifier, and h is its output (`projection`); OpenFGL has none, and neither has any
other method here. With SGC, which has no hidden layer, h is its propagated product, C numbers a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import NonNegative, Positive
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import BOTH_TASKS, Options, register
from fedsub.methods.core.channel import Message
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.stacked.parameters import Parameters, linear_start, prefixed, stack
from fedsub.methods.stacked.segments import Segments, segment_product
from fedsub.methods.tasks import NodeClassification


@dataclass(frozen=True)
class MoonOptions(Options):
    mu: NonNegative = tunable(1.0, log=(0.01, 10))
    """μ, at least 0; 0 is FedAvg. The paper searches {0.1, 1, 5, 10}; with one local step a round 1 learns
    more slowly than 0.1 (results/notes/all-methods.md)."""
    temperature: Positive = tunable(0.5, log=(0.1, 2))
    """τ, positive."""
    nodes: Literal["all", "training"] = "all"
    """Whose ℓ is averaged."""
    projection: bool = False
    """Whether the paper's projection head stands below the classifier."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        idle: dict[str, str] = {}
        if self.mu == 0:
            idle |= {"temperature": "mu above 0", "nodes": "mu above 0"}
        if backbone == "sgc":
            idle["projection"] = "a backbone with hidden layers"
        return idle


@register(
    "moon", title="MOON", paper="Li et al. 2021", options=MoonOptions, tasks=BOTH_TASKS, backbones=NETWORKS
)
class Moon(FedAvg):
    """FedAvg with a contrast between models in the local objective."""

    client_state = ("previous", "received_hidden")
    labelled_outputs_only = False
    options: MoonOptions
    hidden: Tensor
    """h of the forward pass just made, (n, width)."""
    previous: Tensor | None = None
    """h_prev, (n, width); None before the first exchange."""
    received_hidden: Tensor
    """h_glob, (n, width)."""
    share: Tensor
    """(n,) of each node in its client's mean of ℓ."""

    def build(self) -> None:
        """FedAvg's set-up and the nodes' shares. Raises UserError for training nodes where edges are
        predicted."""
        if self.options.nodes == "training" and not isinstance(self.task, NodeClassification):
            raise UserError(
                "moon[nodes=training] needs nodes to train on, and edges are predicted: set nodes=all"
            )
        super().build()
        federation = self.federation
        counted = federation.train if self.options.nodes == "training" else torch.ones_like(federation.train)
        count = torch.bincount(federation.client[counted], minlength=federation.clients)
        self.share = (counted / count.clamp(min=1)[federation.client]).to(self.device)

    def initial_parameters(self) -> Parameters:
        """The backbone's, and the projection's where there is one."""
        parameters = super().initial_parameters()
        if not self.projects:
            return parameters
        width = self.backbone.architecture.hidden[-1]
        layers = [
            prefixed(f"projection.{layer}", linear_start(width, width, self.generator)) for layer in (0, 1)
        ]
        return parameters | stack(layers[0] | layers[1], self.federation.clients, self.device)

    @property
    def projects(self) -> bool:
        """Whether there is a projection head."""
        return self.options.projection and self.backbone.architecture.backbone != "sgc"

    def embed(self, dropout: Dropout | None) -> Tensor:
        """What the classifier reads, (n, width)."""
        hidden = self.backbone.embed(self.inputs, self.parameters, dropout)
        if not self.projects:
            return hidden
        return project(hidden, self.parameters, self.inputs.segments)

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The clients' outputs, (n, C); keeps what the classifier read."""
        self.hidden = self.embed(dropout)
        return self.backbone.classify(self.inputs, self.hidden, self.parameters)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k + μ · mean of ℓ, ()."""
        loss = super().objective(logits)
        if self.options.mu == 0 or self.previous is None:
            return loss
        pushed = functional.cosine_similarity(self.hidden, self.previous)
        pulled = functional.cosine_similarity(self.hidden, self.received_hidden)
        contrast = functional.softplus((pushed - pulled) / self.options.temperature)
        return loss + self.options.mu * torch.dot(self.share, contrast)

    def send(self) -> Message:
        """FedAvg's, once h_prev is taken."""
        self.previous = self.embed(None)
        return super().send()

    def receive(self, answer: Message) -> None:
        """FedAvg's; then h_glob is taken."""
        super().receive(answer)
        self.received_hidden = self.embed(None)


def project(h: Tensor, parameters: Mapping[str, Tensor], segments: Segments) -> Tensor:
    """W₂ relu(W₁ h + b₁) + b₂ of each node's client; (n, width) → (n, width)."""
    inner = segment_product(h, parameters["projection.0.weight"], segments)
    inner = activate(inner, parameters["projection.0.bias"], segments, None)
    outer = segment_product(inner, parameters["projection.1.weight"], segments)
    return add_bias(outer, parameters["projection.1.bias"], segments)
