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

from fedsub.methods.core.base import FederatedMethod, prepare, register, rows_read
from fedsub.methods.core.channel import Message, unformed
from fedsub.methods.core.steps import backward, local_epochs, server_optimiser, weights_among
from fedsub.methods.core.training import communicate
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.mixing import weighted_mean
from fedsub.methods.stacked.parameters import Parameters, stack, unprefixed

GRADIENT = "gradient"
"""First part of the gradients' names in messages."""


@register("fedsgd", title="FL GNN", paper="McMahan et al. 2017", exchanges="gradients of the parameters")
class FedSGD(FederatedMethod):
    """Gradients go up, parameters come down, once per epoch."""

    labelled_outputs_only = True

    @property
    def one_model(self) -> bool:
        """Whether there is one model; where a subclass says no, the clients' models are averaged."""
        return True

    def build(self) -> None:
        """Averaged gradients are those of one epoch; the optimiser is then the server's."""
        self.every_epoch = self.one_model
        super().build()
        if self.one_model:
            self.optimiser = server_optimiser(self.schedule, list(self.parameters.values()))

    def model_sizes(self, sizes: Tensor) -> Tensor:
        """Rows that each set of parameters reads, (1 or K,), of clients with `sizes` (K,) rows."""
        return sizes.sum().view(1) if self.one_model else sizes

    def make_inputs(self) -> Inputs:
        """All clients' graphs side by side, read with one set of parameters."""
        federation = self.federation
        return prepare(
            self,
            federation.graph,
            federation.features,
            self.model_sizes(federation.sizes),
            read=rows_read(self),
        )

    def initial_parameters(self) -> Parameters:
        """One start, with a leading axis of length 1."""
        if not self.one_model:
            return super().initial_parameters()
        start = self.backbone.initial(self.federation.width, self.task.width, self.generator)
        return stack(start, 1, self.device)

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k p_k L_k, (); its gradient is the server's average of the clients' gradients."""
        if not self.one_model:
            return super().objective(logits)
        return torch.dot(weights_among(self.shares, self.working), self.task.client_loss(logits))

    def train_round(self) -> Tensor:
        """A step of the server for every epoch, between the clients' gradients and its answer; the loss is
        scaled so that the record's mean over clients is Σ p_k L_k."""
        if not self.one_model:
            return super().train_round()
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = backward(self)
            communicate(self, self.working)
        return loss * self.federation.clients

    def send(self) -> Message:
        """The gradients as `gradient.<name>`: of K clients their average at once, (1, …)."""
        if not self.one_model:
            return super().send()
        gradients = {name: value.grad for name, value in self.parameters.items()}
        return {
            f"{GRADIENT}.{name}": unformed(*self.parameters[name].shape) if each is None else each
            for name, each in gradients.items()
        }

    def aggregate(self, sent: Message) -> Message:
        """The server's parameters after a step on the averaged gradient; name → (1, …)."""
        if not self.one_model:
            return super().aggregate(sent)
        weights = weights_among(self.shares, self.working)
        for name, gradient in unprefixed(GRADIENT, sent).items():
            if not gradient.is_meta:
                self.parameters[name].grad = (
                    gradient if len(gradient) == 1 else weighted_mean(gradient, weights)
                )
        self.optimiser.step()
        return {name: value.detach() for name, value in self.parameters.items()}

    def receive(self, answer: Message) -> None:
        """The server's parameters, which in the simulation are the clients' own."""
        if not self.one_model:
            super().receive(answer)
            return
        for name, value in answer.items():
            self.parameters[name].copy_(value)
