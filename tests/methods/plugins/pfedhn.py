"""pFedHN: the server's hypernetwork makes each client's model from an embedding of the client.

Shamsian et al., Personalized Federated Learning using Hypernetworks, ICML 2021, algorithm 1. Client k gets
θ_k = h(v_k; φ) and sends its θ̃_k after local steps; the server descends v and φ along (∂θ_k)ᵀ (θ_k − θ̃_k).
Here h is one hidden layer and, for every parameter, a linear map added to the common start.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsub.datasets.limits import Count, Positive
from fedsub.methods.core.base import BOTH_TASKS, Message, Options, register
from fedsub.methods.fedavg import FedAvg


@dataclass(frozen=True)
class PFedHNOptions(Options):
    """Hyper-parameters of pFedHN."""

    width: Count = 16
    """Of the embeddings and of the hidden layer."""
    rate: Positive = 0.05
    """Learning rate of the server."""


@register("pfedhn", title="pFedHN", paper="Shamsian et al. 2021", options=PFedHNOptions, tasks=BOTH_TASKS)
class PFedHN(FedAvg):
    """Models from a hypernetwork."""

    server_state = ("hyper", "server_optimiser")

    def build(self) -> None:
        """FedAvg's set-up, and the hypernetwork: `embedding` (K, width), `hidden`, and a map a parameter."""
        super().build()
        width, clients = self.options.width, self.federation.clients
        shapes = {"embedding": (clients, width), "hidden": (width, width)}
        drawn = {name: torch.randn(shape, generator=self.generator) for name, shape in shapes.items()}
        self.start = self.received
        self.hyper = {name: value.to(self.device).requires_grad_() for name, value in drawn.items()}
        for name, value in self.start.items():
            zeros = torch.zeros(width, value.numel(), device=self.device)
            self.hyper[f"map.{name}"] = zeros.requires_grad_()
        self.server_optimiser = torch.optim.SGD(self.hyper.values(), lr=self.options.rate)

    def models(self) -> dict[str, Tensor]:
        """θ_k, name → (K, …)."""
        hidden = (self.hyper["embedding"] @ self.hyper["hidden"]).tanh()
        maps = {name: hidden @ self.hyper[f"map.{name}"] for name in self.start}
        return {name: start + maps[name].view(-1, *start.shape[1:]) for name, start in self.start.items()}

    def aggregate(self, sent: Message) -> Message:
        """One step on v and φ; then every client's model, name → (K, …)."""
        with torch.enable_grad():
            self.server_optimiser.zero_grad()
            for name, model in self.models().items():
                way = (model.detach() - sent[name])[self.present]
                (model[self.present] * way).sum().backward(retain_graph=True)
        self.server_optimiser.step()
        return {name: model.detach() for name, model in self.models().items()}
