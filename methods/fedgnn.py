"""FedGNN, as FED-PUB adapts it: clients exchange nodes, then FedAvg.

Wu et al., FedGNN: Federated Graph Neural Network for Privacy-Preserving Recommendation, 2021; Baek et
al., Personalized Subgraph Federated Learning, ICML 2023, appendix B.2. Before training, every client's
graph grows by nodes of other clients:

- clients that share nodes: those with the same neighbours as a local node, joined to these neighbours;
- disjoint clients: those whose features have a cosine above 0.5 with a local node's, joined to it.

The appendix does not say what nodes with the same neighbours are joined to: here to those, as the original
joins users through their common items. A node arrives once, however many local nodes it matches and
however many clients hold it. Arrivals pass messages; they are neither trained on nor scored. The papers'
server matches under encryption; here raw features cross, and are counted, once, by all clients, whoever
is absent later.

Departure: a node takes at most `neighbours` similar ones, the closest, since on graphs with dense
features (Photo, Computers) half of all pairs may exceed the threshold; 0 lifts the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy, select_features, unit_rows
from fedsub.datasets.limits import Cosine, Size
from fedsub.datasets.ranges import tunable
from fedsub.datasets.sets import among, distinct
from fedsub.methods.core.base import PAPER_COMMUNICATION, Options, prepare, register, rows_read
from fedsub.methods.core.channel import FLOAT, size_of, unformed
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.growth import grow
from fedsub.methods.stacked.inputs import Inputs


@dataclass(frozen=True)
class FedGNNOptions(Options):
    rule: Literal["auto", "neighbourhood", "similarity"] = "auto"
    """Which nodes match; `auto` takes neighbourhoods where clients share nodes, else similarity."""
    threshold: Cosine = tunable(0.5, linear=(0, 0.9))
    """Cosine similarity above which a node is taken."""
    neighbours: Size = tunable(10, choices=(5, 10, 20))
    """Most similar nodes taken for each local node; 0 takes all above the threshold."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.rule == "neighbourhood":
            return dict.fromkeys(("threshold", "neighbours"), "rule=similarity")
        return {}


@register(
    "fedgnn",
    title="FedGNN",
    paper="Wu et al. 2021",
    options=FedGNNOptions,
    exchanges="model parameters; features and neighbour lists of nodes, once",
    breaks_privacy="clients receive raw features of other clients' nodes",
    simulation_only="clients receive each other's nodes",
)
class FedGNN(FedAvg):
    """FedAvg on grown graphs."""

    options: FedGNNOptions

    def make_inputs(self) -> Inputs:
        options, federation = self.options, self.federation
        if self.by_neighbourhood:
            augmentation = by_neighbourhood(federation)
        else:
            augmentation = by_similarity(federation, options.threshold, options.neighbours)
        node = torch.from_numpy(augmentation.node)
        ends = torch.from_numpy(augmentation.arrival), torch.from_numpy(augmentation.local)
        grown = grow(federation.graph, federation.sizes, len(node), ends)
        self.extras["added_nodes"] = float(len(augmentation.node))
        self.extras["added_edges"] = float(len(augmentation.local))
        self._send(augmentation)
        features = select_features(federation.features, grown.rows(node).numpy())
        return prepare(
            self, grown.graph, features, grown.sizes, position=grown.position, read=rows_read(self)
        )

    def finish(self) -> None:
        """`paper_communication_pct`: the model both ways and the features of every added node in every round.
        (FED-PUB's Table 3 prints 214.94: by this counting 3,224 rows a round over its ten clients.) Here
        features cross once, and the channel counts them."""
        model = 2 * size_of(*self.parameters.values())
        rows = self.extras["added_nodes"] * self.federation.width * FLOAT
        self.extras[PAPER_COMMUNICATION] = 100 * (1 + rows / model)

    @property
    def by_neighbourhood(self) -> bool:
        """Whether nodes are matched by their neighbours, not by their features."""
        shared = len(self.federation.origin.unique()) < self.federation.nodes
        return self.options.rule == "neighbourhood" or (self.options.rule == "auto" and shared)

    def _send(self, augmentation: Augmentation) -> None:
        """What nodes are matched by goes to the server, the arrivals' features to their new clients; an edge
        is two ids of 8 bytes, global ones, where an index into what a client holds takes 4 in other methods.

        Similarity needs every node's features, neighbourhoods every edge, after which the server asks for
        the features of those nodes alone that arrive somewhere.
        """
        federation, features = self.federation, self.federation.features
        if self.by_neighbourhood:
            self.channel.once(unformed(2, federation.graph.num_edges() // 2, dtype=torch.int64))
            self.channel.once(select_features(features, np.unique(augmentation.node)))
        else:
            self.channel.once(features)
        self.channel.once(select_features(features, augmentation.node))
        self.channel.once(unformed(2, len(augmentation.local), dtype=torch.int64))


CHUNK_ENTRIES = 2**24
"""Similarities computed at a time (64 MB)."""


@dataclass(frozen=True)
class Augmentation:
    """A nodes that arrive and the E edges that join each to nodes of the client that it comes to."""

    client: np.ndarray
    """(A,) the client that receives the node, ascending."""
    node: np.ndarray
    """(A,) row in the federation of the node that is copied."""
    arrival: np.ndarray
    """(E,) index into the arrivals."""
    local: np.ndarray
    """(E,) row in the federation of the receiving client's own node."""


def _gather(client: np.ndarray, node: np.ndarray, local: np.ndarray, nodes: int) -> Augmentation:
    """One arrival for each distinct (receiving client, node), from a list of its edges."""
    keys, arrival = np.unique(client.astype(np.int64) * nodes + node, return_inverse=True)
    edges = distinct(arrival.reshape(-1) * nodes + local)
    return Augmentation(keys // nodes, keys % nodes, edges // nodes, edges % nodes)


def by_similarity(federation: Federation, threshold: float, neighbours: int) -> Augmentation:
    """Each node is joined to nodes of other clients with more than `threshold` cosine similarity.

    Of those the `neighbours` most similar, or all if it is 0. Nodes that the client holds a copy of
    itself are passed over, and so are all copies of a node but one. Similarities are computed for a block
    of nodes at a time.
    """
    client, origin = federation.client, federation.origin
    strange = torch.ones(federation.clients, int(origin.max()) + 1, dtype=torch.bool)
    strange[client, origin] = False
    repeated = np.ones(federation.nodes, dtype=bool)
    repeated[np.unique(origin.numpy(), return_index=True)[1]] = False
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for rows, similarity in _similarities(federation.features):
        similarity[~strange[client[rows]][:, origin]] = -1.0
        similarity[:, torch.from_numpy(repeated)] = -1.0
        if neighbours:
            best, column = similarity.topk(min(neighbours, similarity.shape[1]), dim=1)
            near, rank = (best > threshold).nonzero(as_tuple=True)
            far = column[near, rank]
        else:
            near, far = (similarity > threshold).nonzero(as_tuple=True)
        found.append((rows[near.numpy()], far.numpy()))
    local = np.concatenate([near for near, _ in found])
    node = np.concatenate([far for _, far in found])
    return _gather(client.numpy()[local], node, local, federation.nodes)


def _similarities(features: Tensor) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Blocks of rows and their cosine similarities to all n rows, (block, n)."""
    nodes = int(features.shape[0])
    width = max(1, CHUNK_ENTRIES // nodes)
    if features.layout is not torch.sparse_csr:
        unit = torch.nn.functional.normalize(features, dim=1)
        for start in range(0, nodes, width):
            yield np.arange(start, min(start + width, nodes)), unit[start : start + width] @ unit.T
        return
    scaled = unit_rows(as_scipy(features)).tocsr()
    for start in range(0, nodes, width):
        block = scaled[start : start + width].toarray()
        yield np.arange(start, start + len(block)), torch.from_numpy((scaled @ block.T).T.copy())


def by_neighbourhood(federation: Federation) -> Augmentation:
    """Each client receives other clients' nodes that have the same neighbours as one of its own.

    Neighbours are compared as nodes of the divided graph, within clients; isolated nodes match
    nothing. An arrival is joined to those common neighbours; a node that the client holds is not
    sent to it, and of several copies of a node one is.
    """
    client, origin = federation.client.numpy(), federation.origin.numpy()
    nodes, clients = federation.nodes, federation.clients
    source, target = (end.numpy() for end in federation.graph.edges())
    group = _groups(source, target, origin, nodes)
    connected = np.flatnonzero(group >= 0)
    count = int(group.max()) + 1 if len(connected) else 0
    ones = np.ones(len(connected), dtype=np.float32)
    present = sp.csr_matrix((ones, (client[connected], group[connected])), shape=(clients, count))
    members = sp.csr_matrix((ones, (group[connected], connected)), shape=(count, nodes))
    pairs = (present @ members).tocoo()
    receiver, node = pairs.row.astype(np.int64), pairs.col.astype(np.int64)
    new = ~among(_key(receiver, origin[node], origin), distinct(_held(client, origin)))
    receiver, node = receiver[new], node[new]
    _, first = np.unique(_key(receiver, origin[node], origin), return_index=True)
    receiver, node = receiver[first], node[first]
    rows = sp.csr_matrix((np.ones(len(source)), (source, target)), shape=(nodes, nodes))
    degree = np.diff(rows.indptr)
    pair = np.repeat(np.arange(len(node)), degree[node])
    neighbour = rows[node].indices
    keys = _held(client, origin)
    order = np.argsort(keys)
    wanted = _key(receiver[pair], origin[neighbour], origin)
    local = order[np.searchsorted(keys, wanted, sorter=order)]
    return _gather(receiver[pair], node[pair], local, nodes)


def _groups(source: np.ndarray, target: np.ndarray, origin: np.ndarray, nodes: int) -> np.ndarray:
    """A number for each distinct set of neighbours, −1 for an isolated node; (n,).

    Sets are compared by their size and the sum of two random 64-bit words of their members.
    """
    words = np.random.default_rng(0).integers(0, 2**63, (int(origin.max()) + 1, 2), dtype=np.int64)
    rows = sp.csr_matrix((np.ones(len(source), np.int64), (source, target)), shape=(nodes, nodes))
    degree = np.diff(rows.indptr)
    signature = np.column_stack([degree, rows @ words[origin]])
    _, number = np.unique(signature, axis=0, return_inverse=True)
    return np.where(degree > 0, number.reshape(-1), -1)


def _key(client: np.ndarray, node: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """One number for a client and a node of the divided graph."""
    return client.astype(np.int64) * (int(origin.max()) + 1) + node


def _held(client: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """What every client holds, as keys, in the federation's order."""
    return _key(client, origin, origin)
