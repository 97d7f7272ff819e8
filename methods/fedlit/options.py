"""Options of FedLIT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsub.datasets.limits import Count, ShareBelowOne
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import Options


@dataclass(frozen=True)
class FedLITOptions(Options):
    """Hyper-parameters of FedLIT, which has its own network instead of the protocol's."""

    types: Count = tunable(4, linear=(2, 8))
    """T, number of latent link types."""
    layers: Count = tunable(2, linear=(1, 3))
    """Number of multi-channel layers; with SGC the protocol's hops are used instead."""
    width: Count = 64
    """Width of the projection and of every layer."""
    dropout: ShareBelowOne = tunable(0.3, linear=(0, 0.8))
    """Dropout after every channel; none with SGC."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return dict.fromkeys(("layers", "dropout"), "a backbone other than sgc") if backbone == "sgc" else {}
