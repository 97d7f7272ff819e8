"""FedProto: clients exchange the mean hidden layer of each class, never a model.

Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022, algorithm 1.
T_kc are client k's training nodes of class c, m_kc their number, h_v the classifier's input at node v:

    P_kc = mean of h_v over T_kc                                  the client's prototype, without dropout
    P_c  = Σ_k m_kc P_kc / Σ_k m_kc                               the server's, over clients that hold c
    F_k(w) + λ Σ_c ‖P_kc − P_c‖² / width                          from the second round on

A client sends the prototypes of the classes that it holds, each with its m_kc; it receives those of all
classes. An absent client counts in no P_c. P_c does not change if no present client holds class c. SGC has no
hidden layer; with it h_v is its propagated product, C numbers a node.

Departures: d in the paper's L_R = Σ_c d(P_kc, P_c) is the L2 distance; here it is the mean square, as in all
public code. The paper's eq. (6) divides P_c once more by the number of clients that hold c, which shrinks it;
the authors' code takes the plain mean over these clients. The paper also predicts by the nearest P_c
(`predict`): the authors' code chooses among the client's classes, here among all, with the newest P_c, even
if the client was absent when it was sent. P_kc is computed with the model after its training; the authors'
code computes it in the last epoch, before the step. Links are not predicted, since they have no classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedsub.datasets.limits import NonNegative, tunable
from fedsub.methods.core.base import FederatedMethod, Message, Options, register
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.architecture import NETWORKS
from fedsub.methods.tasks import NodeClassification

FAR = 1e6
"""Added to the largest squared distance for classes without a prototype, so that none is predicted."""


@dataclass(frozen=True)
class FedProtoOptions(Options):
    strength: NonNegative = tunable(1.0, log=(0.01, 10))
    """λ, weight of the distance to the prototypes, at least 0; 0 is Local."""
    distance: Literal["prototypes", "classes", "nodes"] = tunable(
        "prototypes", choices=("prototypes", "classes", "nodes")
    )
    """Distance in the loss. `prototypes`: Σ_c ‖P_kc − P_c‖²; `classes`: Σ_c of the mean of ‖h_v − P_c‖² over
    T_kc (OpenFGL); `nodes`: the mean of ‖h_v − P_c‖² over all training nodes (the authors' code)."""
    average: Literal["nodes", "openfgl"] = "nodes"
    """Clients' weights in P_c: m_kc / Σ_k m_kc, or n_k / n over the clients present, also those without the
    class, whose P_kc is zero (OpenFGL)."""
    predict: Literal["classifier", "prototypes"] = tunable("classifier", choices=("classifier", "prototypes"))
    """How nodes are classified: by the client's classifier, or by the nearest prototype P_c last received."""

    def simulation_only(self) -> str:
        return "the server weighs by numbers of nodes" if self.average == "openfgl" else ""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.strength > 0:
            return {}
        idle = {"distance": "strength above 0"}
        return idle if self.predict == "prototypes" else idle | {"average": "strength above 0"}


@register(
    "fedproto",
    title="FedProto",
    paper="Tan et al. 2022",
    options=FedProtoOptions,
    backbones=NETWORKS,
    lacks=("gpr_dropout",),
)
class FedProto(FederatedMethod):
    """Local training towards common class prototypes."""

    options: FedProtoOptions
    client_state = ("prototypes", "known")
    server_state = ("answered",)
    task: NodeClassification
    count: Tensor
    """m_kc, (K, C)."""
    hidden: Tensor
    """h of the last forward pass, (n, width)."""
    prototypes: Tensor | None = None
    """P_c as last sent, (C, width), zero for a class without one; None before the first exchange."""
    known: Tensor
    """(C,) bool, classes that have a P_c."""
    answered: Message
    """The server's last answer; empty before the first."""

    def build(self) -> None:
        self.count = self.task.held.float()
        super().build()
        self.known = torch.zeros(self.task.width, dtype=torch.bool, device=self.device)
        self.answered = {}

    def shared(self) -> list[str]:
        return []

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Return the clients' outputs, (n, C), and keep the classifier's input as `hidden`."""
        self.hidden = self.backbone.embed(self.inputs, self.parameters, dropout)
        return self.backbone.classify(self.inputs, self.hidden, self.parameters)

    def client_prototypes(self) -> Tensor:
        """P_kc from the last forward pass, (K, C, width); zero where m_kc = 0."""
        return self.task.class_means(self.hidden.index_select(0, self.task.train))

    def objective(self, logits: Tensor) -> Tensor:
        """Σ_k F_k + λ · client k's distance to the prototypes, ()."""
        loss = super().objective(logits)
        if self.options.strength == 0 or self.prototypes is None:
            return loss
        if self.options.distance == "prototypes":
            gap = (self.client_prototypes() - self.prototypes).square().mean(dim=2)
            return loss + self.options.strength * (gap * ((self.count > 0) & self.known)).sum()
        h = self.hidden.index_select(0, self.task.train)
        gap = (h - self.prototypes[self.task.train_labels]).square().mean(dim=1)
        gap = gap * self.known[self.task.train_labels]
        by_class = self.options.distance == "classes"
        share = 1 / self.count.flatten()[self.task.cell] if by_class else self.task.train_weight
        return loss + self.options.strength * torch.dot(share, gap)

    def send(self) -> Message:
        """P_kc of the classes that a client holds, with m_kc in the last column."""
        self.logits(None)
        own = torch.cat([self.client_prototypes(), self.count.unsqueeze(2)], dim=2)
        return {"prototypes": own, "kept.prototypes": self.count > 0}

    def aggregate(self, sent: Message) -> Message:
        """P_c of the classes that any client has held so far."""
        own, count = sent["prototypes"][:, :, :-1], sent["prototypes"][:, :, -1]
        share = (count / count.sum(dim=0).clamp(min=1)).unsqueeze(2)
        if self.options.average == "openfgl":
            sizes = self.federation.sizes.float().to(self.device) * self.present
            share = (sizes / sizes.sum()).view(-1, 1, 1)
        found, held = (share * own).sum(dim=0), (count > 0).any(dim=0)
        if self.answered:
            found = torch.where(held.unsqueeze(1), found, self.answered["prototypes"][0])
            held = held | self.answered["kept.prototypes"][0]
        self.answered = {"prototypes": found.unsqueeze(0), "kept.prototypes": held.unsqueeze(0)}
        return dict(self.answered)

    def receive(self, answer: Message) -> None:
        self.prototypes, self.known = answer["prototypes"][0], answer["kept.prototypes"][0]

    def predict(self) -> Tensor:
        """The classifier's outputs, or −‖h − P_c‖² for every class once there are prototypes; (n, C)."""
        outputs = super().predict()
        if self.options.predict == "classifier" or self.prototypes is None or not self.known.any():
            return outputs
        gap = torch.cdist(self.hidden.detach(), self.prototypes).square()
        return -torch.where(self.known, gap, gap[:, self.known].max() + FAR)
