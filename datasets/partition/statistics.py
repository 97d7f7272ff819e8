"""Statistics of a partition: client sizes, kept and cut edges, label heterogeneity."""

from dataclasses import asdict, dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from scipy.special import rel_entr

from fedsub.datasets.graph import Dataset, ones_at
from fedsub.datasets.partition.base import Partition


@dataclass(frozen=True)
class PartitionStatistics:
    """Statistics of one partition; edges are undirected, and None means undefined.

    Clients whose nodes all lack a label have no label distribution; statistics of labels leave them out.
    """

    clients: int
    """Number of clients K."""
    nodes_mean: float
    """Mean number of nodes per client."""
    nodes_min: int
    nodes_max: int
    edges_mean: float
    """Mean number of edges per client, with both ends in it; a copy in several clients counts in each."""
    edges_min: int
    edges_max: int
    nodes_held: int
    """Number of distinct nodes of the graph that some client holds."""
    intra_edges: int
    """Number of distinct edges of the graph that some client holds."""
    inter_edges: int
    """Number of edges of the graph whose ends are both held, but not by the same client."""
    intra_share: float | None
    """`intra_edges` over the edges of the graph, in [0, 1]."""
    edge_homophily: float | None
    """Share of the clients' edges, all clients pooled, that join nodes of one class, in [0, 1]."""
    label_divergence: float | None
    """Median over pairs of two clients of the Jensen–Shannon distance of their label distributions:
    the square root of the divergence in nats, in [0, 0.833]."""
    heterogeneity: float
    """`label_divergence` as a median over all K² pairs, including a client with itself. FED-PUB's Table 4
    fits this definition (Cora, 10 overlapping clients: 0.30, not 0.54)."""
    label_distance: float
    """Mean over clients of the L1 distance between their label distribution and the graph's, in [0, 2]: the
    earth mover distance of Zhao et al. 2018, cited by FedCog (Section 5.1)."""
    pairwise_label_distance: float | None
    """Mean over pairs of two clients of the L1 distance of their label distributions, in [0, 2], as printed
    by FedCog."""
    clustering: float
    """Mean over clients of the mean local clustering coefficient of their nodes (Watts and Strogatz
    1998), inter-edges left out, in [0, 1]: FED-PUB Table 4."""

    def to_dict(self) -> dict[str, int | float | None]:
        """Return all fields, JSON-ready."""
        return asdict(self)


def describe(dataset: Dataset, partition: Partition) -> PartitionStatistics:
    """Return all statistics of a partition of `dataset`."""
    dataset = partition.completed(dataset)
    member = ones_at(partition.origin, partition.client, (dataset.nodes, partition.clients))
    upper = sp.triu(dataset.adjacency(), k=1, format="coo")
    source, target = upper.row.astype(np.int64), upper.col.astype(np.int64)
    shared = member[source].multiply(member[target]).tocoo()
    edges = np.bincount(shared.col, minlength=partition.clients)
    inside = np.bincount(shared.row, minlength=len(source)) > 0
    held = np.diff(member.indptr) > 0
    labels = dataset.labels.numpy()
    same = labels[source] == labels[target]
    labelled = (labels[source] >= 0) & (labels[target] >= 0)
    told = shared.row[labelled[shared.row]]
    counts = label_counts(dataset, partition)
    counts = counts[counts.any(axis=1)] if counts.any() else counts
    # (clients with a labelled node, classes); zeros for all clients if no node has a label.
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    overall = np.bincount(labels[labels >= 0], minlength=dataset.classes)
    away = np.abs(shares - overall / max(overall.sum(), 1)).sum(axis=1)
    distances = label_divergences(shares)
    pairs = distances[np.triu_indices(len(counts), k=1)]
    sizes = partition.sizes
    return PartitionStatistics(
        clients=partition.clients,
        nodes_mean=float(sizes.mean()),
        nodes_min=int(sizes.min()),
        nodes_max=int(sizes.max()),
        edges_mean=float(edges.mean()),
        edges_min=int(edges.min()),
        edges_max=int(edges.max()),
        nodes_held=int(held.sum()),
        intra_edges=int(inside.sum()),
        inter_edges=int((held[source] & held[target] & ~inside).sum()),
        intra_share=float(inside.mean()) if len(inside) else None,
        edge_homophily=float(same[told].mean()) if len(told) else None,
        label_divergence=float(np.median(pairs)) if pairs.size else None,
        heterogeneity=float(np.median(distances)),
        label_distance=float(away.mean()),
        pairwise_label_distance=float(pdist(shares, "cityblock").mean()) if pairs.size else None,
        clustering=_clustering(partition, dataset.nodes, source[shared.row], target[shared.row], shared.col),
    )


def label_counts(dataset: Dataset, partition: Partition) -> np.ndarray:
    """Return the number of labelled nodes of every class in each client, (K, C) int64."""
    labels = dataset.labels.numpy()[partition.origin]
    key = (partition.client * dataset.classes + labels)[labels >= 0]
    counts = np.bincount(key, minlength=partition.clients * dataset.classes)
    return counts.reshape(partition.clients, dataset.classes)


def label_divergences(shares: np.ndarray) -> np.ndarray:
    """Return the Jensen–Shannon distance, in nats, of every two rows of `shares` (K, C); (K, K) float64."""
    first, second = np.triu_indices(len(shares), k=1)
    middle = (shares[first] + shares[second]) / 2
    divergence = (rel_entr(shares[first], middle) + rel_entr(shares[second], middle)).sum(axis=1) / 2
    distances = np.zeros((len(shares), len(shares)))
    distances[first, second] = distances[second, first] = np.sqrt(np.maximum(divergence, 0))
    return distances


def local_clustering(adjacency: sp.csr_matrix) -> np.ndarray:
    """Return the local clustering coefficient of each node, (n,) float64; 0 with fewer than two neighbours.

    `adjacency` is symmetric, 0/1, without loops. Edges are first directed from low to high degree, so that no
    node has many successors and the products stay small despite hubs. A triangle is then i→j, i→k, j→k. It is
    counted at i by the path i→j→k beside i→k, and at j and k by the shared predecessor of j→k.
    """
    degree = np.diff(adjacency.indptr)
    rank = np.argsort(np.argsort(degree, kind="stable"))
    entries = adjacency.tocoo()
    rising = rank[entries.row] < rank[entries.col]
    directed = ones_at(entries.row[rising], entries.col[rising], adjacency.shape)
    outer = (directed @ directed).multiply(directed)
    closing = (directed.T.tocsr() @ directed).multiply(directed)
    triangles = (outer.sum(axis=1).A1 + closing.sum(axis=1).A1 + closing.sum(axis=0).A1).astype(np.float64)
    pairs = degree * (degree - 1.0) / 2
    return np.divide(triangles, pairs, out=np.zeros(len(degree)), where=pairs > 0)


def _clustering(
    partition: Partition, nodes: int, source: np.ndarray, target: np.ndarray, client: np.ndarray
) -> float:
    """Return the mean over clients of the mean local clustering of their nodes, from each client's edges."""
    keys = partition.client * nodes + partition.origin
    # scipy's row numbers have 32 bits, in which the products would wrap around.
    first = client.astype(np.int64) * nodes
    start, stop = (np.searchsorted(keys, first + end) for end in (source, target))
    ends = np.concatenate([start, stop]), np.concatenate([stop, start])
    local = local_clustering(ones_at(*ends, (len(keys), len(keys))))
    sums = np.bincount(partition.client, weights=local, minlength=partition.clients)
    return float((sums / partition.sizes).mean())
