"""GCFL and GCFL+: FedAvg inside clusters of clients, which are split during training.

Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021; the scheme is from
Sattler et al., Clustered Federated Learning, 2020. Δ_k is the change of client k's weights in a
round. After round 20 a cluster c of more than two clients is split in two when

    ‖mean_{k∈c} Δ_k‖ < ε₁   and   max_{k∈c} ‖Δ_k‖ > ε₂

along the Stoer–Wagner minimum cut of a complete graph. GCFL weighs its edges by the cosine of Δ_k and Δ_l.
GCFL+ weighs them by the largest dynamic time warping distance of the clients' last gradient norms, minus
the clients' distance. Clients of one cluster average their weights by p_k. As in the authors' code, GCFL+
drops all gradient norms when it splits, so that it splits one cluster at a time.

The thresholds ε₁ = 0.05, ε₂ = 0.1 suit the authors' networks and schedule; with others no cluster may ever
split (results/notes/fedpub-2.md). A run without a split equals FedAvg; `extras` count the splits.

For an absent client the server splits by the last Δ_k and norm that it sent (0 before the first). The client
is in no average, and comes back to the newest model of its cluster.

The cut needs non-negative weights; the paper does not say how to get them. The authors' code adds one to
every cosine. The cut then separates one client at a time, unless cosines between clusters are well below
zero. `weights=positive`, max(cosine, 0), finds halves (results/notes/fedpub-1.md).
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import networkx as nx
import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.limits import Limit, NonNegative, Size, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Message, Options, register
from fedsub.methods.core.steps import descend, local_epochs
from fedsub.methods.stacked.mixing import by_client, cosine, for_clients, gram, mix
from fedsub.methods.stacked.parameters import Parameters


@dataclass(frozen=True)
class SplitOptions(Options):
    """Options of both methods: when clusters are split."""

    epsilon1: NonNegative = tunable(0.05, log=(0.02, 2))
    """ε₁: a cluster is split only if its mean change is shorter than this."""
    epsilon2: NonNegative = tunable(0.1, log=(0.05, 5))
    """ε₂: a cluster is split only if one of its clients changes by more than this."""
    first_round: Size = 20
    """Last round in which no cluster is split."""


@dataclass(frozen=True)
class GCFLOptions(SplitOptions):
    weights: Literal["shifted", "positive"] = "shifted"
    """Edge weights of the cut graph: `shifted`, cosine + 1 (authors' code); `positive`, max(cosine, 0)."""


@dataclass(frozen=True)
class GCFLPlusOptions(SplitOptions):
    sequence: Annotated[int, Limit("be at least 2", lambda value: value >= 2)] = 5
    """Number of gradient norms that are compared, at least 2; the paper takes 5 to 10."""


@register("gcfl", title="GCFL", paper="Xie et al. 2021", options=GCFLOptions, tasks=BOTH_TASKS)
class GCFL(FederatedMethod):
    """FedAvg until the first split; then the server has one model for each cluster."""

    labelled_outputs_only = True
    server_state: ClassVar[tuple[str, ...]] = ("clusters", "changes", "first_split")

    clusters: Tensor
    """(K,) number of each client's cluster, from 0."""
    changes: Parameters
    """Δ_k as last sent, name → (K, …); only kept if clients can be absent."""
    first_split: int = 0
    """Round of the first split, 0 if there was none."""

    def build(self) -> None:
        super().build()
        self.clusters = torch.zeros(self.federation.clients, dtype=torch.int64)
        self.changes = {}

    def aggregate(self, sent: Message) -> Message:
        """Split clusters that meet the criterion, and average inside each cluster."""
        models = {name: sent[name].detach() for name in self.received}
        splitting = self.round_number > self.options.first_round
        if splitting or not self.channel.everyone:
            products = gram(self._change(name, value) for name, value in models.items()).cpu()
            if splitting:
                # A run has at most K − 1 splits, so only this step loops over clusters.
                for cluster in self.meeting_criterion(products).nonzero().squeeze(1).tolist():
                    self.split(cluster, products)
        return self.average_clusters(models)

    def _change(self, name: str, sent: Tensor) -> Tensor:
        """Δ_k of a parameter, as last sent; (K, …)."""
        change = sent - self.received[name]
        if not self.channel.everyone:
            old = self.changes.get(name, torch.zeros_like(change))
            change = self.changes[name] = for_clients(change, old, self.present)
        return change

    def split(self, cluster: int, products: Tensor) -> None:
        """Split a cluster along its minimum cut; `products` is (K, K), ⟨Δ_k, Δ_l⟩."""
        members = (self.clusters == cluster).nonzero().squeeze(1)
        side = minimum_cut(self.edge_weights(products, members))
        self.clusters[members[side]] = int(self.clusters.max()) + 1
        self.first_split = self.first_split or self.round_number

    def meeting_criterion(self, products: Tensor) -> Tensor:
        """Whether each cluster must be split, (clusters,) bool; `products` is (K, K), ⟨Δ_k, Δ_l⟩."""
        member = functional.one_hot(self.clusters).to(products.dtype)
        size = member.sum(dim=0)
        mean = (member * (products @ member)).sum(dim=0) / size.clamp(min=1).square()
        length = products.diagonal().clamp(min=0).sqrt()
        largest = (member * length.unsqueeze(1)).amax(dim=0)
        epsilon1, epsilon2 = self.options.epsilon1, self.options.epsilon2
        return (size > 2) & (mean.clamp(min=0).sqrt() < epsilon1) & (largest > epsilon2)

    def edge_weights(self, products: Tensor, members: Tensor) -> np.ndarray:
        """Non-negative edge weights from the cosines of the members' Δ, (m, m)."""
        cosines = cosine(products[members][:, members])
        return (cosines.clamp(min=0) if self.options.weights == "positive" else cosines + 1).numpy()

    def average_clusters(self, sent: Message) -> Message:
        """Each client's cluster model, name → (K, …), or (1, …) while there is one cluster."""
        if not self.clusters.any():
            return super().aggregate(sent)
        clusters = self.clusters.to(self.device)
        member = functional.one_hot(clusters).T.float()
        matrix = member * self.weights
        # A cluster without any training node averages its members with equal weights.
        matrix += member * (matrix.sum(dim=1, keepdim=True) == 0) * self.present
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


@register("gcfl+", title="GCFL+", paper="Xie et al. 2021", options=GCFLPlusOptions, tasks=BOTH_TASKS)
class GCFLPlus(GCFL):
    """GCFL that compares clients by the sequences of their gradient norms."""

    client_state = ("norm",)
    server_state = ("norms", "heard")
    norms: list[Tensor]
    """(K,) gradient norms of each of the last rounds, as the server knew them."""
    heard: Tensor
    """(K,) the last norm that the server received from each client."""
    norm: Tensor
    """(K,) gradient norm of each client's last step; it is kept when the sequences are dropped."""

    def build(self) -> None:
        super().build()
        self.norms = []
        self.norm = self.heard = torch.zeros(self.federation.clients, device=self.device)

    def train_round(self) -> Tensor:
        """Train as FedAvg does, and keep the gradient norm of each client's own last step."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = descend(self)
            gradients = (self.parameters[name].grad for name in self.shared())
            lengths = [torch.linalg.vector_norm(by_client(g), dim=1) for g in gradients if g is not None]
            norm = torch.linalg.vector_norm(torch.stack(lengths), dim=0)
            self.norm = torch.where(self.working, norm, self.norm)
        return loss

    def send(self) -> Message:
        """The model, and the norm of the last gradient, one number for each client."""
        return {**super().send(), "norm": self.norm}

    def aggregate(self, sent: Message) -> Message:
        """Store the norms, then do as GCFL."""
        self.heard = for_clients(sent["norm"], self.heard, self.present)
        self.norms = [*self.norms, self.heard.cpu()][-self.options.sequence :]
        return super().aggregate(sent)

    def split(self, cluster: int, products: Tensor) -> None:
        """Do as GCFL once the sequences are full, then start new ones: clusters split one at a time."""
        if len(self.norms) == self.options.sequence:
            super().split(cluster, products)
            self.norms = []

    def edge_weights(self, products: Tensor, members: Tensor) -> np.ndarray:
        """Largest distance between the members' sequences minus their distance, (m, m)."""
        sequences = torch.stack(self.norms, dim=1)[members].double().numpy()
        distances = time_warping_distances(sequences)
        return distances.max() - distances


def minimum_cut(weights: np.ndarray) -> list[int]:
    """Nodes on one side of the Stoer–Wagner minimum cut of a complete graph with weights ≥ 0, (m, m)."""
    graph = nx.from_numpy_array(weights)
    # from_numpy_array omits edges of weight 0, but the graph must be connected.
    graph.add_edges_from((i, j, {"weight": 0.0}) for i, j in nx.non_edges(graph))
    _, (side, _) = nx.stoer_wagner(graph)
    return list(side)


def time_warping_distances(sequences: np.ndarray) -> np.ndarray:
    """Dynamic time warping distances between all rows of (m, T): roots of summed squared steps, (m, m).
    Sakoe & Chiba 1978, without a window; all pairs advance together."""
    steps = np.square(sequences[:, None, :, None] - sequences[None, :, None, :])
    length = sequences.shape[1]
    total = np.full((*steps.shape[:2], length + 1, length + 1), np.inf)
    total[:, :, 0, 0] = 0
    for i in range(length):
        for j in range(length):
            before = np.minimum(total[:, :, i, j], np.minimum(total[:, :, i, j + 1], total[:, :, i + 1, j]))
            total[:, :, i + 1, j + 1] = steps[:, :, i, j] + before
    return np.sqrt(total[:, :, length, length])
