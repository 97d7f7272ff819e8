"""FedGTA: every client averages with clients that have similar moments of propagated predictions.

Li et al., FedGTA: Topology-aware Averaging for Federated Graph Learning, PVLDB 17(1), 2023. After local
training, with p_v the client's prediction at node v, T its training nodes and d_v the degree of v:

    Y⁰ = one-hot labels on T, p_v elsewhere;   s times: Y ← α Â Y + (1 − α) Y⁰, then Y[T] += Y⁰[T]
    P = softmax(Y), Q = softmax(Y / 20), with the labels on T
    M_k = means over the client's nodes of P^j, j = 1…J, and of (P − mean P)^j    moments
    a_k = Σ_v d_v (C/e + Σ_c Q_vc log Q_vc)                                       confidence
    S_i = {j : cos(M_i, M_j) > γ},  w_i ← Σ_{j ∈ S_i} a_j w_j / Σ_{j ∈ S_i} a_j    server

Model, moments and confidence go up; a separate model for each client comes down. A client is always in its
own S_i. An absent client is in no other client's S_i, and comes back to the model last made for it.
γ = −1 with equal confidences is FedAvg with equal weights, γ = 1 is Local.

Departures: the formulas were read in the authors' code (github.com/xkLi-Allen/FedGTA). J, γ and the kind of
moments are the code's for Cora; for CiteSeer it has J = 20, γ = 0.6, for PubMed J = 13, γ = 0.65 and
`moments = "raw"`. If no member of S_i has any confidence (clients without edges), all have equal weights. The
network is the backbone, so that methods can be compared; `network = "gamlp"` is the authors', with the
backbone's widths. Their code writes GAMLP's hop scores hop after hop and reads them back node after node, so
that nodes use other nodes' scores (`hop_weights = "reference"`). It also holds a layer for pairs of nodes
that nothing reads, which is not sent here. OpenFGL propagates without self-loops, only from the training
nodes' predictions, clamped to [0, 1] (`propagation = "openfgl"`, with J = 10). It counts every degree twice,
which cancels. Links are not predicted, since confidences and moments need classes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Cosine, Count, Share, Size, tunable
from fedsub.methods.core.base import FederatedMethod, Message, Options, register
from fedsub.methods.fedgta.gamlp import GAMLP
from fedsub.methods.stacked.backbones import normalised_adjacency
from fedsub.methods.stacked.inputs import Convolution, Inputs
from fedsub.methods.stacked.mixing import cosine, for_clients, gram, mix
from fedsub.methods.stacked.propagation import propagate, spread_labels, symmetric_weight
from fedsub.methods.tasks import NodeClassification


@dataclass(frozen=True)
class FedGTAOptions(Options):
    threshold: Cosine = tunable(0.5, linear=(0, 0.9))
    """γ, the cosine of moments above which two clients average with each other."""
    moments: Literal["hybrid", "raw"] = tunable("hybrid", choices=("hybrid", "raw"))
    """Moments of the predictions P: `raw`, means of its powers; `hybrid`, also the central moments."""
    order: Count = tunable(6, linear=(2, 20))
    """J, the highest order of the moments, at least 1."""
    steps: Size = 5
    """Steps of label propagation, at least 0."""
    spread: Share = 0.5
    """α, the neighbours' share in a step of label propagation, in [0, 1]."""
    propagation: Literal["authors", "openfgl"] = "authors"
    """Label propagation: the authors' or OpenFGL's."""
    network: Literal["backbone", "gamlp"] = "backbone"
    """Network of the clients: the backbone, or GAMLP as in the authors' code."""
    hop_weights: Literal["nodes", "reference"] = "nodes"
    """Scores by which GAMLP mixes a node's hops: the node's own, or as misread in the authors' code."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        idle = {"hop_weights": "network=gamlp"}
        if self.network == "gamlp":
            idle = {"backbone": "network=backbone"}
        if self.threshold == 1:
            return idle | dict.fromkeys(("steps", "spread", "propagation"), "threshold below 1")
        if not self.steps or not self.spread:
            idle |= {"spread": "steps above 0"} if self.spread else {"steps": "spread above 0"}
        return idle


@register("fedgta", title="FedGTA", paper="Li et al. 2023", options=FedGTAOptions)
class FedGTA(FederatedMethod):
    """Personalised averages by moments and confidence.

    `extras`: `clients_averaged`, mean size of S_i over the clients present.
    """

    options: FedGTAOptions
    task: NodeClassification
    convolution: Convolution
    """One step of label propagation."""
    degree: Tensor
    """(n,) d_v, without self-loops."""
    labels: Tensor
    """(training nodes, C) one-hot."""

    def build(self) -> None:
        given = self.architecture
        if self.options.network == "gamlp":
            if given.input_norm or given.norm != "none" or not given.hidden:
                raise UserError("FedGTA's gamlp needs a hidden layer, input_norm=false and norm=none")
            # GAMLP contains a multi-layer perceptron of the backbone's widths.
            self.architecture = replace(given, backbone="mlp", head="linear")
        super().build()
        graph = self.federation.graph
        self.degree = graph.in_degrees().float().to(self.device)
        self.labels = functional.one_hot(self.task.train_labels, self.task.width).float()
        if self.options.propagation == "authors":
            self.convolution = normalised_adjacency(graph, self.device)
        else:
            self.convolution = partial(propagate, graph, weight=symmetric_weight(graph).to(self.device))

    def make_inputs(self) -> Inputs:
        inputs, graph = super().make_inputs(), self.federation.graph
        if self.options.network == "gamlp":
            mixed_rows = self.task.train if self.options.hop_weights == "reference" else None
            self.backbone = GAMLP(self.architecture, graph, inputs.segments.client, mixed_rows)
        return inputs

    def send(self) -> Message:
        moments, confidence = self.statistics(self.logits(None).softmax(dim=1))
        return {**super().send(), "moments": moments, "confidence": confidence}

    def aggregate(self, sent: Message) -> Message:
        """Each client's average; for an absent client the last one made for it."""
        matrix = mixing_matrix(sent["moments"], sent["confidence"], self.options.threshold, self.present)
        members = float((matrix > 0)[self.present].sum(dim=1).float().mean())
        self.by_round.setdefault("clients_averaged", []).append(members)
        mixed = mix(matrix, {name: sent[name] for name in self.received})
        return {name: for_clients(value, self.received[name], self.present) for name, value in mixed.items()}

    def statistics(self, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """Moments (K, J·C or 2J·C) and confidences (K,) of the clients' predictions (n, C)."""
        options, rows, segments = self.options, self.task.train, self.inputs.segments
        spread = self.propagated(prediction)
        # In both, the rows of T are the labels, not the propagated values.
        likely = spread.softmax(dim=1).index_copy(0, rows, self.labels)
        softened = (spread / 20).softmax(dim=1).index_copy(0, rows, self.labels)
        moments = self._powers(likely)
        if options.moments == "hybrid":
            moments += self._powers(likely - segments.spread(segments.mean(likely)))
        # The temperature of 20 and the logarithm's 1e-8 are those of the authors' code.
        negentropy = (softened * (softened + 1e-8).log()).sum(dim=1)
        each = self.degree * (self.task.width / math.e + negentropy)
        return torch.cat(moments, dim=1), segments.sum(each.unsqueeze(1)).squeeze(1).clamp(min=0)

    def propagated(self, prediction: Tensor) -> Tensor:
        """Y after the last step, (n, C)."""
        options, rows = self.options, self.task.train
        if options.propagation == "authors":
            start = prediction.index_copy(0, rows, self.labels)
            return spread_labels(self.convolution, start, rows, self.labels, options.steps, options.spread)
        spread = start = torch.zeros_like(prediction).index_copy(0, rows, prediction[rows])
        for _ in range(options.steps):
            spread = options.spread * self.convolution(spread) + (1 - options.spread) * start
            spread = spread.clamp(0, 1)
        return spread

    def _powers(self, h: Tensor) -> list[Tensor]:
        """Means over each client's nodes of h^1 … h^J, (K, C) each; h is (n, C)."""
        power, means = torch.ones_like(h), []
        for _ in range(self.options.order):
            power = power * h
            means.append(self.inputs.segments.mean(power))
        return means


def mixing_matrix(moments: Tensor, confidence: Tensor, threshold: float, present: Tensor) -> Tensor:
    """Row i: weights a_j of the clients in S_i, scaled to sum 1, (K, K). `moments` (K, m), `confidence` (K,);
    only clients that are `present`, (K,) bool, are in other clients' S_i."""
    members = ((cosine(gram([moments])) > threshold) & present).fill_diagonal_(True)
    weights = members * confidence
    idle = weights.sum(dim=1, keepdim=True) == 0
    weights = torch.where(idle, members.to(weights.dtype), weights)
    return weights / weights.sum(dim=1, keepdim=True)
