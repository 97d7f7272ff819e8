"""`mlp`: multi-layer perceptron, which reads no edges: f(h) = h W."""

import dgl
import torch
from torch import Tensor

from fedsub.methods.stacked.inputs import Convolution
from fedsub.methods.stacked.networks.base import Product
from fedsub.methods.stacked.networks.layered import Layered


class MLP(Layered):
    """Layers that read each node by itself."""

    @property
    def hops(self) -> int:
        return 0

    def convolution(
        self, graph: dgl.DGLGraph, device: torch.device | str, rows: Tensor | None = None
    ) -> Convolution:
        return lambda h: h

    def convolve(self, times: Product, spread: Product) -> Tensor:
        return times("weight")


network = MLP
