"""The class `Dataset`, a cleaned graph for node classification, and its preparation."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.seeding import stream
from fedsub.datasets.sets import distinct


@dataclass(frozen=True, eq=False)
class Dataset:
    """One graph with features and labels; n nodes, d features, C classes."""

    name: str
    graph: dgl.DGLGraph
    """n nodes; every undirected edge in both directions, no self-loops, no duplicates."""
    features: Tensor
    """(n, d) float32, dense or `torch.sparse_csr`."""
    labels: Tensor
    """(n,) int64 in 0…C−1; −1 for a node without a label, which has no role in any split."""
    classes: int
    note: str = ""
    """Why results on this graph are approximate; stored in every record."""
    official: np.ndarray | None = None
    """(3, S, n) bool: training, validation and test nodes of the S splits published with the graph."""
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Name → (n,) integers or text: further attributes of the nodes, such as country or year (see
    `valued`)."""
    class_names: tuple[str, ...] = ()
    """The C names of the classes, if labels were given as names."""
    component: np.ndarray | None = None
    """(N,) bool: mask of the largest component in the loaded graph, if only that was kept."""

    @property
    def nodes(self) -> int:
        """Number of nodes n."""
        return int(self.graph.num_nodes())

    @property
    def undirected_edges(self) -> int:
        """Number of undirected edges."""
        return int(self.graph.num_edges()) // 2

    def adjacency(self) -> sp.csr_matrix:
        """Return the symmetric 0/1 adjacency matrix, (n, n) float32."""
        source, target = (end.numpy() for end in self.graph.edges())
        return ones_at(source, target, (self.nodes, self.nodes))


def check_dataset(dataset: Dataset) -> None:
    """Raises UserError if a user's dataset does not have the shapes and types of its fields."""
    held = [("graph", dataset.graph, dgl.DGLGraph), ("official", dataset.official, np.ndarray | None)]
    held += [("features", dataset.features, Tensor), ("labels", dataset.labels, Tensor)]
    held += [(f"attribute {name}", values, np.ndarray) for name, values in dataset.attributes.items()]
    for what, given, kind in held:
        if not isinstance(given, kind):
            wrong = f"the {what} of {dataset.name} is a {type(given).__name__}"
            raise UserError(f"{wrong}: give it in the type that datasets.Dataset states")
    nodes, labels = dataset.nodes, dataset.labels
    mended = "build it with datasets.graph.build_dataset, which does so"
    if dataset.features.ndim != 2 or len(dataset.features) != nodes or labels.shape != (nodes,):
        raise UserError(
            f"{dataset.name} has {nodes} nodes, features of shape {tuple(dataset.features.shape)} and labels "
            f"of shape {tuple(labels.shape)}: give every node a row of features and a label"
        )
    form = dataset.features.dtype, dataset.features.layout
    if form not in ((torch.float32, torch.strided), (torch.float32, torch.sparse_csr)):
        raise UserError(
            f"the features of {dataset.name} are {form[0]}, {form[1]}: give them as float32, dense or CSR"
        )
    if reason := unusable(as_array(dataset.features)):
        raise UserError(f"{dataset.name}: {reason}")
    if labels.dtype != torch.int64 or (
        nodes and not -1 <= int(labels.min()) <= int(labels.max()) < dataset.classes
    ):
        raise UserError(
            f"the labels of {dataset.name} must be int64 from 0 to {dataset.classes - 1}, or -1 for none"
        )
    if len(dataset.class_names) not in (0, dataset.classes):
        raise UserError(f"{dataset.name} has {dataset.classes} classes: give as many class_names, or none")
    for name, values in dataset.attributes.items():
        if values.shape != (nodes,) or values.dtype.kind not in "biuU":
            raise UserError(
                f"the attribute {name} of {dataset.name} is {values.dtype} of shape {values.shape}: give one "
                "whole number or text for each node"
            )
    official = dataset.official
    if official is not None:
        fit = official.ndim == 3 and official.shape[::2] == (3, nodes) and official.size
        if official.dtype.kind != "b" or not fit:
            raise UserError(
                f"the official splits of {dataset.name} are {official.dtype} of shape {official.shape}: give "
                f"masks, bool of shape (3, splits, {nodes})"
            )
        if official.sum(axis=0).max() > 1:
            raise UserError(f"an official split of {dataset.name} gives a node two roles: remove one of them")
    source, target = (end.numpy().astype(np.int64) for end in dataset.graph.edges())
    keys, mirrored = source * nodes + target, target * nodes + source
    if (source == target).any():
        raise UserError(f"the graph of {dataset.name} has self-loops: remove them, or {mended}")
    if len(distinct(keys)) < len(keys):
        raise UserError(f"the graph of {dataset.name} has an edge more than once: keep one copy, or {mended}")
    if not np.array_equal(distinct(keys), distinct(mirrored)):
        raise UserError(
            f"the graph of {dataset.name} has edges in one direction only: add the other, or {mended}"
        )


LARGEST_FEATURE = 1e12
"""Largest accepted feature: training squares and sums features and gradients; float32 ends at 3e38."""


def unusable(features: np.ndarray | sp.csr_matrix) -> str:
    """Return why no model can be trained on these features, (n, d); empty if one can."""
    values = np.asarray(features.data if sp.issparse(features) else features)
    if values.dtype.kind not in "biuf":
        return "the features are not numbers"
    largest = float(np.abs(values).max(initial=0))
    if not np.isfinite(largest):
        return "a feature is not finite"
    if largest > LARGEST_FEATURE:
        return (
            f"a feature is {largest:g}, but the maximum for single precision is {LARGEST_FEATURE:g}: scale it"
        )
    return ""


def valued(attribute: np.ndarray) -> np.ndarray:
    """Return the mask of nodes that have a value of an attribute, (n,) bool; −1 and empty text are none."""
    return attribute != "" if attribute.dtype.kind == "U" else attribute.astype(np.int64) != -1


def ones_at(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """Return a float32 matrix with 1 at each pair of `row` and `column`, (m,) each; repeated pairs add up."""
    return sp.csr_matrix((np.ones(len(row), dtype=np.float32), (row, column)), shape=shape)


def clean_edges(source: np.ndarray, target: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Symmetrise; drop self-loops and duplicates.

    Returns source and target, each (2m,) int64, sorted by source, then target.
    Raises ValueError if an end is outside 0…nodes−1.
    """
    ends = np.stack([np.asarray(end, dtype=np.int64) for end in (source, target)])
    if ends.size and (ends.min() < 0 or ends.max() >= nodes):
        raise ValueError(f"an edge ends outside the {nodes} nodes of the graph")
    ends = ends[:, ends[0] != ends[1]]
    keys = distinct(np.concatenate([ends[0] * nodes + ends[1], ends[1] * nodes + ends[0]]))
    return keys // nodes, keys % nodes


def build_dataset(
    name: str,
    source: np.ndarray,
    target: np.ndarray,
    features: np.ndarray | sp.spmatrix | Tensor,
    labels: np.ndarray,
    classes: int | None = None,
    note: str = "",
) -> Dataset:
    """Clean the edges and wrap the arrays into a `Dataset`.

    `features` is (n, d), dense or scipy sparse; `labels` is (n,); `source` and `target` list the
    edges in any direction, with or without loops and duplicates.
    Raises ValueError if labels and features disagree on n or an edge ends outside the graph.
    """
    nodes = len(labels)
    if features.shape[0] != nodes:
        raise ValueError(f"{name}: {features.shape[0]} feature rows but {nodes} labels")
    source, target = clean_edges(source, target, nodes)
    label_tensor = torch.from_numpy(np.array(labels, dtype=np.int64))
    if classes is None:
        classes = int(label_tensor.max()) + 1
    graph = make_graph(source, target, nodes)
    return Dataset(name, graph, as_feature_tensor(features), label_tensor, classes, note)


def make_graph(source: np.ndarray, target: np.ndarray, nodes: int) -> dgl.DGLGraph:
    """Return a DGL graph of this many nodes with the edges `source[i]` → `target[i]`."""
    ends = (torch.from_numpy(np.asarray(end, dtype=np.int64)) for end in (source, target))
    return dgl.graph(tuple(ends), num_nodes=nodes)


BETA_NOTICE = "Sparse (CSR tensor support|invariant checks)"
"""Start of torch's warnings that sparse CSR tensors are in beta, which it issues in every process."""


def as_feature_tensor(features: np.ndarray | sp.spmatrix | Tensor) -> Tensor:
    """Return dense arrays as a float32 tensor, scipy matrices as `torch.sparse_csr` (32-bit indices)."""
    if isinstance(features, Tensor):
        return features
    if sp.issparse(features):
        matrix = sp.csr_matrix(features, dtype=np.float32)
        matrix.sort_indices()
        pointer = torch.from_numpy(matrix.indptr.astype(np.int32))
        column = torch.from_numpy(matrix.indices.astype(np.int32))
        return csr_tensor(pointer, column, torch.from_numpy(matrix.data), matrix.shape)
    return torch.from_numpy(np.require(features, np.float32, ["C", "W"]))


def csr_tensor(pointer: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a `torch.sparse_csr` tensor, without torch's warning that the layout is in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=BETA_NOTICE)
        return torch.sparse_csr_tensor(pointer, column, values, size=shape, check_invariants=False)


def as_array(features: Tensor) -> np.ndarray | sp.csr_matrix:
    """Return the features as a numpy array if dense, else as a scipy CSR matrix, (n, d) float32."""
    if features.layout is not torch.sparse_csr:
        return features.numpy()
    parts = (features.values().numpy(), features.col_indices().numpy(), features.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(features.shape))


def as_scipy(features: Tensor) -> sp.csr_matrix:
    """Return the features, dense or CSR, as a scipy CSR matrix, (n, d) float32."""
    return sp.csr_matrix(as_array(features))


def scaled_rows(matrix: sp.csr_matrix, lengths: np.ndarray) -> sp.csr_matrix:
    """Return every row divided by its length, (n,); rows of length 0 become 0."""
    return sp.diags(np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths != 0)) @ matrix


def unit_rows(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """Return every row divided by its Euclidean norm, so that inner products of rows are cosines."""
    return scaled_rows(matrix, np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()))


def select_features(features: Tensor, nodes: np.ndarray) -> Tensor:
    """Return rows `nodes` of the features, in that order and in the same form (dense or CSR)."""
    if features.layout is torch.sparse_csr:
        return as_feature_tensor(as_scipy(features)[nodes])
    return features[torch.from_numpy(nodes)]


def as_graph(edges: sp.coo_matrix) -> dgl.DGLGraph:
    """Return a DGL graph with one edge for each stored entry, from row to column."""
    return make_graph(edges.row, edges.col, edges.shape[0])


def induced(dataset: Dataset, nodes: np.ndarray) -> Dataset:
    """Return the induced subgraph on `nodes` (distinct ids), renumbered in their order; classes are kept."""
    return replace(
        dataset,
        graph=as_graph(dataset.adjacency()[nodes][:, nodes].tocoo()),
        features=select_features(dataset.features, nodes),
        labels=dataset.labels[torch.from_numpy(nodes)],
        official=None if dataset.official is None else dataset.official[..., nodes],
        attributes={name: values[nodes] for name, values in dataset.attributes.items()},
        component=None,
    )


def largest_component(dataset: Dataset) -> Dataset:
    """Return the largest connected component, nodes in their original order."""
    _, component = sp.csgraph.connected_components(dataset.adjacency(), directed=False)
    taken = component == np.bincount(component).argmax()
    if taken.all():
        return dataset
    return replace(induced(dataset, np.flatnonzero(taken)), component=taken)


def row_normalised(dataset: Dataset) -> Dataset:
    """Row-normalise the features: divide by their row sums; rows that sum to zero become zero."""
    features = dataset.features
    if features.layout is torch.sparse_csr:
        matrix = as_scipy(features)
        rows = scaled_rows(matrix, np.asarray(matrix.sum(axis=1)).ravel())
        return replace(dataset, features=as_feature_tensor(rows))
    sums = features.sum(dim=1, keepdim=True)
    return replace(dataset, features=torch.where(sums != 0, features / sums, torch.zeros_like(features)))


def standardised(dataset: Dataset) -> Dataset:
    """Standardise features to mean 0 and deviation 1 over all nodes, dense; constant ones become 0."""
    values = as_scipy(dataset.features).toarray().astype(np.float64)
    spread = values.std(axis=0)
    values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return replace(dataset, features=as_feature_tensor(values))


def binarised(dataset: Dataset) -> Dataset:
    """Binarise the features: 1 where positive, else 0."""
    return replace(dataset, features=as_feature_tensor(as_array(dataset.features) > 0))


def weakened(dataset: Dataset, share: float, seed: int) -> Dataset:
    """Remove a share of the edges within classes, drawn uniformly, before partitioning. A larger share
    removes all edges that a smaller one removes. A share of 0 returns the same object."""
    if not share:
        return dataset
    source, target = (end.numpy() for end in dataset.graph.edges())
    ends = np.minimum(source, target) * dataset.nodes + np.maximum(source, target)
    once, edge = np.unique(ends, return_inverse=True)
    labels, (low, high) = dataset.labels.numpy(), divmod(once, dataset.nodes)
    # Nodes without a label form no class.
    inside = np.flatnonzero((labels[low] == labels[high]) & (labels[low] >= 0))
    kept = np.ones(len(once), dtype=bool)
    kept[stream(seed, "class edges removed").permutation(inside)[: round(share * len(inside))]] = False
    return replace(dataset, graph=make_graph(source[kept[edge]], target[kept[edge]], dataset.nodes))
