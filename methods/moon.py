"""MOON: a contrastive loss pulls hidden layers towards the received model's, away from the previous model's.

Li et al., Model-Contrastive Federated Learning, CVPR 2021, eq. (3). At a node of client k, h is the hidden
layer that the classifier reads. h_glob is the received model's h, h_prev the h of the client's model after
its last training, and s the cosine:

    ℓ = −log( e^{s(h, h_glob)/τ} / (e^{s(h, h_glob)/τ} + e^{s(h, h_prev)/τ}) )
      = log(1 + e^{(s(h, h_prev) − s(h, h_glob))/τ})

    F_k(w) + μ · mean of ℓ over the client's nodes,    w_s ← Σ_k p_k w_k

h_glob and h_prev are computed once a round, without dropout, and are constants. In the first round both
models are the common start: ℓ has no gradient and is left out. An absent client keeps its model, from which
h_prev is computed, until it receives the newest model for its next round.

Departures: by default `nodes` and `projection` are OpenFGL's, not the paper's. SGC has no hidden layer; with
it h is its propagated product, C numbers a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import NonNegative, Positive, tunable
from fedsub.methods.core.base import BOTH_TASKS, Message, Options, register
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.activation import Dropout, activate, add_bias
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.stacked.parameters import Parameters, linear_start, prefixed, stack
from fedsub.methods.stacked.segments import segment_product
from fedsub.methods.tasks import NodeClassification


@dataclass(frozen=True)
class MoonOptions(Options):
    mu: NonNegative = tunable(1.0, log=(0.01, 10))
    """μ, weight of the contrast, at least 0; 0 is FedAvg. The paper searches {0.1, 1, 5, 10}; with one local
    step a round, 1 learns more slowly than 0.1 (results/notes/all-methods.md)."""
    temperature: Positive = tunable(0.5, log=(0.1, 2))
    """τ, temperature of the contrastive loss, positive."""
    nodes: Literal["all", "training"] = "all"
    """Nodes of a client over which ℓ is averaged; the labelled ones in the paper."""
    projection: bool = False
    """Whether the network has the paper's projection head below its classifier: two linear layers with a ReLU
    between them, whose output is h."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        idle = dict.fromkeys(("temperature", "nodes"), "mu above 0") if self.mu == 0 else {}
        if backbone == "sgc":
            idle["projection"] = "a backbone with hidden layers"
        return idle


@register(
    "moon",
    title="MOON",
    paper="Li et al. 2021",
    options=MoonOptions,
    tasks=BOTH_TASKS,
    backbones=NETWORKS,
    lacks=("gpr_dropout",),
)
class Moon(FedAvg):
    """FedAvg with a model-contrastive term in the local objective."""

    client_state = ("previous", "received_hidden")
    labelled_outputs_only = False
    options: MoonOptions
    hidden: Tensor
    """h of the last forward pass, (n, width)."""
    previous: Tensor | None = None
    """h_prev, (n, width); None before the first exchange."""
    received_hidden: Tensor
    """h_glob, (n, width)."""
    share: Tensor
    """(n,) weight of each node in its client's mean of ℓ."""

    def build(self) -> None:
        """Compute `share` after FedAvg's set-up. Raises UserError for nodes=training in link prediction."""
        if self.options.nodes == "training" and not isinstance(self.task, NodeClassification):
            raise UserError(
                "moon[nodes=training] needs training nodes, which link prediction lacks: set nodes=all"
            )
        super().build()
        federation = self.federation
        counted = federation.train if self.options.nodes == "training" else torch.ones_like(federation.train)
        count = torch.bincount(federation.client[counted], minlength=federation.clients)
        self.share = (counted / count.clamp(min=1)[federation.client]).to(self.device)

    def initial_parameters(self) -> Parameters:
        """The backbone's parameters, and `projection.0` and `projection.1` of a projection head."""
        parameters = super().initial_parameters()
        if self.options.projection and self.architecture.backbone != "sgc":
            width = self.architecture.hidden[-1]
            for layer in (0, 1):
                start = prefixed(f"projection.{layer}", linear_start(width, width, self.generator))
                parameters |= stack(start, self.federation.clients, self.device)
        return parameters

    def embed(self, dropout: Dropout | None) -> Tensor:
        """The classifier's input, (n, width): the backbone's h, or with a head W₁ relu(W₀ h + b₀) + b₁."""
        parameters, segments = self.parameters, self.inputs.segments
        h = self.backbone.embed(self.inputs, parameters, dropout)
        if "projection.0.weight" not in parameters:
            return h
        h = segment_product(h, parameters["projection.0.weight"], segments)
        h = activate(h, parameters["projection.0.bias"], segments, None)
        h = segment_product(h, parameters["projection.1.weight"], segments)
        return add_bias(h, parameters["projection.1.bias"], segments)

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Return the clients' outputs, (n, C), and keep the classifier's input as `hidden`."""
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
        """Compute h_prev, then return FedAvg's message."""
        self.previous = self.embed(None)
        return super().send()

    def receive(self, answer: Message) -> None:
        """Do as FedAvg, then compute h_glob; and h_prev of a client that has never sent."""
        if self.previous is None:
            self.previous = self.embed(None)
        super().receive(answer)
        self.received_hidden = self.embed(None)
