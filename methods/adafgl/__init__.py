"""AdaFGL: FedAvg first; then every client learns alone, from its graph and what the common model says of it.

Li et al., AdaFGL: A New Paradigm for Federated Node Classification with Topology Heterogeneity, ICDE 2024.
First step: FedAvg. The last model is the extractor; P is the softmax of its logits. Second step, with A and
X of one client and cos(Z)_ij the cosine of softmax z_i and softmax z_j, 0 for i = j:

    B = 1[cos(P) > 0.999],  Ā = αA + (1 − α)B + I, normalised as in a GCN,  X̃ = [X, ĀX, …, Ā^L X]
    homophilous:   z = MLP(X̃),  loss CE(z) + mean (z − P)²,  ŷ = ½ (softmax z + softmax P)
    heterophilous: z₁ = MLP(X), z₂ = MLP(X̃), Z = MLP(X̃),
                   R = βB + (1 − β) cos(Z), μ its mean and M its maximum,
                   R' = I + (R − μ)/(M − μ) where R > μ, −R/μ elsewhere,  φ a PReLU,
                   z₃ = ½ (softmax(φ(R')Z) − softmax(φ(−R')Z) + Z)
                   loss CE(z₁) + CE(z₂) + CE(z₃),  ŷ = ⅓ (softmax z₁ + softmax z₂ + softmax z₃)
    HCS = accuracy of label propagation from half of the client's training nodes on the other half
    predicted: HCS · ŷ homophilous + (1 − HCS) · ŷ heterophilous

Models travel in the first step alone. A client that is absent in one of its rounds is not in that round's
average; in a round of the second it takes no steps, where stragglers take all. Its P is of the model that it
holds when the second step begins. A schedule without a second step is FedAvg.

Departures: the paper's formulas were read in its authors' code (github.com/xkLi-Allen/AdaFGL), which trains
and asks one part alone, the homophilous one where HCS ≥ 0.9 (`combine = "threshold"`). The mixture is
OpenFGL's, which has α = 0.5 and β = 0, and what a summary of the paper describes. P is of the last round's
model, as in the paper's abstract; the code has that of best validation. The code's 100 rounds of three epochs
come before 200 epochs alone; here both steps share the schedule's rounds, half of them each as in OpenFGL,
and a round of the second is `epochs` steps. P goes through a softmax once more in cos(P) and in ŷ, as in the
code. The extractor is the setting's network, whose Adam keeps its state; the code's default is a ChebNet on
[X ‖ ÂX] with a new Adam in each round. X is what the extractor reads. P and the homophily are those of
classes: it predicts no links.

X̃ W = X W₀ + Ā(X W₁ + Ā(…)) is computed without X̃, from one product of X with the weights of all networks,
which lie side by side. B holds the squares of the clients' sizes, padded to the largest; R is made row by row
(`messages.py`). In a step of training z₃ is computed for the training nodes alone, of which its loss is; M
needs all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.limits import Count, PositiveShare, Share
from fedsub.datasets.ranges import tunable
from fedsub.methods.adafgl.personal import Heads, Personal, personal_start
from fedsub.methods.core.base import FederatedMethod, Options, register
from fedsub.methods.core.channel import Message
from fedsub.methods.core.steps import descend
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.parameters import Parameters, prefixed, stack, unprefixed
from fedsub.methods.stacked.propagation import spread_labels
from fedsub.methods.stacked.segments import ranks
from fedsub.methods.tasks import NodeClassification

PREFIX = "personal"
STEPS = 10
"""Of label propagation."""
SPREAD = 0.5
"""κ, the neighbours' share in a step of it."""


@dataclass(frozen=True)
class AdaFGLOptions(Options):
    federated: PositiveShare = tunable(0.5, linear=(0.25, 0.75))
    """Share of the rounds that is the first step's, at least one round; 1 is FedAvg."""
    epochs: Count = 4
    """Steps of a client in a round of the second step."""
    combine: Literal["mixture", "threshold"] = "mixture"
    """Both parts weighted by HCS, or the one that HCS chooses (the authors' code)."""
    threshold: Share = 0.9
    """HCS from which a client is homophilous."""
    alpha: Share = tunable(0.05, log=(0.01, 0.5))
    """α, the client's own edges in Ā."""
    beta: Share = tunable(0.2, linear=(0.05, 0.8))
    """β, the extractor's likeness in R."""
    hops: Count = 3
    """L."""
    width: Count = 64
    """Of the hidden layers."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.federated == 1:
            others = set(self.__dataclass_fields__) - {"federated"}
            return dict.fromkeys(sorted(others), "federated below 1")
        return {"threshold": "combine=threshold"} if self.combine == "mixture" else {}


@register(
    "adafgl",
    title="AdaFGL",
    paper="Li et al. 2024",
    options=AdaFGLOptions,
    exchanges="model parameters, in the first rounds alone",
    predicts_with="its extractor",
)
class AdaFGL(FederatedMethod):
    """FedAvg, then networks of the clients' own: parameters named `personal.<part>.…`, never sent.

    `extras`: `homophily`, the clients' mean HCS, where there was a second step.
    """

    options: AdaFGLOptions
    client_state = ("prior", "homophily")
    unshared = (PREFIX,)
    task: NodeClassification
    federated_rounds: int
    """Rounds of the first step."""
    prior: Tensor | None = None
    """P, (n, C); None in the first step."""
    homophily: Tensor
    """(K,) HCS, where there is a second step."""
    networks: Personal | None = None
    """What the second step computes, made of both."""
    heads: Heads
    """Of the forward pass just made in the second step."""

    def build(self) -> None:
        self.federated_rounds = max(1, round(self.options.federated * self.schedule.rounds))
        super().build()
        self.homophily = torch.zeros_like(self.shares)
        if self.federated_rounds < self.schedule.rounds:
            self.homophily = homophily(self.federation, self.task, self.generator, self.device)

    def initial_parameters(self) -> Parameters:
        """FedAvg's start, and the same networks of the second step for every client."""
        options, clients = self.options, self.federation.clients
        shared = super().initial_parameters()
        width, classes = self.federation.width, self.task.width
        own = personal_start(width, options.hops, options.width, classes, self.generator)
        return shared | prefixed(PREFIX, stack(own, clients, self.device))

    def train_round(self) -> Tensor:
        """FedAvg's, or the steps that every client takes alone; returns the last one's loss, ()."""
        if self.round_number <= self.federated_rounds:
            return super().train_round()
        if self.prior is None:
            self.extras["homophily"] = float(self.homophily.mean())
            with torch.no_grad():
                self.prior = super().logits(None).softmax(dim=1)
        return torch.stack([descend(self) for _ in range(self.options.epochs)])[-1]

    @property
    def personal(self) -> Personal | None:
        """The second step's networks; None in the first."""
        if self.prior is None:
            return None
        if self.networks is None or self.networks.prior is not self.prior:
            options, graph, rows = self.options, self.federation.graph, self.task.train
            share, given = self.homophily, (options.alpha, options.beta, options.hops)
            if options.combine == "threshold":
                share = (share >= options.threshold).float()
            self.networks = Personal(graph, self.inputs, self.prior, share, rows, *given)
        return self.networks

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The extractor's outputs, or logarithms of the probabilities predicted by both parts; (n, C)."""
        if self.personal is None:
            return super().logits(dropout)
        self.heads = self.personal.heads(unprefixed(PREFIX, self.parameters), dropout)
        return self.personal.predicted(self.heads)

    def objective(self, logits: Tensor) -> Tensor:
        """Sum over clients of the losses of the parts that they train, ()."""
        if self.personal is None:
            return super().objective(logits)
        each = {name: self.task.client_loss(head) for name, head in self.heads.items()}
        return self.personal.loss(self.heads, each)

    def send(self) -> Message:
        """FedAvg's in the first step, nothing in the second."""
        return {} if self.round_number > self.federated_rounds else super().send()


def homophily(
    federation: Federation, task: NodeClassification, generator: torch.Generator, device: torch.device
) -> Tensor:
    """HCS: each client's accuracy on half of its training nodes of labels spread from the other half, (K,) in
    [0, 1]; 0 for a client without training nodes.

    The smaller half, drawn by `generator`, are seeds S; Y⁰ is one-hot on S, 1/C elsewhere. Ten times:
    Y ← κ Â Y + (1 − κ) Y⁰, then Y[S] += Y⁰[S].
    """
    seed, held_out = halves(task, generator)
    rows = task.train[seed]
    labels = functional.one_hot(task.train_labels[seed], task.width).float()
    start = torch.full((federation.nodes, task.width), 1 / task.width, device=device)
    start = start.index_copy(0, rows, labels)
    convolution = normalised_adjacency(federation.graph, device)
    spread = spread_labels(convolution, start, rows, labels, STEPS, SPREAD)
    right = spread[task.train[held_out]].argmax(dim=1) == task.train_labels[held_out]
    client = task.client[task.train[held_out]]
    count = torch.bincount(client, minlength=federation.clients)
    total = torch.bincount(client, weights=right.float(), minlength=federation.clients)
    return (total / count.clamp(min=1)).float()


def halves(task: NodeClassification, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Places among the training nodes of the seeds and of the others: of every client's nodes, in the order
    of one random permutation of all, the first ⌊m_k / 2⌋ are seeds."""
    order = torch.randperm(len(task.train), generator=generator).to(task.train.device)
    client = task.client[task.train[order]]
    client, grouped = client.sort(stable=True)
    count = task.train_count.to(client.device)
    is_seed = ranks(count) < count[client] // 2
    chosen = order[grouped]
    return chosen[is_seed], chosen[~is_seed]
