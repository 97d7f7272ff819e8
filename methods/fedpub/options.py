"""Options of FED-PUB."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import NonNegative, tunable
from fedsub.methods.core.base import Options


@dataclass(frozen=True)
class FedPubOptions(Options):
    masks: bool = True
    """Whether weights are masked."""
    similarity: Literal["function", "parameter", "gradient", "label", "none"] = "function"
    """Similarity of clients: of functional embeddings, weights, weight changes in the round, or class
    distributions; `none` averages as FedAvg does. As in Table 10, the class distributions use all labels,
    validation and test included: an oracle, and marked as one."""
    proxy: Literal["sbm", "er", "one", "feature"] = "sbm"
    """Input of the functional embeddings: a stochastic block model, an Erdős–Rényi graph, one node,
    or every client's own graph and features."""
    community: Literal["implicit", "explicit"] = "implicit"
    """Clients that are averaged: all (`implicit`), or those with a similarity above 0.5 (`explicit`)."""
    regularizer: Literal["reference", "printed"] = tunable("reference", choices=("reference", "printed"))
    """Regularisers: as `printed` in eq. (4), or without gradient as in the authors' code (`reference`)."""
    tau: NonNegative = tunable(3.0, log=(1, 10))
    """τ, scale of the similarities in the softmax. The paper uses 3 if clients do not overlap and 5 if they
    do; for the latter write `fedpub[tau=5]`, as the protocol `fedpub-1` does."""
    lambda1: NonNegative = tunable(0.001, log=(1e-4, 0.01))
    """λ₁, weight of the masks' L1 norm, and the size below which a mask entry counts as zero."""
    lambda2: NonNegative = 0.001
    """λ₂, weight of the squared distance to the received weights."""
    keep_similarity: str = ""
    """Rounds, joined by + as in `5+30`, whose similarities S are recorded, with the label similarities and
    the edges missing between clients (Figure 6)."""
    classifier: Literal["reference", "linear"] = "reference"
    """Initial values of a linear classifier with masks: `reference`, Glorot's for weight and bias, as in the
    authors' code; `linear`, the backbone's own, since the paper does not mention any."""

    def __post_init__(self) -> None:
        """Raises UserError for rounds that cannot be read."""
        super().__post_init__()
        kept = self.keep_similarity
        if kept and not all(part.isdecimal() for part in kept.split("+")):
            raise UserError(f"cannot read keep_similarity={kept}: write rounds joined by +, such as 5+30")

    def breaks_privacy(self) -> str:
        if self.similarity == "label":
            return "the server sees every client's class distribution, labels of test nodes included"
        return ""

    def simulation_only(self) -> str:
        return "the server compares labels of all clients" if self.similarity == "label" else ""

    def unused(self, backbone: str) -> Mapping[str, str]:
        idle = {}
        if self.regularizer != "printed":
            idle["lambda2"] = "regularizer=printed"
        if not self.masks:
            idle |= dict.fromkeys(("lambda1", "classifier"), "masks=true")
        if self.similarity == "none":
            idle |= dict.fromkeys(("tau", "community"), "a similarity")
        if self.similarity != "function":
            idle["proxy"] = "similarity=function"
        return idle
