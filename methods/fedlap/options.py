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
    network: Literal["decoupled", "backbone"] = "decoupled"
    """What reads a client's features: f and L propagations, or the setting's own network."""
    hops: Size = tunable(2, linear=(1, 5))
    """L."""
    feature_hidden: str = tunable("64", choices=("64", "128", "256"))
    """Hidden layers of f, widths joined by +."""
    structure_hidden: str = "64"
    """Hidden layers of g, widths joined by +."""
    structure_width: Count = 512
    """d_s."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        """The backbone with the decoupled network, and that network's options without it."""
        if self.network == "decoupled":
            return {"backbone": "network=backbone"}
        return dict.fromkeys(("hops", "feature_hidden"), "network=decoupled")


@dataclass(frozen=True)
class FedLapOptions(SmoothOptions):
    """Hyper-parameters of FedLap."""

    parts: Literal["whole", "weighted"] = "whole"
    """How the clients' parts of R are added up: as they are, or weighted by p_k (the authors' code)."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        """As for both; and without λ there are no parts."""
        idle = dict(super().unused(backbone))
        if self.smoothing == 0:
            idle["parts"] = "smoothing above 0"
        return idle


@dataclass(frozen=True)
class FedLapPlusOptions(SmoothOptions):
    """Hyper-parameters of FedLap+."""

    rank: Count = 200
    """r, eigenvectors."""
    basis: Literal["exact", "reference"] = "exact"
    """True eigenvectors, or what the authors' code takes for them."""
    steps: Count = 500
    """Of Arnoldi's iteration: for `exact`, those whose bytes are counted."""
