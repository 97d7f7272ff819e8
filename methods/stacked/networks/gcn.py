"""`gcn`: graph convolution: f(h) = Â h W, Kipf & Welling, ICLR 2017, eq. (2)."""

import torch

from fedsub.methods.stacked.networks.layered import Layered
from fedsub.methods.stacked.parameters import Parameters, glorot


class GCN(Layered):
    """Layers of `methods.stacked.networks.layered` whose f is a graph convolution."""

    folds = True
    takes_residual = True

    def _start(self, inner: int, outer: int, generator: torch.Generator) -> Parameters:
        return {"weight": glorot((inner, outer), generator), "bias": torch.zeros(outer)}


network = GCN
