"""What may be chosen of FedCog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fedsub.datasets.limits import NonNegative, Positive, Share, Size
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import Options
from fedsub.methods.feddyn import DynamicRegularisation
from fedsub.methods.fedopt import AdaptiveServer, FedAdagradOptions, FedAdamOptions, ServerRule
from fedsub.methods.stacked.architecture import Architecture

DEEP_HOPS = 10
"""Hops of APPNP, GBP and GPR-GNN in their papers."""


@dataclass(frozen=True)
class FedCogOptions(Options):
    convolution: Literal["backbone", "sgc", "gcn", "appnp", "gbp", "gprgnn"] = tunable(
        "backbone", choices=("backbone", "sgc", "appnp", "gprgnn")
    )
    """What is computed over the coupled graphs; `backbone`: the setting's own, sgc or gcn."""
    lnnc: bool = tunable(True, choices=(True, False))
    """Join every node that has external neighbours only to its nearest node at home."""
    lnnc_isolated: bool = False
    """Have LNNC join nodes without any neighbour too, as the paper's condition reads literally."""
    hops: Size = 0
    """Propagations L; 0: the architecture's for sgc, 10 for appnp, gbp and gprgnn."""
    restart: Share = tunable(0.1, linear=(0.05, 0.5))
    """α of appnp and gbp, and of gprgnn's γ_l, which start at α (1 − α)^l, the last at (1 − α)^L; the paper
    gives no start."""
    exponent: Share = 0.5
    """r of gbp."""
    hidden: Size = 0
    """Width of a hidden layer, with a ReLU, after the propagation (not for gcn); 0: a linear classifier. The
    update sizes of Table 4 are, to the digit, those of a network d → 100 → C sent both ways by 100 clients;
    the paper does not say whether a ReLU stands between."""
    wire: Literal["dense", "sparse", "nonzero"] = "dense"
    """How propagated features are sent: all values, the non-zero ones with their columns, or, as Table 4
    counts them, the non-zero ones alone (a receiver could not place these)."""
    server: Literal["fedavg", "feddyn", "fedadagrad", "fedadam"] = "fedavg"
    """The server's rule."""
    alpha: Positive = 0.01
    """FedDyn's strength of regularisation."""
    server_learning_rate: NonNegative = 0.0
    """η of FedAdagrad and FedAdam; 0: the default of the method of that name."""
    tau: NonNegative = 0.0
    """Adaptivity τ of FedAdagrad and FedAdam; 0: the default of the method of that name."""
    timing: bool = False
    """Also time the propagation of FedAvg (intra-edges only) and of Central (the whole graph)."""

    def breaks_privacy(self) -> str:
        if self.lnnc:
            return ""
        return (
            "without LNNC clients can solve for the features of a node whose neighbours are all theirs "
            "(Theorem 2)"
        )

    def kind(self, backbone: str) -> str:
        """The convolution that runs with the setting's own."""
        return backbone if self.convolution == "backbone" else self.convolution

    def propagations(self, given: Architecture) -> int:
        return self.hops or (given.hops if self.kind(given.backbone) == "sgc" else DEEP_HOPS)

    def after_propagation(self, given: Architecture) -> Architecture:
        """The network that follows the propagation; with gcn the setting's own."""
        if self.kind(given.backbone) == "gcn":
            return replace(given, backbone="gcn")
        # The input is normalised before it is propagated, its gain and bias belong to the weights.
        if self.hidden > 0:
            return replace(given, backbone="mlp", hidden=(self.hidden,), head="linear", input_norm=False)
        return replace(given, backbone="sgc", hops=0, input_norm=False)

    def rule(self) -> ServerRule:
        if self.server == "feddyn":
            return DynamicRegularisation(self.alpha)
        if self.server == "fedavg":
            return ServerRule()
        default = FedAdamOptions() if self.server == "fedadam" else FedAdagradOptions()
        rate = self.server_learning_rate or default.server_learning_rate
        return AdaptiveServer(replace(default, server_learning_rate=rate, tau=self.tau or default.tau))

    def unused(self, backbone: str) -> Mapping[str, str]:
        kind = self.kind(backbone)
        idle = {} if self.convolution == "backbone" else {"backbone": "convolution=backbone"}
        if kind not in ("appnp", "gbp", "gprgnn"):
            idle["restart"] = "convolution=appnp, gbp or gprgnn"
        if kind != "gbp":
            idle["exponent"] = "convolution=gbp"
        if kind == "gcn":
            idle |= dict.fromkeys(("hops", "hidden", "wire", "timing"), "a convolution other than gcn")
        if not self.lnnc:
            idle["lnnc_isolated"] = "lnnc=true"
        if self.server != "feddyn":
            idle["alpha"] = "server=feddyn"
        if self.server not in ("fedadagrad", "fedadam"):
            idle |= dict.fromkeys(("server_learning_rate", "tau"), "server=fedadagrad or fedadam")
        return idle
