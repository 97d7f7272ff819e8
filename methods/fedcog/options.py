"""Options of FedCog."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fedsub.datasets.limits import NonNegative, Positive, Share, Size, tunable
from fedsub.methods.core.base import Options
from fedsub.methods.feddyn import DynamicRegularisation
from fedsub.methods.fedopt import AdaptiveServer, FedAdagradOptions, FedAdamOptions, ServerRule


@dataclass(frozen=True)
class FedCogOptions(Options):
    convolution: Literal["backbone", "sgc", "gcn", "appnp", "gbp", "gprgnn"] = tunable(
        "backbone", choices=("backbone", "sgc", "appnp", "gprgnn")
    )
    """Convolution over the coupled graphs; `backbone` is the setting's own, sgc or gcn."""
    lnnc: bool = tunable(True, choices=(True, False))
    """LNNC: join every node whose neighbours are all at other clients to its client's nearest node."""
    lnnc_isolated: bool = False
    """Whether LNNC also joins nodes without any neighbour, as the paper's condition reads literally."""
    hops: Size = 0
    """L, number of propagations; 0: the architecture's for sgc, the papers' 10 for appnp, gbp and gprgnn."""
    restart: Share = tunable(0.1, linear=(0.05, 0.5))
    """α of appnp and gbp, and of gprgnn, whose γ_l start at α (1 − α)^l, the last at (1 − α)^L (the paper
    does not give initial values)."""
    exponent: Share = 0.5
    """r, exponent of the degrees in gbp."""
    hidden: Size = 0
    """Width of a hidden layer with ReLU after the propagation (not for gcn); 0 is a linear classifier. Table
    4's update sizes equal those of a network d → 100 → C sent both ways by 100 clients; the paper does not
    say whether it has a ReLU."""
    wire: Literal["dense", "sparse", "nonzero"] = "dense"
    """Form in which propagated features are sent: all values, the non-zero ones with their columns, or, as
    Table 4 counts, only the non-zero ones (a receiver could not place these)."""
    server: Literal["fedavg", "feddyn", "fedadagrad", "fedadam"] = "fedavg"
    """Update rule of the server."""
    alpha: Positive = 0.01
    """α, strength of FedDyn's regularisation."""
    server_learning_rate: NonNegative = 0.0
    """η, server learning rate of FedAdagrad and FedAdam; 0 takes the default of the method of that name."""
    tau: NonNegative = 0.0
    """τ, adaptivity of FedAdagrad and FedAdam; 0 takes the default of the method of that name."""
    timing: bool = False
    """Whether to time the propagation of FedAvg (intra-edges only) and of Central (the whole graph) too."""

    def breaks_privacy(self) -> str:
        if self.lnnc:
            constant = self.convolution == "gbp" and self.exponent == 1
            return "exponent=1 sends unweighted sums, a single neighbour's features as they are" * constant
        return (
            "without LNNC clients can solve for the features of a node whose neighbours are all theirs "
            "(Theorem 2)"
        )

    def kind(self, backbone: str) -> str:
        """The convolution that is used, given the setting's backbone."""
        return backbone if self.convolution == "backbone" else self.convolution

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
