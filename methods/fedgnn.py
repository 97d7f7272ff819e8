"""FedGNN, as FED-PUB adapts it: clients exchange nodes, then train as FedAvg.

Wu et al., FedGNN: Federated Graph Neural Network for Privacy-Preserving Recommendation, 2021; Baek et
al., Personalized Subgraph Federated Learning, ICML 2023, appendix B.2. Before training, nodes of other
clients are added to every client's graph:

- if clients share nodes: nodes with the same neighbours as a local node, joined to these neighbours;
- if clients are disjoint: nodes whose features have a cosine above 0.5 with a local node's, joined to it.

The appendix does not say what nodes with the same neighbours are joined to. Here they are joined to these
neighbours, as the original joins users through their common items. A node is added once, however many local
nodes it matches and however many clients hold it. Added nodes pass messages; they are neither trained on nor
scored. The papers' server matches under encryption. Here all clients, also those absent later, send raw
features once, which are counted.

Departures: a node takes only its `neighbours` most similar nodes, since on graphs with dense features
(Photo, Computers) half of all pairs may exceed the threshold; 0 lifts the limit.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import normalize

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import as_scipy, ones_at, select_features, unit_rows
from fedsub.datasets.limits import Cosine, Size, tunable
from fedsub.datasets.sets import among, distinct
from fedsub.methods.core.base import PAPER_COMMUNICATION, Options, prepare, register
from fedsub.methods.core.channel import FLOAT, size_of, unformed
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.stacked.inputs import Inputs, grow


@dataclass(frozen=True)
class FedGNNOptions(Options):
    rule: Literal["auto", "similarity"] = "auto"
    """How nodes are matched; `auto` uses neighbourhoods if clients share nodes, else similarity."""
    threshold: Cosine = tunable(0.5, linear=(0, 0.9))
    """Cosine similarity above which a node is added."""
    neighbours: Size = tunable(10, choices=(5, 10, 20))
    """Maximum number of similar nodes added for each local node; 0 adds all above the threshold."""


@register(
    "fedgnn",
    title="FedGNN",
    paper="Wu et al. 2021",
    options=FedGNNOptions,
    breaks_privacy="clients receive raw features of other clients' nodes",
    simulation_only="clients receive each other's nodes",
)
class FedGNN(FedAvg):
    """FedAvg on graphs with added nodes of other clients."""

    options: FedGNNOptions

    def make_inputs(self) -> Inputs:
        options, federation = self.options, self.federation
        shared = options.rule == "auto" and len(federation.origin.unique()) < federation.nodes
        if shared:
            node, local = by_neighbourhood(federation)
        else:
            node, local = by_similarity(federation, options.threshold, options.neighbours)
        # One added node for each receiving client and node, whatever number of its nodes it is joined to.
        nodes = federation.nodes
        keys, arrival = np.unique(federation.client.numpy()[local] * nodes + node, return_inverse=True)
        added, edges = keys % nodes, distinct(arrival * nodes + local)
        ends = torch.from_numpy(edges // nodes), torch.from_numpy(edges % nodes)
        grown = grow(federation.graph, federation.sizes, len(added), ends)
        self.extras["added_nodes"] = float(len(added))
        self.extras["added_edges"] = float(len(edges))
        self._send(added, len(edges), shared)
        features = select_features(federation.features, grown.rows(torch.from_numpy(added)).numpy())
        return prepare(self, grown.graph, features, grown.sizes, position=grown.position)

    def finish(self) -> None:
        """Set `paper_communication_pct`: the model both ways and every added node's features in every round.
        (FED-PUB's Table 3 prints 214.94: by this formula 3,224 rows a round over its ten clients.) Here
        features are sent once, and the channel counts them."""
        model = 2 * size_of(*self.parameters.values())
        rows = self.extras["added_nodes"] * self.federation.width * FLOAT
        self.extras[PAPER_COMMUNICATION] = 100 * (1 + rows / model)

    def _send(self, added: np.ndarray, edges: int, shared: bool) -> None:
        """Count the data for matching, sent to the server, and the features of the `added` nodes (rows of the
        federation), sent to clients with the `edges` that join them.

        Similarity needs every node's features. Neighbourhoods, if clients share nodes, need every edge; the
        server then asks only for the features of nodes that are added somewhere. An edge is two global ids of
        8 bytes; other methods count 4 for an index into a client's own data.
        """
        federation, features = self.federation, self.federation.features
        if shared:
            known = unformed(2, federation.graph.num_edges() // 2, dtype=torch.int64)
            self.channel.once_up(edges=known, features=select_features(features, np.unique(added)))
        else:
            self.channel.once_up(features=features)
        joined = unformed(2, edges, dtype=torch.int64)
        self.channel.once_down(features=select_features(features, added), edges=joined)


CHUNK_ENTRIES = 2**24
"""Number of similarities computed at a time (64 MB)."""


Edges = tuple[np.ndarray, np.ndarray]
"""Rows in the federation: another client's node, and the receiving client's own node that it is joined to."""


def by_similarity(federation: Federation, threshold: float, neighbours: int) -> Edges:
    """Join each node to nodes of other clients with a cosine similarity above `threshold`.

    Only the `neighbours` most similar are taken, or all if it is 0. A node is skipped if the receiving client
    holds a copy of it; of several copies only the first is used. Similarities are computed block by block.
    """
    client, origin, features = federation.client, federation.origin, federation.features
    strange = torch.ones(federation.clients, int(origin.max()) + 1, dtype=torch.bool)
    strange[client, origin] = False
    repeated = torch.ones(federation.nodes, dtype=torch.bool)
    repeated[np.unique(origin.numpy(), return_index=True)[1]] = False
    dense = features.layout is not torch.sparse_csr
    unit: Any = normalize(features, dim=1) if dense else unit_rows(as_scipy(features)).tocsr()
    size = max(1, CHUNK_ENTRIES // federation.nodes)
    found: list[Edges] = []
    for start in range(0, federation.nodes, size):
        # (block, n), the similarities of a block of rows to all rows.
        block = unit[start : start + size]
        similarity = block @ unit.T if dense else torch.from_numpy((unit @ block.toarray().T).T.copy())
        similarity[~strange[client[start : start + size]][:, origin]] = -1.0
        similarity[:, repeated] = -1.0
        if neighbours:
            best, column = similarity.topk(min(neighbours, similarity.shape[1]), dim=1)
            near, rank = (best > threshold).nonzero(as_tuple=True)
            far = column[near, rank]
        else:
            near, far = (similarity > threshold).nonzero(as_tuple=True)
        found.append((far.numpy(), start + near.numpy()))
    node, local = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return node, local


def by_neighbourhood(federation: Federation) -> Edges:
    """Join other clients' nodes to the neighbours that they have in common with one of the client's nodes.

    Neighbours are compared as nodes of the original graph, within clients; isolated nodes match nothing.
    A node is not added to a client that holds it, and of several copies of a node one is added.
    """
    client, origin = federation.client.numpy(), federation.origin.numpy()
    nodes, clients, total = federation.nodes, federation.clients, int(origin.max()) + 1
    source, target = (end.numpy() for end in federation.graph.edges())
    adjacency = sp.csr_matrix((np.ones(len(source), np.int64), (source, target)), shape=(nodes, nodes))
    degree = np.diff(adjacency.indptr)
    connected = np.flatnonzero(degree)
    # Sets of neighbours are compared by their size and the sums of two random 64-bit words of their members,
    # in int64, where sums wrap exactly.
    words = np.random.default_rng(0).integers(0, 2**63, (total, 2), dtype=np.int64)
    signature = np.column_stack([degree, adjacency @ words[origin]])[connected]
    found, group = np.unique(signature, axis=0, return_inverse=True)
    present = ones_at(client[connected], group.reshape(-1), (clients, len(found)))
    members = ones_at(group.reshape(-1), connected, (len(found), nodes))
    pairs = (present @ members).tocoo()
    # A client and a node of the original graph as one number.
    held = client * total + origin
    order = np.argsort(held)
    # Of several copies of a node the first, and none of a node that the receiver holds.
    wanted, first = np.unique(pairs.row.astype(np.int64) * total + origin[pairs.col], return_index=True)
    first = first[~among(wanted, held[order])]
    receiver, node = pairs.row[first].astype(np.int64), pairs.col[first]
    pair = np.repeat(np.arange(len(node)), degree[node])
    ends = receiver[pair] * total + origin[adjacency[node].indices]
    local = order[np.searchsorted(held, ends, sorter=order)]
    return node[pair], local
