"""What a backbone reads of graphs mended with generated neighbours: their features beside the true ones."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from fedsub.methods.stacked.backbones import Backbone
from fedsub.methods.stacked.features import DenseFeatures, Features, NormalisedFeatures
from fedsub.methods.stacked.growth import Grown
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.segments import Segments


class MendedFeatures:
    """[X; X̂] in the clients' order, neither copied into the other: X may be sparse, X̂ is dense.

    Stands where `Features` stands; differentiable in X̂.
    """

    def __init__(self, own: Features, added: Features, order: Tensor) -> None:
        """`own` holds the n originals, `added` the m additional rows, `order` is `Grown.order`."""
        self.own = own
        self.added = added
        self.order = order
        self.rows, self.width = len(order), own.width

    def times(self, weight: Tensor) -> Tensor:
        """[X; X̂] W with client k's rows times `weight[k]`; (K, d, width) → (n + m, width)."""
        return torch.cat([self.own.times(weight), self.added.times(weight)]).index_select(0, self.order)

    def renew_gradients(self) -> None:
        self.own.renew_gradients()
        self.added.renew_gradients()


def mended_inputs(
    backbone: Backbone,
    mended: Grown,
    own: Features,
    generated: Tensor,
    classes: int,
    sizes: Tensor | None = None,
) -> Inputs:
    """What a backbone reads of a mended graph with `generated` features, (m, d).

    They are in the order of the additional nodes' ids, which must ascend with their client.
    `sizes`, (1 or K,), are the rows that each model reads; None: those of each client.
    """
    device = generated.device
    sizes = mended.sizes if sizes is None else sizes
    added_to = mended.client if len(sizes) > 1 else torch.zeros_like(mended.client)
    runs = Segments(torch.bincount(added_to, minlength=len(sizes)), device)
    kind = NormalisedFeatures if isinstance(own, NormalisedFeatures) else DenseFeatures
    added = kind(generated, runs, device)
    return Inputs(
        segments=Segments(sizes, device),
        features=cast(Features, MendedFeatures(own, added, mended.order.to(device))),
        convolution=backbone.convolution(mended.graph, device),
        classes=classes,
        position=mended.position.to(device),
    )
