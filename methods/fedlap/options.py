"""What may be chosen of FedLap and FedLap+."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedsub.datasets.limits import Count, NonNegative, Size
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import Options


@dataclass(frozen=True)
class SmoothOptions(Options):
    """Hyper-parameters of both; defaults are the authors' for Cora."""

    smoothing: NonNegative = tunable(10.0, log=(0.1, 1000))
    """λ; 0 leaves R out."""
    hops: Size = tunable(2, linear=(1, 5))
    """L."""
    feature_hidden: str = tunable("64", choices=("64", "128", "256"))
    """Hidden layers of f, widths joined by +."""
    structure_hidden: str = "64"
    """Hidden layers of g, widths joined by +."""
    structure_width: Count = 512
    """d_s."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return {"backbone": "another method: its network is its own"}


@dataclass(frozen=True)
class FedLapPlusOptions(SmoothOptions):
    rank: Count = 200
    """r, eigenvectors."""
    basis: Literal["exact", "reference"] = "exact"
    """True eigenvectors, or what the authors' code takes for them."""
    steps: Count = 500
    """Of Arnoldi's iteration: for `exact`, those whose bytes are counted."""
