"""What a server makes of the clients' models: FedAvg's rule, and the methods that may follow another.

A rule stands beside its method (`methods.feddyn`, `methods.fedopt`); FedCog can be trained by any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.channel import Message
from fedsub.methods.stacked.mixing import weighted_mean
from fedsub.methods.stacked.parameters import Parameters


class ServerRule:
    """State and step of a server, FedAvg's where not overridden; shared parameters are name → (K, …), the
    server's name → (1, …). Clients that are absent in the round weigh 0."""

    state: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that a rule keeps from round to round."""
    present: Tensor | None = None
    """(K,) bool, whose parameters are sent in this round; None: everyone's."""
    share: float | Tensor = 1.0
    """() of all clients' weights that those present have."""

    def penalty(self, parameters: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> Tensor | None:
        """What the rule adds to the sum of the clients' objectives, (), or None."""
        return None

    def after_training(self, own: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> None:
        """What clients do beside sending, from their `own` parameters as they trained them."""

    def step(self, sent: Mapping[str, Tensor], weights: Tensor, server: Mapping[str, Tensor]) -> Parameters:
        """The server's next parameters from what the clients sent; `weights` (K,) sums to 1."""
        return {name: weighted_mean(value, weights) for name, value in sent.items()}


class ServedMethod(FederatedMethod):
    """A method whose server follows a `ServerRule`; subclasses say which."""

    server_state = ("rule",)
    rule: ServerRule

    def build(self) -> None:
        self.rule = self.make_rule()
        super().build()

    def make_rule(self) -> ServerRule:
        return ServerRule()

    def objective(self, logits: Tensor) -> Tensor:
        """The clients' losses and the rule's penalty, ()."""
        penalty = self.rule.penalty(self.parameters, self.received)
        loss = self.clients_loss(logits)
        return loss if penalty is None else loss + penalty

    def clients_loss(self, logits: Tensor) -> Tensor:
        """The clients' losses without penalty, ()."""
        return super().objective(logits)

    def send(self) -> Message:
        """FedAvg's, after what the rule has clients do."""
        if not self.channel.everyone:
            self.rule.present, self.rule.share = self.present, self.shares[self.present].sum()
        message = super().send()
        self.rule.after_training(message, self.received)
        return message

    def aggregate(self, sent: Message) -> Message:
        """The rule's step in place of the mean; name → (1, …)."""
        return self.rule.step(sent, self.weights, self.received)
