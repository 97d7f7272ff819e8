"""The nodes that are hidden from a neighbour generator (Zhang et al., NeurIPS 2021, section 4.1), and a
backbone's inputs on graphs mended with generated neighbours."""

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.stacked.backbones import Backbone
from fedsub.methods.stacked.features import DenseFeatures, Features, NormalisedFeatures
from fedsub.methods.stacked.inputs import Grown, Inputs
from fedsub.methods.stacked.segments import Segments, ranks


def choose_hidden(sample: Tensor, client: Tensor, share: float, random: np.random.Generator) -> Tensor:
    """Draw `share` of each client's nodes in `sample`, (n,) bool, rounded, uniformly at random; (n,) bool.

    `client` is (n,), ascending.
    """
    nodes = sample.nonzero().squeeze(1).numpy()
    owner = client.numpy()[nodes]
    shuffled = np.lexsort((random.random(len(nodes)), owner))
    size = np.bincount(owner)
    # Clients ascend, so that owner[shuffled] is owner.
    taken = ranks(torch.from_numpy(size)).numpy() < np.rint(share * size)[owner]
    hidden = torch.zeros_like(sample)
    hidden[torch.from_numpy(nodes[shuffled[taken]])] = True
    return hidden


class MendedFeatures(Features):
    """[X; X̂] in the clients' order, without concatenating them: X may be sparse, X̂ is dense.

    Differentiable in X̂.
    """

    def __init__(self, own: Features, added: Features, order: Tensor) -> None:
        """`own` has the n original rows, `added` the m additional rows; `order` is `Grown.order`."""
        self.own, self.added, self.order = own, added, order

    def times(self, weight: Tensor) -> Tensor:
        """[X; X̂] W with client k's rows times `weight[k]`; (K, d, width) → (n + m, width)."""
        return torch.cat([self.own.times(weight), self.added.times(weight)]).index_select(0, self.order)

    def renew_gradients(self) -> None:
        self.own.renew_gradients()
        self.added.renew_gradients()


def mended_inputs(backbone: Backbone, mended: Grown, own: Features, rows: Tensor, classes: int) -> Inputs:
    """A backbone's inputs on a mended graph, for one model or one of each client, as `own` is segmented.

    `rows`, (m, d), are the additional nodes' features by their ids, which must ascend with their client.
    """
    device = rows.device
    # (1 or K,): one model reads all rows, else each client's model its own.
    sizes = mended.sizes.view(own.segments.clients, -1).sum(dim=1)
    kind = NormalisedFeatures if isinstance(own, NormalisedFeatures) else DenseFeatures
    added = kind(rows, Segments(sizes - own.segments.sizes, device), device)
    return Inputs(
        segments=Segments(sizes, device),
        features=MendedFeatures(own, added, mended.order.to(device)),
        convolution=backbone.convolution(mended.graph, device),
        classes=classes,
        position=mended.position.to(device),
    )
