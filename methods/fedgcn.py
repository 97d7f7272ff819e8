"""FedGCN: clients exchange sums of neighbours' features once, before training.

Yao et al., FedGCN: Convergence-Communication Tradeoffs in Federated Training of Graph Convolutional Networks,
NeurIPS 2023. For every node v the server adds up the clients' parts of

    s_v = Σ_{u ∈ N(v) ∪ {v}} x_u / √(d̃_u d̃_v)                      d̃ degrees in the whole graph, plus one

and returns, by `hops`:  0: nothing (FedAvg);  1: s_v of the client's own nodes V_k;  2: s_v of V_k ∪ N(V_k)
with the degrees of these nodes. The first layer of a client's GCN is then relu(s_v W₁ + b₁). The other layers
convolve over its graph, which 2 hops extend by N(V_k) and the edges there. Models are averaged as in FedAvg.
With as many convolutions as hops, the network computes at every node what it would on the whole graph, for
any partition. More than two hops extend the graph further. With `sent = "features"`, as in the public code of
the paper's year, clients exchange features instead of sums. A client's graph then grows by the nodes at most
`hops` edges away, with their features and the edges among them, and every layer convolves over it.

Every client uploads a row with an index for each node of V_k ∪ N(V_k), and the degrees of its nodes. It
receives the rows of its extended graph, and the degrees of others' nodes there. If one client holds all
neighbours of a node, the sum reveals the node's features to that client; the paper encrypts uploads. With
`sent = "features"` each node in another client's graph is uploaded once with its index, and all of these
nodes are sent down.

Departures: the public code (github.com/yh-yao/FedGCN) counts degrees in the extended graph (`degrees =
"extended"`). In November 2023 it sends features, today sums without degrees (`normalisation = "none"`).
None of these is exact. If clients overlap, only the first holder of a node contributes it. GraphSAGE is left
out: it needs the neighbours' own features beside the sums. As in the paper, bytes do not count the edges
between others' nodes that a client gets with two hops of features.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_array, as_feature_tensor, make_graph, ones_at, select_features
from fedsub.datasets.limits import Size, tunable
from fedsub.datasets.sets import among
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Options, prepare, register
from fedsub.methods.core.channel import unformed
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.propagation import kernel_of, normalised_edges, propagate, use_kernel
from fedsub.methods.stacked.segments import Segments


@dataclass(frozen=True)
class FedGCNOptions(Options):
    hops: Size = tunable(2, choices=(1, 2, 3))
    """Hops of neighbours that the exchange covers, at least 0; 0 is FedAvg."""
    sent: Literal["sums", "features"] = "sums"
    """Data that clients receive about others' nodes: sums of features, or the features."""
    normalisation: Literal["symmetric", "none"] = tunable("symmetric", choices=("symmetric", "none"))
    """Whether summed features are divided by the square roots of both nodes' degrees."""
    degrees: Literal["global", "extended"] = tunable("global", choices=("global", "extended"))
    """Graph in which convolving layers count degrees: the whole graph, or the client's extended one."""

    def breaks_privacy(self) -> str:
        if self.hops == 0 or self.sent == "sums":
            return ""
        return "clients receive the true features of other clients' nodes"

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.hops == 0:
            return dict.fromkeys(("sent", "normalisation", "degrees"), "hops above 0")
        return {"normalisation": "sent=sums"} if self.sent == "features" else {}


@register(
    "fedgcn",
    title="FedGCN",
    paper="Yao et al. 2023",
    options=FedGCNOptions,
    tasks=BOTH_TASKS,
    backbones=("gcn", "sgc"),
    lacks=("residual",),
    breaks_privacy="sent=features: clients receive the true features of other clients' nodes",
    simulation_only="clients sum the features of each other's nodes",
)
class FedGCN(FederatedMethod):
    """FedAvg on extended graphs. `extras`: `halo_nodes`, total number of others' nodes in clients' graphs."""

    options: FedGCNOptions

    def build(self) -> None:
        given = self.architecture
        if self.options.hops > 0 and self.options.sent == "sums":
            if given.input_norm:
                raise UserError("FedGCN sums unnormalised features: set input_norm=false, or hops=0")
            if given.backbone == "sgc":
                if given.hops == 0:
                    raise UserError(
                        "fedgcn needs at least one propagation in sgc: set the network's hops to 1 or more"
                    )
                self.architecture = replace(given, hops=given.hops - 1)
        super().build()

    def make_inputs(self) -> Inputs:
        """Exchange sums or features; return the extended graphs with the sums or features of their nodes."""
        options, device = self.options, self.device
        if options.hops == 0:
            return super().make_inputs()
        summed = options.sent == "sums"
        extended = Extended(self.federation, options.hops - 1 if summed else options.hops)
        self.extras["halo_nodes"] = len(extended.node) - self.federation.nodes
        self._send(extended)
        # (m,) d̃ in the whole graph, or None: in the extended one.
        degree = torch.from_numpy(extended.degree[extended.node]) if options.degrees == "global" else None
        looped, weight = normalised_edges(extended.graph, degree)
        convolution = partial(propagate, looped, weight=weight.to(device))
        position, sizes = torch.from_numpy(extended.position).to(device), torch.from_numpy(extended.sizes)
        if not summed:
            rows = extended.first[np.searchsorted(extended.held, extended.node)]
            features = select_features(self.federation.features, rows)
            further = {"position": position, "convolution": convolution}
            return prepare(self, extended.graph, features, sizes, **further)
        segments = Segments(sizes, device)
        sums = Features(extended.sums(options.normalisation == "symmetric"), segments, device)
        return Inputs(segments, sums, convolution, self.task.width, sums, position)

    def _send(self, extended: "Extended") -> None:
        """Count the exchange before training: rows with 32-bit indices, and degrees."""
        options, width = self.options, self.federation.width
        halo, summed = len(extended.node) - self.federation.nodes, options.sent == "sums"
        if summed:
            rows, received = extended.uploaded_rows(), len(extended.node)
        else:
            # The distinct nodes in the halo of some client.
            rows, received = len(np.unique(np.delete(extended.node, extended.position))), halo
        self.channel.once_down(rows=unformed(received, width))
        self.channel.once_up(**{options.sent: unformed(rows, width)}, nodes=unformed(rows, dtype=torch.int32))
        if options.degrees == "global" or (options.normalisation == "symmetric" and summed):
            self.channel.once_up(degrees=unformed(len(extended.first)))
            self.channel.once_down(degrees=unformed(halo))


class Extended:
    """The clients' graphs with others' nodes around their own; m nodes in all, sorted by client."""

    def __init__(self, federation: Federation, radius: int) -> None:
        """The others' nodes are those at most `radius` edges away."""
        self.federation = federation
        total, clients = federation.source.nodes, federation.clients
        origin, client = federation.origin.numpy(), federation.client.numpy()
        self.held, self.first = np.unique(origin, return_index=True)
        """(nodes held,) ids of the nodes that some client holds, and their first rows in the federation."""
        source, target = (
            torch.cat([inside, between]).numpy()
            for inside, between in zip(federation.graph.edges(), federation.inter.edges(), strict=True)
        )
        self.adjacency = ones_at(origin[source], origin[target], (total, total))
        """(N, N) 0/1, every edge between nodes that some client holds; N nodes of the source."""
        self.adjacency.data[:] = 1
        self.degree = 1 + np.asarray(self.adjacency.sum(axis=1), dtype=np.float32).ravel()
        """d̃ of every node of the source, (N,) float32."""
        reach = ones_at(client, origin, (clients, total))
        for _ in range(radius):
            reach = reach + reach @ self.adjacency
        reach.sort_indices()
        self.sizes, self.node = np.diff(reach.indptr).astype(np.int64), reach.indices.astype(np.int64)
        """(K,) number of nodes in each client's extended graph, and (m,) their ids in the source."""
        owner = np.repeat(np.arange(clients), self.sizes)
        key = owner * total + self.node
        self.position = np.searchsorted(key, client * total + origin)
        """(n,) rows of the clients' own nodes among the m."""
        near = self.adjacency[self.node].tocoo()
        wanted = owner[near.row] * total + near.col
        inside = among(wanted, key)
        place = np.searchsorted(key, wanted[inside])
        graph = make_graph(place, near.row[inside], len(key))
        self.graph = use_kernel(graph, kernel_of(federation.graph))
        """m nodes, every edge between two nodes of one client's extended graph."""

    def uploaded_rows(self) -> int:
        """Number of rows that all clients upload: their nodes and these nodes' neighbours."""
        owner = self.federation.client.numpy()[self.first]
        holds = ones_at(owner, self.held, (self.federation.clients, len(self.degree)))
        return int((holds + holds @ self.adjacency).nnz)

    def sums(self, symmetric: bool) -> Tensor:
        """s_v of every row, (m, d), in the features' layout; not divided by degrees unless `symmetric`."""
        total = len(self.degree)
        operator = self.adjacency + sp.identity(total, dtype=np.float32, format="csr")
        if symmetric:
            scale = sp.diags(1 / np.sqrt(self.degree))
            operator = (scale @ operator @ scale).tocsr()
        pick = ones_at(self.held, self.first, (total, self.federation.nodes))
        return as_feature_tensor(operator[self.node] @ pick @ as_array(self.federation.features))
