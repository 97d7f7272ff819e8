"""Divides the graph."""

import torch
from src.utils.graph import Graph


def create_subgraps(graph, owned):
    return [part(graph, nodes, mended=False) for nodes in owned.values()]


def create_mend_graph(subgraph, graph, val):
    return part(graph, subgraph.nodes, mended=val == 1)


def part(graph, nodes, mended):
    touching = torch.isin(graph.edge_index, nodes)
    masks = {name: getattr(graph, name)[nodes] for name in ("train_mask", "test_mask")}
    return Graph(
        y=graph.y[nodes],
        nodes=nodes,
        external=int((touching[0] ^ touching[1]).sum()),
        mended=mended,
        num_classes=graph.num_classes,
        **masks,
    )
