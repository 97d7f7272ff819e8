"""A plot of a partition: clients as nodes, cut edges as links."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedsub.datasets.files import explained
from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.partition.statistics import client_edges, label_counts

LABELLED = 60
"""Up to this many clients carry their number."""


def draw_client_graph(dataset: Dataset, partition: Partition, path: str | Path) -> None:
    """Write a PNG: a disc per client, its area by nodes and its colour by majority class; a line between
    two clients, its width by the edges of the graph between them. Clients with many edges lie close.

    Raises UserError if the file cannot be written.
    """
    between = client_edges(dataset, partition)
    np.fill_diagonal(between, 0)
    graph = nx.from_numpy_array(np.sqrt(between))
    # springs as strong as the edges between two clients
    places = nx.spring_layout(graph, weight="weight", seed=0, iterations=200)
    figure = Figure(figsize=(8, 8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    weights = np.array([weight for *_, weight in graph.edges(data="weight")])
    strength = weights / max(np.sqrt(between.max()), 1)
    colours = np.column_stack([np.full((len(strength), 3), 0.35), 0.15 + 0.6 * strength])
    nx.draw_networkx_edges(graph, places, ax=axes, width=0.3 + 6 * strength, edge_color=colours)
    sizes = partition.sizes
    nx.draw_networkx_nodes(
        graph,
        places,
        ax=axes,
        node_size=1600 * sizes / sizes.max() * min(1.0, 20 / partition.clients),
        node_color=label_counts(dataset, partition).argmax(axis=1),
        cmap="tab20",
        vmin=0,
        vmax=19,
        edgecolors="black",
        linewidths=0.8,
    )
    if partition.clients <= LABELLED:
        nx.draw_networkx_labels(graph, places, ax=axes, font_size=7)
    axes.set_title(
        f"{dataset.name}, {partition.scheme}, {partition.clients} clients\n"
        f"{sizes.min()} to {sizes.max()} nodes each; widest line {between.max()} edges; colour: majority",
        fontsize=9,
    )
    axes.set_aspect("equal")
    axes.margins(0.12)
    axes.set_axis_off()
    with explained("write the client graph to", path):
        figure.savefig(path, format="png")
