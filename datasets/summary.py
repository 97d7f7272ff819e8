"""Summary of a graph: counts, homophily, components."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components

from fedsub.datasets.fields import MISSING
from fedsub.datasets.graph import Dataset


@dataclass(frozen=True)
class Summary:
    """Measured figures of one graph."""

    nodes: int
    undirected_edges: int
    features: int
    classes: int
    homophily: float
    """Share of edges with equal labels at both ends, among edges with two labelled ends; 0 without any."""
    components: int
    largest_component: int
    """Number of nodes in the largest connected component."""
    mean_degree: float
    isolated_nodes: int
    largest_class: float
    """Share of labelled nodes in the most frequent class: the accuracy of always predicting it."""


def summarise(dataset: Dataset) -> Summary:
    """Measure a graph."""
    source, target = (end.numpy() for end in dataset.graph.edges())
    labels = dataset.labels.numpy()
    labelled = labels >= 0
    both = labelled[source] & labelled[target]
    components, component = connected_components(dataset.adjacency(), directed=False)
    degrees = np.bincount(source, minlength=dataset.nodes)
    return Summary(
        nodes=dataset.nodes,
        undirected_edges=dataset.undirected_edges,
        features=int(dataset.features.shape[1]),
        classes=dataset.classes,
        homophily=float((labels[source] == labels[target])[both].mean()) if both.any() else 0.0,
        components=int(components),
        largest_component=int(np.bincount(component).max()),
        mean_degree=float(degrees.mean()),
        isolated_nodes=int((degrees == 0).sum()),
        largest_class=float(np.bincount(labels[labelled]).max(initial=0) / max(labelled.sum(), 1)),
    )


MOST_CLASSES = 12
"""Maximum number of classes that are listed with their sizes."""


def in_words(dataset: Dataset) -> str:
    """Return one line on a graph as read: counts, sizes of classes, nodes without a label, attributes.

    It adds advice if the name of a class often means that there is no label."""
    parts = [
        f"{dataset.nodes:,} nodes, {dataset.undirected_edges:,} undirected edges, "
        f"{dataset.features.shape[1]:,} features, {dataset.classes} classes ({class_sizes(dataset)}), "
        f"{int((dataset.labels < 0).sum()):,} nodes without a label"
    ]
    if dataset.attributes:
        parts.append(f"attributes (not features): {', '.join(dataset.attributes)}")
    for name in dataset.class_names:
        if name.lower() in MISSING:
            parts.append(f"if class {name} means no label, leave the field empty")
    return "; ".join(parts)


def class_sizes(dataset: Dataset) -> str:
    """Return the classes by name or number, with their numbers of nodes: `fraud: 12, ok: 30`."""
    sizes = torch.bincount(dataset.labels[dataset.labels >= 0], minlength=dataset.classes).tolist()
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    listed = [f"{name}: {size:,}" for name, size in zip(names, sizes, strict=True)]
    if len(listed) > MOST_CLASSES:
        listed[MOST_CLASSES:] = [f"{len(listed) - MOST_CLASSES} more"]
    return ", ".join(listed)
