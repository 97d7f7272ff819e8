"""Graphs with fewer edges inside classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsub.datasets.graph import Dataset, make_graph
from fedsub.datasets.seeding import stream


def weakened(dataset: Dataset, share: float, seed: int) -> Dataset:
    """The dataset without a share of the edges that join nodes of one class, drawn uniformly: the graph that
    is to be divided. What a smaller share takes, a larger one takes too; without any the same object."""
    if not share:
        return dataset
    source, target = (end.numpy() for end in dataset.graph.edges())
    ends = np.minimum(source, target) * dataset.nodes + np.maximum(source, target)
    distinct, edge = np.unique(ends, return_inverse=True)
    labels, (low, high) = dataset.labels.numpy(), divmod(distinct, dataset.nodes)
    # Nodes without a label are no class.
    inside = np.flatnonzero((labels[low] == labels[high]) & (labels[low] >= 0))
    kept = np.ones(len(distinct), dtype=bool)
    kept[stream(seed, "class edges removed").permutation(inside)[: round(share * len(inside))]] = False
    return replace(dataset, graph=make_graph(source[kept[edge]], target[kept[edge]], dataset.nodes))
