"""`graphsage`: f(h) = h W + mean over neighbours(h) U, Hamilton et al., NeurIPS 2017, algorithm 1."""

import dgl
from torch import Tensor

from fedsub.methods.stacked.networks.base import Product
from fedsub.methods.stacked.networks.layered import Layered
from fedsub.methods.stacked.propagation import mean_weight


class GraphSAGE(Layered):
    """Layers that read a node and the mean of its neighbours."""

    folds = True
    weights = ("weight", "neighbour")

    def messages(self, graph: dgl.DGLGraph) -> tuple[dgl.DGLGraph, Tensor]:
        return graph, mean_weight(graph)

    def convolve(self, times: Product, spread: Product) -> Tensor:
        return times("weight") + spread("neighbour")


network = GraphSAGE
