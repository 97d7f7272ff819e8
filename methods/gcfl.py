"""GCFL and GCFL+: FedAvg inside clusters of clients that are split as training goes on.

Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021; the scheme is that of
Sattler et al., Clustered Federated Learning, 2020. With Δ_k the change of client k's weights in a
round, a cluster c of more than two clients is split in two, after round 20, when

    ‖mean_{k∈c} Δ_k‖ < ε₁   and   max_{k∈c} ‖Δ_k‖ > ε₂

along the Stoer–Wagner minimum cut of a complete graph: GCFL weighs its edges by the cosine of Δ_k and
Δ_l, GCFL+ by how near the clients' last gradient norms are in dynamic time warping (the
largest distance minus the distance). Clients of one cluster average their weights by p_k. As in the
authors' code, GCFL+ forgets all gradient norms when it splits, so that it splits one cluster at a time.

The thresholds ε₁ = 0.05, ε₂ = 0.1 have the scale of the authors' networks and schedule; with others no
cluster may ever split (results/notes/fedpub-2.md). A run without a split is FedAvg to the digit, and says so
(`extras`).

Of a client that is absent in a round the server takes the last Δ_k and norm that it sent (0 before the first)
when it splits; it is in no average, and comes back to the newest model of its cluster.

The cut must not have negative weights, on which the paper is silent. The authors' code adds one to every
cosine; the cut then takes one client at a time off its cluster unless cosines between clusters are well
below zero. `weights=positive`, max(cosine, 0), finds halves (results/notes/fedpub-1.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import networkx as nx
import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.limits import Limit, NonNegative, Size
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Options, register
from fedsub.methods.core.channel import Message
from fedsub.methods.core.setting import Setting
from fedsub.methods.core.steps import descend, local_epochs
from fedsub.methods.stacked.mixing import cosine, for_clients, gram, mix
from fedsub.methods.stacked.parameters import Parameters


@dataclass(frozen=True)
class SplitOptions(Options):
    """When clusters are split."""

    epsilon1: NonNegative = tunable(0.05, log=(0.02, 2))
    """A cluster is split only when its mean change is shorter than this."""
    epsilon2: NonNegative = tunable(0.1, log=(0.05, 5))
    """A cluster is split only when one of its clients changes by more than this."""
    first_round: Size = 20
    """No split up to and including this round."""


@dataclass(frozen=True)
class GCFLOptions(SplitOptions):
    weights: Literal["shifted", "positive"] = "shifted"
    """Weights of the graph that is cut: `shifted`, cosine + 1, as the authors' code; `positive`,
    max(cosine, 0)."""


@dataclass(frozen=True)
class GCFLPlusOptions(SplitOptions):
    sequence: Annotated[int, Limit("be at least 2", lambda value: value >= 2)] = 5
    """Gradient norms that are compared, at least 2; the paper takes 5 to 10."""


@register(
    "gcfl",
    title="GCFL",
    paper="Xie et al. 2021",
    options=GCFLOptions,
    tasks=BOTH_TASKS,
    # A cluster none of whose clients took part keeps its model.
    tells_attendance=True,
)
class GCFL(FederatedMethod):
    """FedAvg until the first split; then every cluster has a server model of its own."""

    labelled_outputs_only = True
    server_state: ClassVar[tuple[str, ...]] = ("clusters", "changes", "first_split")

    clusters: Tensor
    """(K,) number of each client's cluster, from 0."""
    changes: Parameters
    """Δ_k as last sent, name → (K, …); where clients are absent."""
    first_split: int = 0
    """Round of the first split, 0 if there was none."""

    def __init__(self, options: SplitOptions, setting: Setting) -> None:
        super().__init__(options, setting)
        self.clusters = torch.zeros(setting.federation.clients, dtype=torch.int64)
        self.changes = {}

    def aggregate(self, sent: Message) -> Message:
        """The server splits clusters where it must, and averages inside each."""
        number, models = self.round_number, {name: sent[name].detach() for name in self.received}
        if not self.channel.everyone or number > self.options.first_round:
            products = gram(self._change(name, value) for name, value in models.items())
            if number > self.options.first_round:
                self.split(products.cpu(), number)
        return self.average_clusters(models)

    def _change(self, name: str, sent: Tensor) -> Tensor:
        """Δ_k of a parameter, as last sent; (K, …)."""
        change = sent - self.received[name]
        if not self.channel.everyone:
            old = self.changes.get(name, torch.zeros_like(change))
            change = self.changes[name] = for_clients(change, old, self.present)
        return change

    def split(self, products: Tensor, round_number: int) -> None:
        """Split every cluster that meets the criterion; `products` is (K, K), ⟨Δ_k, Δ_l⟩.

        A cluster is split at most K − 1 times in a whole run, so this is the one step that looks at
        clusters one by one, and at those alone that split.
        """
        for cluster in self.meeting_criterion(products).nonzero().squeeze(1).tolist():
            if not self.ready():
                continue
            members = (self.clusters == cluster).nonzero().squeeze(1)
            side = minimum_cut(self.edge_weights(products, members))
            self.clusters[members[torch.from_numpy(side)]] = int(self.clusters.max()) + 1
            self.first_split = self.first_split or round_number
            self.forget()

    def meeting_criterion(self, products: Tensor) -> Tensor:
        """Whether each cluster is to be split, from all clients' ⟨Δ_k, Δ_l⟩; (clusters,) bool."""
        member = functional.one_hot(self.clusters).to(products.dtype)
        size = member.sum(dim=0)
        mean = (member * (products @ member)).sum(dim=0) / size.clamp(min=1).square()
        length = products.diagonal().clamp(min=0).sqrt()
        largest = (member * length.unsqueeze(1)).amax(dim=0)
        epsilon1, epsilon2 = self.options.epsilon1, self.options.epsilon2
        return (size > 2) & (mean.clamp(min=0).sqrt() < epsilon1) & (largest > epsilon2)

    def ready(self) -> bool:
        """Whether enough has been seen to compare clients."""
        return True

    def forget(self) -> None:
        """Drop what was taken down, after a split."""

    def edge_weights(self, products: Tensor, members: Tensor) -> np.ndarray:
        """From the cosines of the members' Δ, none below zero; (m, m)."""
        cosines = cosine(products[members][:, members])
        weights = cosines.clamp(min=0) if self.options.weights == "positive" else cosines + 1
        result: np.ndarray = weights.numpy()
        return result

    def average_clusters(self, sent: Message) -> Message:
        """Each client's cluster model, name → (K, …), or (1, …) while there is one cluster."""
        count = int(self.clusters.max()) + 1
        if count == 1:
            return super().aggregate(sent)
        matrix = torch.zeros(count, len(self.clusters), device=self.device)
        clusters = self.clusters.to(self.device)
        matrix[clusters, torch.arange(len(clusters), device=self.device)] = self.weights
        # A cluster in which no client has a training node averages its members alike.
        empty = matrix.sum(dim=1) == 0
        even = empty[clusters] & self.present
        matrix[clusters, torch.arange(len(clusters), device=self.device)] += even.float()
        total = matrix.sum(dim=1, keepdim=True)
        matrix /= torch.where(total > 0, total, 1.0)
        trained = (total > 0).squeeze(1)[clusters]
        return {
            name: for_clients(mean.index_select(0, clusters), self.received[name], trained)
            for name, mean in mix(matrix, sent).items()
        }

    def finish(self) -> None:
        self.extras["clusters"] = float(self.clusters.max()) + 1
        self.extras["largest_cluster"] = float(torch.bincount(self.clusters).max())
        self.extras["first_split"] = float(self.first_split)
        self.extras["splits"] = float(self.clusters.max())


@register(
    "gcfl+",
    title="GCFL+",
    paper="Xie et al. 2021",
    options=GCFLPlusOptions,
    tasks=BOTH_TASKS,
    tells_attendance=True,
    exchanges="model parameters, gradient norms",
)
class GCFLPlus(GCFL):
    """GCFL that compares clients by how their gradient norms went."""

    client_state = ("norm",)
    server_state = ("norms", "heard")
    norms: deque[Tensor]
    """(K,) gradient norms of the last rounds, those that the server heard."""
    heard: Tensor
    """(K,) the last norm of each client that the server heard."""
    norm: Tensor
    """(K,) of the gradient of each client's last step, kept when the sequences are dropped."""

    def __init__(self, options: GCFLPlusOptions, setting: Setting) -> None:
        super().__init__(options, setting)
        self.norms = deque(maxlen=options.sequence)
        self.norm = self.heard = torch.zeros(setting.federation.clients, device=self.device)

    def train_round(self) -> Tensor:
        """FedAvg's; keeps the norms of those who took a step: a straggler's last one is an earlier one."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = descend(self)
            lengths = [
                torch.linalg.vector_norm(gradient.flatten(1), dim=1)
                for gradient in (self.parameters[name].grad for name in self.shared())
                if gradient is not None
            ]
            norm = torch.linalg.vector_norm(torch.stack(lengths), dim=0)
            self.norm = torch.where(self.working, norm, self.norm)
        return loss

    def send(self) -> Message:
        """The model, and the norm of the last gradient, one number a client."""
        return {**super().send(), "norm": self.norm}

    def aggregate(self, sent: Message) -> Message:
        """GCFL's, once the norms are taken down."""
        self.heard = for_clients(sent["norm"], self.heard, self.present)
        self.norms.append(self.heard.cpu())
        return super().aggregate(sent)

    def ready(self) -> bool:
        """Whether the sequences are full."""
        return len(self.norms) == self.options.sequence

    def forget(self) -> None:
        """Begin new sequences."""
        self.norms.clear()

    def edge_weights(self, products: Tensor, members: Tensor) -> np.ndarray:
        """Largest distance of the members' sequences minus their distance; (m, m)."""
        sequences = torch.stack(list(self.norms), dim=1)[members].double().numpy()
        distances = time_warping_distances(sequences)
        weights: np.ndarray = distances.max() - distances
        return weights


def minimum_cut(weights: np.ndarray) -> np.ndarray:
    """One side of the Stoer–Wagner minimum cut of a complete graph; (m, m) weights ≥ 0 → (m,) bool."""
    graph = nx.from_numpy_array(weights)
    # from_numpy_array leaves out edges of weight 0, and the graph must be connected.
    graph.add_edges_from((i, j, {"weight": 0.0}) for i, j in nx.non_edges(graph))
    _, (side, _) = nx.stoer_wagner(graph)
    chosen = np.zeros(len(weights), dtype=bool)
    chosen[side] = True
    return chosen


def time_warping_distances(sequences: np.ndarray) -> np.ndarray:
    """Dynamic time warping distance between all pairs of rows of (m, T), squared steps and a root
    over the sum; (m, m). Sakoe & Chiba 1978, without a window; all pairs advance together."""
    steps = np.square(sequences[:, None, :, None] - sequences[None, :, None, :])
    length = sequences.shape[1]
    total = np.full((*steps.shape[:2], length + 1, length + 1), np.inf)
    total[:, :, 0, 0] = 0
    for i in range(length):
        for j in range(length):
            before = np.minimum(total[:, :, i, j], np.minimum(total[:, :, i, j + 1], total[:, :, i + 1, j]))
            total[:, :, i + 1, j + 1] = steps[:, :, i, j] + before
    distances: np.ndarray = np.sqrt(total[:, :, length, length])
    return distances
