"""Data of lower quality: noisy features and labels; missing edges, features and labels.

Partition and split come first, so clients and roles are those of the undamaged data. Only edges inside
classes are removed before (`weakened`). OpenFGL's code has the same kinds
(`data/processing.py`), but scores on undamaged graphs, counts inside each client, and adds random edges where
it says noise; here a client has one graph, and trains and is scored on it. Where a paper varies the share of
nodes to train on and tests on all others (FedStruct, Figure 3), the split says so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, as_array, as_feature_tensor, as_scipy, make_graph, scaled_rows
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.quality import Quality
from fedsub.datasets.seeding import stream
from fedsub.datasets.splits.base import Split


def weakened(dataset: Dataset, quality: Quality, seed: int) -> Dataset:
    """The dataset without a share of the edges that join nodes of one class, drawn uniformly: the graph that
    is to be divided. The same object where all are kept."""
    if not quality.class_edges_removed:
        return dataset
    return _with_edges_removed(dataset, quality.class_edges_removed, seed, inside_classes=True)


def damaged(
    dataset: Dataset, partition: Partition, split: Split, quality: Quality, seed: int
) -> tuple[Dataset, Split]:
    """The dataset and the split as `quality` leaves them: the same objects where nothing is wrong.

    Validation and test nodes keep their labels and roles, also as other clients' training nodes. Each kind of
    damage is drawn apart from the others; what a smaller share hits, a larger one hits too, flips aside.
    Raises UserError for flips of features that are not binary, and for label noise with one class.
    """
    if quality.features_removed:
        dataset = _with_features_removed(dataset, quality.features_removed, seed)
    if quality.feature_flips:
        dataset = _with_flips(dataset, quality.feature_flips, seed)
    if quality.feature_noise:
        values = as_scipy(dataset.features).toarray()
        noise = stream(seed, "feature noise").standard_normal(values.shape, dtype=np.float32)
        values += np.float32(quality.feature_noise) * noise
        dataset = replace(dataset, features=as_feature_tensor(values))
    if quality.edges_removed:
        dataset = _with_edges_removed(dataset, quality.edges_removed, seed)
    if quality.labels_kept < 1:
        split = _with_labels_kept(dataset, partition, split, quality, seed)
    if quality.label_noise:
        dataset = _with_label_noise(dataset, partition, split, quality.label_noise, seed)
    return dataset, split


def _with_features_removed(dataset: Dataset, share: float, seed: int) -> Dataset:
    matrix = as_scipy(dataset.features).copy()
    matrix.eliminate_zeros()
    counts = np.diff(matrix.indptr)
    row = np.repeat(np.arange(dataset.nodes), counts)
    order = np.lexsort((stream(seed, "features removed").random(matrix.nnz), row))
    rank = np.arange(matrix.nnz) - matrix.indptr[:-1][row]
    matrix.data[order[rank < np.rint(share * counts)[row]]] = 0
    matrix.eliminate_zeros()
    return _with_features(dataset, matrix)


def _with_flips(dataset: Dataset, share: float, seed: int) -> Dataset:
    matrix = as_scipy(dataset.features)
    binary = (matrix != 0).astype(np.float32)
    counts = np.maximum(np.asarray(binary.sum(axis=1)).ravel(), 1)
    value = np.asarray(matrix.sum(axis=1)).ravel() / counts
    scaled = sp.diags(value) @ binary
    if abs(scaled - matrix).max() > 1e-4 * max(abs(matrix).max(), 1e-30):
        raise UserError(
            f"the features of {dataset.name} are not binary, so none can be flipped: set binarise=true, or"
            " feature_noise in place of feature_flips"
        )
    # a node without features has the value of the others
    value[value == 0] = value[value != 0].mean() if value.any() else 1.0
    entries = matrix.shape[0] * matrix.shape[1]
    hit = stream(seed, "feature flips").choice(entries, round(share * entries), replace=False, shuffle=False)
    place = (np.ones(len(hit), dtype=np.float32), divmod(hit, matrix.shape[1]))
    flipped = abs(binary - sp.csr_matrix(place, shape=matrix.shape))
    flipped.eliminate_zeros()
    return _with_features(dataset, scaled_rows(flipped, 1 / value))


def _with_features(dataset: Dataset, matrix: sp.csr_matrix) -> Dataset:
    """With other features in the same form, dense or CSR."""
    dense = isinstance(as_array(dataset.features), np.ndarray)
    return replace(dataset, features=as_feature_tensor(matrix.toarray() if dense else matrix))


def _with_edges_removed(dataset: Dataset, share: float, seed: int, inside_classes: bool = False) -> Dataset:
    source, target = (end.numpy() for end in dataset.graph.edges())
    ends = np.minimum(source, target) * dataset.nodes + np.maximum(source, target)
    distinct, edge = np.unique(ends, return_inverse=True)
    labels, eligible = dataset.labels.numpy(), np.arange(len(distinct))
    if inside_classes:
        low, high = divmod(distinct, dataset.nodes)
        # nodes without a label are no class
        eligible = eligible[(labels[low] == labels[high]) & (labels[low] >= 0)]
    generator = stream(seed, "class edges removed" if inside_classes else "edges removed")
    kept = np.ones(len(distinct), dtype=bool)
    kept[_first(eligible, share, generator)] = False
    graph = make_graph(source[kept[edge]], target[kept[edge]], dataset.nodes)
    return replace(dataset, graph=graph)


def _with_labels_kept(
    dataset: Dataset, partition: Partition, split: Split, quality: Quality, seed: int
) -> Split:
    generator = stream(seed, "labels kept")
    train = np.unique(partition.origin[split.train])
    labels = dataset.labels.numpy()[train]
    stratified = [train[labels == label] for label in np.unique(labels)]
    groups = stratified if quality.labels_stratified else [train]
    kept = np.concatenate([_first(nodes, quality.labels_kept, generator, least=1) for nodes in groups])
    return replace(split, train=split.train & np.isin(partition.origin, kept))


def _with_label_noise(
    dataset: Dataset, partition: Partition, split: Split, share: float, seed: int
) -> Dataset:
    if dataset.classes < 2:
        raise UserError(f"{dataset.name} has one class, so no label can be wrong: leave label_noise out")
    generator = stream(seed, "label noise")
    scored = partition.origin[split.validation | split.test]
    train = np.setdiff1d(partition.origin[split.train], scored)
    shift = np.zeros(dataset.nodes, dtype=np.int64)
    shift[train] = generator.integers(1, dataset.classes, size=len(train))
    hit = _first(train, share, generator)
    labels = dataset.labels.numpy().copy()
    labels[hit] = (labels[hit] + shift[hit]) % dataset.classes
    return replace(dataset, labels=torch.from_numpy(labels))


def _first(nodes: np.ndarray, share: float, generator: np.random.Generator, least: int = 0) -> np.ndarray:
    """A share of `nodes`, rounded, in a random order."""
    return generator.permutation(nodes)[: max(round(share * len(nodes)), least)]
