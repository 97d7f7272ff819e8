"""Options of FedStruct."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Count, Limit, Size, tunable
from fedsub.methods.core.base import Options


@dataclass(frozen=True)
class FedStructOptions(Options):
    """Hyper-parameters of FedStruct; defaults are those of its table 4 for Cora."""

    features: Literal["deg", "gdv", "n2v", "h2v"] = tunable("h2v", choices=("deg", "h2v"))
    """Structure features: one-hot degree, graphlet degrees, node2vec, Hop2Vec."""
    version: Literal["a", "b"] = "a"
    """Who propagates: `a`, a server that knows the graph; `b`, the clients by algorithm 3."""
    network: Literal["decoupled", "graphsage"] = "decoupled"
    """Network: decoupled GCN, or GraphSAGE on both parts (version a only; figure 3)."""
    pruning: Size = 0
    """p of appendix L.2.1, how much of rows or blocks version b keeps (table 7: 30); 0 keeps all of Ā."""
    pruning_of: Literal["blocks", "rows"] = "blocks"
    """Parts that are pruned: `blocks`, every sent B_ijk to its p·n_i largest entries, as printed; `rows`,
    every product row and every stored row to its p largest entries over all columns."""
    private: bool = False
    """Whether clients exchange sums over their own nodes instead of structure features (version b of appendix
    L.1; Hop2Vec needs `transform=none`). Results are the same, traffic differs: `extras` have the bytes that
    eq. (50) needs and those that the paper counts."""
    hops: Count = tunable(2, choices=(1, 2, 4))
    """L, number of propagations of f(X) over the client's own graph."""
    structure_hops: Count = tunable(10, choices=(2, 5, 10, 20))
    """L_s, number of propagations of g(S) over the global graph."""
    structure_width: Count = 256
    """d_s, width of Hop2Vec's, node2vec's and one-hot degree features."""
    feature_hidden: str = "64"
    """Hidden layers of the feature network f, widths joined by +."""
    structure_hidden: str = "256"
    """Hidden layers of the structure network g, widths joined by +."""
    dropout: Annotated[float, Limit("be less than 1", lambda value: value < 1)] = -1.0
    """Dropout of f and g; a negative value takes the protocol's."""
    transform: Literal["mlp", "none"] = "mlp"
    """Network g on Hop2Vec's features; `none` learns one value for each class and node, eq. (23)."""
    self_loops: Literal["all", "to-last-edge"] = "all"
    """Nodes with a self-loop in a client's own Ā⁽ⁱ⁾: all; or, as in the reference code, those up to the
    client's last node with an edge, so that f does not contribute at later nodes."""
    inference: Literal["both", "structure"] = "both"
    """Parts of eq. (20) used for prediction after training: both, or only g's (figure 4, curves named s)."""

    def __post_init__(self) -> None:
        """Raises UserError for combinations that no version or network has."""
        super().__post_init__()
        if self.version == "a" and (self.pruning or self.private):
            raise UserError("pruning and private need FedStruct's version b: add version=b")
        if self.version == "b" and self.network != "decoupled":
            raise UserError("FedStruct's version b needs network=decoupled: leave network=graphsage out")
        if self.transform == "none" and (self.features != "h2v" or self.network != "decoupled"):
            raise UserError("transform=none needs features=h2v and network=decoupled: leave it out")
        if self.private and self.features == "h2v" and self.transform == "mlp":
            raise UserError(
                "private Hop2Vec needs transform=none (appendix L.1): add it, or use features=deg"
            )

    def breaks_privacy(self) -> str:
        if self.version == "a":
            return "version a needs a server that knows every edge"
        if self.features in ("gdv", "n2v"):
            return f"whoever makes {self.features}'s structure features knows every edge"
        return ""

    def unused(self, backbone: str) -> Mapping[str, str]:
        idle = {"backbone": "another method, as this one has its own networks"}
        if self.features == "gdv" or self.transform == "none":
            idle["structure_width"] = "features=deg, n2v or h2v, and transform=mlp"
        if self.transform == "none":
            idle["structure_hidden"] = "transform=mlp"
        if self.network == "graphsage":
            idle |= dict.fromkeys(("hops", "structure_hops", "self_loops"), "network=decoupled")
        if not self.pruning:
            idle["pruning_of"] = "pruning"
        return idle
