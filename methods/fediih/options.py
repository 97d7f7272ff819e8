"""What may be chosen of FedIIH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsub.datasets.limits import Count, NonNegative
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import Options


@dataclass(frozen=True)
class FedIIHOptions(Options):
    factors: Count = tunable(2, choices=(1, 2, 4))
    """F."""
    width: Count = 128
    """D, numbers in a factor."""
    layers: Count = tunable(4, choices=(2, 3, 4))
    """L, which says how often is routed."""
    iterations: Count = tunable(6, choices=(3, 6))
    """Assignments of neighbours to factors in one routing."""
    scale: NonNegative = 10.0
    """Of the similarities in the softmax."""
    variational: NonNegative = 0.0
    """Weight of the negative variational bound in a client's loss."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return {"backbone": "another method: its network is its own"}
