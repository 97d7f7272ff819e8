"""The network that a protocol fixes for every method; its defaults, choices and limits are set only here."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.limits import Count, Share, ShareBelowOne, Size, check_limit, check_limits, tunable

if TYPE_CHECKING:
    from torch import Tensor

NETWORKS = ("gcn", "sgc", "graphsage", "mlp", "gat", "gprgnn")
OWN = "own"
"""Stands for any user's network in a list of networks."""
HEADS = ("linear", "convolution", "bare")
OUTPUTS = ("logits", "probabilities")
NORMS = ("none", "layer")
_HIDDEN = tuple((width,) * layers for layers in (2, 3, 4) for width in (64, 128))
"""Hidden widths among which networks are tuned. 256 is left out: it costs three times as much as 128, and was
not chosen with more than two layers (Cora and Chameleon filtered, METIS, six methods)."""


@dataclass(frozen=True)
class Architecture:
    """The network of a protocol."""

    backbone: str = "gcn"
    """The network: gcn, sgc, graphsage, mlp, gat, gprgnn, or a file with a user's network."""
    hidden: tuple[int, ...] = tunable((128, 128), choices=_HIDDEN)
    """Width of each hidden layer; sgc has no hidden layers."""
    head: str = "linear"
    """Classifier after the convolving hidden layers. `linear`: a linear layer; `convolution`: a convolution;
    `bare`: linear, on the last hidden layer without its ReLU and dropout, as in FedStruct's public code."""
    dropout: ShareBelowOne = tunable(0.5, linear=(0, 0.8))
    """Dropout probability after every hidden layer."""
    input_norm: bool = False
    """Whether the input is layer-normalised, with a learned gain and bias."""
    hops: Size = 2
    """Number of propagation steps of sgc."""
    outputs: str = "logits"
    """Outputs of the network. `logits`, or `probabilities`: a softmax follows the logits, and the
    cross-entropy applies its own softmax to the result, as in FedStruct's public code."""
    norm: str = tunable("none", choices=NORMS)
    """Normalisation of hidden layers: `none`, or `layer`: layer normalisation before the ReLU, with learned
    gain and shift."""
    residual: bool = tunable(False, choices=(False, True))
    """Whether hidden layers of gcn and gat add a linear map of their input; graphsage and mlp always do."""
    heads: Count = 8
    """Number of attention heads in gat's hidden layers; the heads share a layer's width."""
    gpr_hops: Size = 10
    """Number of propagation steps of gprgnn."""
    gpr_alpha: Share = 0.1
    """α of gprgnn's initial propagation weights, α (1 − α)^k."""
    gpr_dropout: bool = False
    """Whether gprgnn also applies dropout to its input and before propagation, as in its authors' code."""

    def __post_init__(self) -> None:
        """Raise UserError for an unknown `head`, `outputs` or `norm`, and for a number out of range."""
        check_limits("", self)
        check_choice("head", self.head, HEADS)
        check_choice("outputs", self.outputs, OUTPUTS)
        check_choice("norm", self.norm, NORMS)
        for width in self.hidden:
            check_limit("every width in hidden", width, Count)

    def perceptron(self, hidden: str, kind: str = "mlp") -> "Architecture":
        """A method's own network: the same dropout, `hidden` such as `128+64`, a layer-normalised input."""
        return replace(self, backbone=kind, hidden=layer_widths(hidden), head="linear", input_norm=True)

    def outputs_of(self, logits: "Tensor") -> "Tensor":
        """Outputs for training and scoring, (n, C): the logits, or their softmax."""
        return logits.softmax(dim=1) if self.outputs == "probabilities" else logits


def runs_with(listed: Collection[str], backbone: str) -> bool:
    """Whether a list of networks includes this one."""
    return backbone in listed or (OWN in listed and backbone not in NETWORKS)


def layer_widths(text: str) -> tuple[int, ...]:
    """`128+64` → (128, 64). Raises UserError for anything else."""
    try:
        widths = tuple(int(part) for part in text.split("+"))
    except ValueError:
        widths = ()
    if not widths or min(widths) < 1:
        raise UserError(f"cannot read the hidden layers {text!r}: write widths joined by +, such as 128+64")
    return widths
