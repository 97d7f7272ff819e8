"""AdaFGL: FedAvg first; then every client trains alone on its graph and the common model's predictions.

Li et al., AdaFGL: A New Paradigm for Federated Node Classification with Topology Heterogeneity, ICDE 2024.
First step: FedAvg. The last model is the extractor; P is the softmax of its logits. In the second step A and
X are one client's, and cos(Z)_ij is the cosine of softmax z_i and softmax z_j, 0 for i = j:

    B = 1[cos(P) > 0.999],  Ā = αA + (1 − α)B + I, normalised as in a GCN,  X̃ = [X, ĀX, …, Ā^L X]
    homophilous:   z = MLP(X̃),  loss CE(z) + mean (z − P)²,  ŷ = ½ (softmax z + softmax P)
    heterophilous: z₁ = MLP(X), z₂ = MLP(X̃), Z = MLP(X̃),
                   R = βB + (1 − β) cos(Z), μ its mean and M its maximum,
                   R' = I + (R − μ)/(M − μ) where R > μ, −R/μ elsewhere,  φ a PReLU,
                   z₃ = ½ (softmax(φ(R')Z) − softmax(φ(−R')Z) + Z)
                   loss CE(z₁) + CE(z₂) + CE(z₃),  ŷ = ⅓ (softmax z₁ + softmax z₂ + softmax z₃)
    HCS = accuracy of label propagation from half of the client's training nodes on the other half
    predicted: HCS · ŷ homophilous + (1 − HCS) · ŷ heterophilous

Models are exchanged only in the first step. A client that is absent in one of its rounds is not in that
round's average. In a round of the second step absent clients take no steps, and stragglers take all. P comes
from the model that a client holds when the second step begins. Without a second step this is FedAvg.

Departures: the formulas were read in the authors' code (github.com/xkLi-Allen/AdaFGL). It trains and uses
only one part, the homophilous one if HCS ≥ 0.9 (`combine = "threshold"`). The mixture is OpenFGL's, which has
α = 0.5 and β = 0; a summary of the paper describes it too. P comes from the last round's model, as in the
paper's abstract; the code takes the model of best validation. The code trains 100 rounds of three epochs,
then 200 epochs alone. Here both steps share the schedule's rounds, by default half each as in OpenFGL, and a
round of the second is `epochs` steps. P passes a second softmax in cos(P) and in ŷ, as in the code. The
extractor is the backbone, whose Adam keeps its state; the code's default is a ChebNet on [X ‖ ÂX] with a new
Adam in each round. X is the extractor's input. Links are not predicted, since P and HCS need classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.limits import Count, PositiveShare, Share, tunable
from fedsub.methods.adafgl.messages import SMALLEST
from fedsub.methods.adafgl.personal import Heads, Personal, personal_start
from fedsub.methods.core.base import FederatedMethod, Message, Options, register
from fedsub.methods.core.steps import descend
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.parameters import Parameters, prefixed, stack, unprefixed
from fedsub.methods.stacked.propagation import spread_labels
from fedsub.methods.stacked.segments import ranks
from fedsub.methods.tasks import NodeClassification

PREFIX = "personal"


@dataclass(frozen=True)
class AdaFGLOptions(Options):
    federated: PositiveShare = tunable(0.5, linear=(0.25, 0.75))
    """Share of the rounds that belong to the first step, at least one round; 1 is FedAvg."""
    epochs: Count = 4
    """Steps of a client in a round of the second step."""
    combine: Literal["mixture", "threshold"] = "mixture"
    """Prediction: both parts weighted by HCS, or only the part that HCS selects (the authors' code)."""
    threshold: Share = 0.9
    """Homophily HCS from which a client counts as homophilous."""
    alpha: Share = tunable(0.05, log=(0.01, 0.5))
    """α, weight of the client's own edges in Ā."""
    beta: Share = tunable(0.2, linear=(0.05, 0.8))
    """β, weight in R of whether the extractor predicts the same at two nodes."""
    hops: Count = 3
    """L, number of propagations with Ā."""
    width: Count = 64
    """Width of the hidden layers."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.federated == 1:
            others = set(self.__dataclass_fields__) - {"federated"}
            return dict.fromkeys(sorted(others), "federated below 1")
        return {"threshold": "combine=threshold"} if self.combine == "mixture" else {}


@register(
    "adafgl", title="AdaFGL", paper="Li et al. 2024", options=AdaFGLOptions, predicts_with="its extractor"
)
class AdaFGL(FederatedMethod):
    """FedAvg, then personal networks: parameters named `personal.<part>.…`, never sent.

    `extras`: `homophily`, the clients' mean HCS, if there was a second step.
    """

    options: AdaFGLOptions
    client_state = ("prior", "homophily", "begun")
    unshared = (PREFIX,)
    task: NodeClassification
    federated_rounds: int
    """Number of rounds of the first step."""
    prior: Tensor | None = None
    """P, (n, C); None in the first step."""
    homophily: Tensor
    """(K,) HCS; zeros without a second step."""
    begun: Tensor
    """(K,) bool, the clients that have trained in the second step; the others predict with the extractor."""
    networks: Personal | None = None
    """The second step's networks; `logits` makes them of `prior`, which a checkpoint may replace."""
    heads: Heads
    """Outputs of the parts in the last forward pass of the second step."""

    def build(self) -> None:
        self.federated_rounds = max(1, round(self.options.federated * self.schedule.rounds))
        super().build()
        self.homophily = torch.zeros_like(self.shares)
        self.begun = torch.zeros_like(self.present)
        if self.federated_rounds < self.schedule.rounds:
            self.homophily = homophily(self.task, self.generator)

    def initial_parameters(self) -> Parameters:
        """FedAvg's start, and equal networks of the second step for all clients."""
        shared, options, federation = super().initial_parameters(), self.options, self.federation
        own = personal_start(federation.width, options.hops, options.width, self.task.width, self.generator)
        return shared | prefixed(PREFIX, stack(own, federation.clients, self.device))

    def train_round(self) -> Tensor:
        """Train as FedAvg, or take the second step's local steps; return the last step's loss, ()."""
        if self.round_number <= self.federated_rounds:
            return super().train_round()
        if self.prior is None:
            self.extras["homophily"] = float(self.homophily.mean())
            with torch.no_grad():
                self.prior = super().logits(None).softmax(dim=1)
        self.begun = self.begun | self.present
        return [descend(self) for _ in range(self.options.epochs)][-1]

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The extractor's outputs, or the logarithms of the probabilities that the parts predict; (n, C)."""
        if self.prior is None:
            return super().logits(dropout)
        if self.networks is None or self.networks.prior is not self.prior:
            self.networks = Personal(self, self.prior)
        self.heads = self.networks.heads(unprefixed(PREFIX, self.parameters), dropout)
        begun = self.begun[self.task.client].unsqueeze(1)
        return torch.where(begun, self.networks.predicted(self.heads), self.prior).clamp(min=SMALLEST).log()

    def objective(self, logits: Tensor) -> Tensor:
        """Sum over clients of the losses of their parts, ()."""
        if self.prior is None or self.networks is None:
            return super().objective(logits)
        each = {name: self.task.client_loss(head) for name, head in self.heads.items()}
        return self.networks.loss(self.heads, each)

    def send(self) -> Message:
        """FedAvg's message in the first step, nothing in the second."""
        return {} if self.round_number > self.federated_rounds else super().send()


def homophily(task: NodeClassification, generator: torch.Generator) -> Tensor:
    """HCS, (K,) in [0, 1]: accuracy of labels propagated from half of a client's training nodes to the rest.

    The seeds S are the smaller half: in a random permutation of all training nodes, drawn by `generator`, the
    first ⌊m_k / 2⌋ of client k. Y⁰ is one-hot on S, 1/C elsewhere. Ten times: Y ← ½ Â Y + ½ Y⁰, then
    Y[S] += Y⁰[S]. A client without training nodes has 0.
    """
    federation, device = task.federation, task.client.device
    order = torch.randperm(len(task.train), generator=generator).to(device)
    client, grouped = task.client[task.train[order]].sort(stable=True)
    order, size = order[grouped], task.train_count.to(device)
    is_seed = ranks(size) < size[client] // 2
    seed, held_out = order[is_seed], order[~is_seed]
    rows = task.train[seed]
    labels = functional.one_hot(task.train_labels[seed], task.width).float()
    start = torch.full((federation.nodes, task.width), 1 / task.width, device=device)
    start = start.index_copy(0, rows, labels)
    convolution = normalised_adjacency(federation.graph, device)
    spread = spread_labels(convolution, start, rows, labels, steps=10, share=0.5)
    right = spread[task.train[held_out]].argmax(dim=1) == task.train_labels[held_out]
    total = torch.bincount(client[~is_seed], weights=right.float(), minlength=federation.clients)
    return (total / (size - size // 2).clamp(min=1)).float()
