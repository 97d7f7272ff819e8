"""Options of FedLap and FedLap+."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedsub.datasets.limits import Count, NonNegative, Size, tunable
from fedsub.methods.core.base import Options


@dataclass(frozen=True)
class SmoothOptions(Options):
    """Hyper-parameters of both methods; defaults are the authors' for Cora."""

    smoothing: NonNegative = tunable(10.0, log=(0.1, 1000))
    """λ, weight of the regulariser R; 0 leaves it out."""
    hops: Size = tunable(2, linear=(1, 5))
    """L, number of propagations of f over the client's graph."""
    feature_hidden: str = tunable("64", choices=("64", "128", "256"))
    """Hidden layers of the feature network f, widths joined by +."""
    structure_hidden: str = "64"
    """Hidden layers of the structure network g, widths joined by +."""
    structure_width: Count = 512
    """d_s, width of the learned features."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return {"backbone": "another method, as this one has its own network"}


@dataclass(frozen=True)
class FedLapPlusOptions(SmoothOptions):
    rank: Count = 200
    """r, number of eigenvectors."""
    basis: Literal["exact", "reference"] = "exact"
    """Basis U: the exact eigenvectors, or the approximate ones of the authors' code."""
    steps: Count = 500
    """Steps of Arnoldi's iteration; with `basis=exact` they only determine the counted bytes."""
