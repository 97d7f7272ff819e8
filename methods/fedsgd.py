"""FedSGD: one model on the server, stepped on the clients' averaged gradient in every epoch.

McMahan et al., AISTATS 2017, section 2 ("FederatedSGD"), with Adam on the server; FedStruct calls it
FL GNN and FL MLP (its eq. 8): ∇L = Σ_k p_k ∇L_k, θ ← Adam(θ, ∇L), one Adam state in all.

All clients hold the same parameters, so the averaged gradient is the gradient of Σ_k p_k L_k over one
parameter set (K = 1): that is what is computed. p_k are the schedule's weights: `nodes` as in
FedStruct's code, `training-nodes` for the 1/|labelled| of its eq. 8. An absent client adds no gradient in
that round, a straggler none in its last epochs; the p_k are then those of the others. There is one model, by
which all clients' nodes are predicted, also those of a client that is absent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods.core.base import FederatedMethod, register
from methods.core.channel import size_of
from methods.core.tasks import NodeClassification
from methods.stacked.backbones import Inputs
from methods.stacked.parameters import Parameters, stack


@register("fedsgd", title="FL GNN", paper="McMahan et al. 2017", exchanges="gradients of the parameters")
class FedSGD(FederatedMethod):
    """Gradients go up, parameters come down, once per epoch."""

    reads_labelled_alone = True
    task: NodeClassification

    def make_inputs(self) -> Inputs:
        """All clients' graphs side by side, read with one set of parameters."""
        federation, sizes = self.federation, torch.tensor([self.federation.nodes])
        return self.prepare(federation.graph, federation.features, sizes, read=self.read)

    def initial_parameters(self) -> Parameters:
        """One start, with a leading axis of length 1."""
        return stack(self.draw_start(), 1, self.device)

    def make_optimiser(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        """The server's."""
        return self.make_server_optimiser(parameters)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k p_k L_k, (); its gradient is the server's average of the clients' gradients."""
        return torch.dot(self.weights_among(self.working), self.task.client_loss(logits))

    def local_epoch(self) -> Tensor:
        """One step of the server; the loss is scaled so that the record's mean over clients is Σ p_k L_k."""
        return super().local_epoch() * self.federation.clients

    def average(self) -> Parameters:
        """The server's parameters: there is nothing to average; name → (1, …)."""
        return {name: value.detach().clone() for name, value in self.parameters.items()}

    def exchange(self, round_number: int) -> None:
        """Each epoch of the round cost every client one gradient up and one model down."""
        sent = int(self.epochs.sum()) * size_of(*self.parameters.values())
        self.channel.up(sent)
        self.channel.down(sent)
