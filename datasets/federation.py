"""All clients as one block-diagonal graph, with nodes sorted by client."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, induced, make_graph, ones_at, select_features
from fedsub.datasets.sets import distinct

if TYPE_CHECKING:
    from fedsub.datasets.partition.base import Partition
    from fedsub.datasets.splits import Split


@dataclass(frozen=True, eq=False)
class Federation:
    """K clients with n nodes in total (copies counted), sorted by client; d features, C classes."""

    source: Dataset
    """The graph that was partitioned, with the edges that the partition adds."""
    graph: dgl.DGLGraph
    """n nodes, the intra-edges of every client in both directions; block-diagonal."""
    inter: dgl.DGLGraph
    """n nodes, the inter-edges, between nodes of different clients, in both directions."""
    features: Tensor
    """(n, d) float32, dense or `torch.sparse_csr`."""
    labels: Tensor
    """(n,) int64."""
    client: Tensor
    """(n,) int64 in 0…K−1, ascending."""
    sizes: Tensor
    """(K,) int64, number of nodes of each client."""
    train: Tensor
    """(n,) bool."""
    validation: Tensor
    """(n,) bool."""
    test: Tensor
    """(n,) bool."""
    origin: Tensor
    """(n,) int64, node id in `source`; an id repeats where clients overlap."""

    @property
    def clients(self) -> int:
        """Number of clients K."""
        return len(self.sizes)

    @property
    def nodes(self) -> int:
        """Number of nodes n over all clients."""
        return len(self.client)

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return self.source.classes

    @property
    def width(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])

    def count(self, mask: Tensor) -> Tensor:
        """Return the number of nodes of each client in `mask` ((n,) bool); (K,) int64."""
        return torch.bincount(self.client[mask], minlength=self.clients)

    def missing_edges(self) -> Tensor:
        """Return the number of edges between every two clients that neither holds, (K, K) int64,
        symmetric."""
        source, target = (self.client[end] for end in self.inter.edges())
        between = torch.bincount(source * self.clients + target, minlength=self.clients**2)
        return between.view(self.clients, self.clients)

    def only(self, client: int) -> "Federation":
        """Return one client's data: a federation of one client, with its nodes and the edges among them."""
        stop = int(self.sizes[: client + 1].sum())
        start = stop - int(self.sizes[client])
        source, target = (end.numpy() for end in self.graph.edges())
        own = (start <= source) & (source < stop)
        roles = (self.train, self.validation, self.test)
        held = Dataset(
            self.source.name,
            make_graph(source[own] - start, target[own] - start, stop - start),
            select_features(self.features, np.arange(start, stop)),
            self.labels[start:stop],
            self.classes,
            official=np.stack([role[start:stop].numpy() for role in roles])[:, None],
        )
        return alone(held)

    def merged(self) -> "tuple[Federation, Tensor]":
        """Merge all clients into one that holds every node once and all edges between them.

        Returns that federation of m nodes and the row in it of each of the n nodes here; (n,).
        If copies of a node differ in their role, training wins over validation, and validation over test.
        """
        nodes, row = np.unique(self.origin.numpy(), return_inverse=True)
        whole = induced(self.source, nodes)
        position = torch.from_numpy(row)
        none = torch.zeros(len(nodes), dtype=torch.int64)
        role = self.test + 2 * self.validation + 3 * self.train
        role = none.scatter_reduce(0, position, role, "amax")
        federation = replace(
            self,
            graph=whole.graph,
            inter=dgl.graph(([], []), num_nodes=len(nodes)),
            features=whole.features,
            labels=whole.labels,
            client=none,
            sizes=torch.tensor([len(nodes)]),
            train=role == 3,
            validation=role == 2,
            test=role == 1,
            origin=torch.from_numpy(nodes),
        )
        return federation, position


def repeated(federation: Federation, times: int) -> Federation:
    """Return a federation of `times` clients that are all copies of the only client of `federation`."""
    source, target = (end.numpy() for end in federation.graph.edges())
    nodes = federation.nodes
    first = nodes * np.repeat(np.arange(times), len(source))
    rows = torch.arange(nodes).repeat(times)
    by_node = ("labels", "train", "validation", "test", "origin")
    return replace(
        federation,
        graph=make_graph(np.tile(source, times) + first, np.tile(target, times) + first, times * nodes),
        inter=make_graph(np.empty(0, np.int64), np.empty(0, np.int64), times * nodes),
        features=select_features(federation.features, rows.numpy()),
        client=torch.arange(times).repeat_interleave(nodes),
        sizes=torch.full((times,), nodes),
        **{name: getattr(federation, name)[rows] for name in by_node},
    )


def alone(dataset: Dataset) -> Federation:
    """Return a graph as the only client of a federation, with the roles of its first official split.

    Raises UserError if it has no official split.
    """
    if dataset.official is None:
        raise UserError(f"{dataset.name} has no split: give one")
    nodes = dataset.nodes
    train, validation, test = (torch.from_numpy(role) for role in dataset.official[:, 0])
    return Federation(
        source=dataset,
        graph=dataset.graph,
        inter=make_graph(np.empty(0, np.int64), np.empty(0, np.int64), nodes),
        features=dataset.features,
        labels=dataset.labels,
        client=torch.zeros(nodes, dtype=torch.int64),
        sizes=torch.tensor([nodes]),
        train=train,
        validation=validation,
        test=test,
        origin=torch.arange(nodes),
    )


def split_edges(
    adjacency: sp.csr_matrix, origin: np.ndarray, client: np.ndarray
) -> tuple[dgl.DGLGraph, dgl.DGLGraph]:
    """Return the graphs of intra-edges and of inter-edges between the copies `origin` ((n,) ids, by client).

    An edge of the graph joins every pair of copies of its ends. Within a client it is an intra-edge; between
    clients it is an inter-edge only if neither client has copies of both ends.
    """
    copies = ones_at(np.arange(len(origin)), origin, (len(origin), adjacency.shape[0]))
    every = (copies @ adjacency @ copies.T).tocoo()
    same = client[every.row] == client[every.col]
    intra = make_graph(every.row[same], every.col[same], len(origin))
    row, column = every.row[~same], every.col[~same]
    # scipy returns a sparse matrix, which has no A1, for an empty index.
    if len(row) and len(distinct(origin)) != len(origin):
        holds = ones_at(client, origin, (client.max() + 1, adjacency.shape[0]))
        there = (holds[client[row], origin[column]] + holds[client[column], origin[row]]).A1 > 0
        row, column = row[~there], column[~there]
    return intra, make_graph(row, column, len(origin))


def federate(
    dataset: Dataset, partition: "Partition", split: "Split", reads_roles: bool = True
) -> Federation:
    """Make a federation from the clients and added edges of `partition` and the roles of `split`.

    Raises UserError if no client holds a training node, or none holds a test node, unless the task does not
    read the nodes' roles (`reads_roles`).
    """
    fix = "raise its share in the split, or let clients keep the nodes that have this role"
    if dataset.component is not None:
        fix += " (largest_component=false keeps all of the graph)"
    if reads_roles and not split.train.any():
        raise UserError(f"no client has a node to train on: {fix}")
    if reads_roles and not split.test.any():
        raise UserError(f"no client has a node to test on: {fix}")
    dataset = partition.completed(dataset)
    origin, client = partition.origin, partition.client
    intra, inter = split_edges(dataset.adjacency(), origin, client)
    rows = torch.from_numpy(origin)
    return Federation(
        source=dataset,
        graph=intra,
        inter=inter,
        features=select_features(dataset.features, origin),
        labels=dataset.labels[rows],
        client=torch.from_numpy(client),
        sizes=torch.from_numpy(partition.sizes),
        train=torch.from_numpy(split.train),
        validation=torch.from_numpy(split.validation),
        test=torch.from_numpy(split.test),
        origin=rows,
    )
