"""FedSGD: one model on the server, updated in every epoch with the clients' averaged gradient.

McMahan et al., AISTATS 2017, section 2 ("FederatedSGD"), with Adam on the server; FedStruct calls it
FL GNN and FL MLP (its eq. 8): ∇L = Σ_k p_k ∇L_k, θ ← Adam(θ, ∇L), one Adam state in all.

All clients hold the same parameters, so the averaged gradient is computed as the gradient of Σ_k p_k L_k over
one parameter set (K = 1). p_k are the schedule's weights: `nodes` as in FedStruct's code, `training-nodes`
for the 1/|labelled| of its eq. 8. An absent client adds no gradient in that round, a straggler none in the
last epochs; the p_k are then rescaled over the others. The one model predicts all clients' nodes, also those
of an absent client.
"""

import torch
from torch import Tensor

from fedsub.methods.core.base import FederatedMethod, prepare, register
from fedsub.methods.core.channel import Message, unformed
from fedsub.methods.core.steps import backward, local_epochs, server_optimiser, weights_among
from fedsub.methods.core.training import communicate
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.mixing import weighted_mean
from fedsub.methods.stacked.networks.own import Own
from fedsub.methods.stacked.parameters import Parameters, stack, unprefixed

GRADIENT = "gradient"
"""First part of the gradients' names in messages."""


@register("fedsgd", title="FedSGD", paper="McMahan et al. 2017")
class FedSGD(FederatedMethod):
    """Gradients go up, parameters come down, once per epoch."""

    labelled_outputs_only = True
    one_model: bool = True
    """Whether gradients update one model; a subclass that says no averages the clients' models."""

    def build(self) -> None:
        self.every_epoch = self.one_model
        super().build()
        if self.one_model:
            self.optimiser = server_optimiser(self.schedule, list(self.parameters.values()))

    def model_sizes(self, sizes: Tensor) -> Tensor:
        """Number of rows that each parameter set reads, (1 or K,), for clients with `sizes` (K,) rows."""
        return sizes.sum().view(1) if self.one_model else sizes

    def make_inputs(self) -> Inputs:
        """The block-diagonal graph of all clients, read with one parameter set if there is one model.

        A user's network is called on each client's graph, because its rows may depend on all of a graph.
        """
        federation = self.federation
        own = isinstance(self.backbone, Own)
        sizes = federation.sizes if own else self.model_sizes(federation.sizes)
        return prepare(self, federation.graph, federation.features, sizes)

    def initial_parameters(self) -> Parameters:
        """One parameter set, with a leading axis of length 1; without one model, one for each client."""
        start = self.backbone.initial(self.federation.width, self.task.width, self.generator)
        return stack(start, 1 if self.one_model else self.federation.clients, self.device)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k p_k L_k, (); its gradient is the server's average of the clients' gradients."""
        if not self.one_model:
            return super().objective(logits)
        return torch.dot(weights_among(self.shares, self.working), self.task.client_loss(logits))

    def train_round(self) -> Tensor:
        """Exchange gradients in every epoch. The record's mean of the loss over clients is Σ p_k L_k."""
        if not self.one_model:
            return super().train_round()
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = backward(self)
            communicate(self, self.working)
        return loss * self.federation.clients

    def send(self) -> Message:
        """The gradients as `gradient.<name>`, (1, …), already averaged over the clients."""
        if not self.one_model:
            return super().send()
        return {
            f"{GRADIENT}.{name}": unformed(*value.shape) if value.grad is None else value.grad
            for name, value in self.parameters.items()
        }

    def aggregate(self, sent: Message) -> Message:
        """The server's parameters after a step on the averaged gradient; name → (1, …)."""
        if not self.one_model:
            return super().aggregate(sent)
        weights = weights_among(self.shares, self.working)
        for name, gradient in unprefixed(GRADIENT, sent).items():
            if not gradient.is_meta:
                mean = gradient if len(gradient) == 1 else weighted_mean(gradient, weights)
                self.parameters[name].grad = mean
        self.optimiser.step()
        return {name: value.detach() for name, value in self.parameters.items()}

    def receive(self, answer: Message) -> None:
        """Copy the server's parameters, which in the simulation are also the clients'."""
        if not self.one_model:
            super().receive(answer)
            return
        for name, value in answer.items():
            self.parameters[name].copy_(value)
