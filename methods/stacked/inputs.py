"""What a backbone reads of one federation, and the parts of it that a few of its outputs depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.segments import Segments

Convolution = Callable[..., Tensor]
"""(n, width) → (n, width); attention is given scores besides."""


@dataclass(frozen=True)
class Inputs:
    """What a backbone reads of one federation; n rows over K clients."""

    segments: Segments
    features: Features
    convolution: Convolution
    """One propagation, (n, width) → (n, width)."""
    classes: int
    propagated: Features | None = None
    """The propagated input features S X, where (S X) W is cheaper than S (X W)."""
    position: Tensor | None = None
    """Rows of the nodes whose outputs are read, where others pass messages besides; None: all. With levels
    their places among the rows of the last."""
    receptive_field: ReceptiveField | None = None
    """What training reads of them, where that is much less."""
    scored: ReceptiveField | None = None
    """What the outputs at `position` depend on, where that is much less."""
    levels: tuple[Level, ...] = ()
    """What each layer computes; none: all rows."""

    def renew_gradients(self) -> None:
        """As `Features.renew_gradients`, for all that is trained from."""
        self.features.renew_gradients()
        for field in (self.receptive_field, self.scored):
            if field is not None:
                field.inputs.renew_gradients()
        for level in self.levels:
            if level.own is not None:
                level.own.features.renew_gradients()


@dataclass(frozen=True)
class ReceptiveField:
    """The part of a federation that the outputs of a few of its nodes depend on."""

    inputs: Inputs
    """Of that part alone; its outputs are those of the few."""
    rows: Tensor
    """(r,) ascending, its nodes' rows."""
    read: Tensor
    """(t,) places of the few among the outputs."""


@dataclass(frozen=True)
class Level:
    """The rows that one layer computes, where the layers after it need no others."""

    rows: Tensor
    """(r,) ascending, among the `count` of the federation."""
    count: int
    place: Tensor
    """(r,) where they stand among the rows of the layer before."""
    segments: Segments
    """Of these rows."""
    convolution: Convolution
    """One propagation from the rows of the layer before, (rows before, width) → (r, width)."""
    own: Inputs | None = None
    """Of the first layer: the input features of these rows."""
    heard: Inputs | None = None
    """Of the first layer: those that the convolution sums, if not of all rows before."""
