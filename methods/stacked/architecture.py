"""The network that a protocol fixes for every method: the one place of its defaults, choices and limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedsub.datasets.errors import UserError, check_at_least, check_choice
from fedsub.datasets.limits import Count, Share, ShareBelowOne, Size, check_limits
from fedsub.datasets.ranges import tunable

if TYPE_CHECKING:
    from torch import Tensor

NETWORKS = ("gcn", "sgc", "graphsage", "mlp", "gat", "gprgnn")
OWN = "own"
"""In a list of networks: any of a user's own."""
HEADS = ("linear", "convolution", "bare")
OUTPUTS = ("logits", "probabilities")
NORMS = ("none", "layer")
_HIDDEN = tuple((width,) * layers for layers in (2, 3, 4) for width in (64, 128))
"""Widths over which networks are tuned: 256 costs three times 128, and was not chosen with more than two
layers (Cora and Chameleon filtered, METIS, six methods)."""


@dataclass(frozen=True)
class Architecture:
    """The network of a protocol."""

    backbone: str = "gcn"
    """gcn, sgc, graphsage, mlp, gat, gprgnn, or a file with a network of one's own."""
    hidden: tuple[int, ...] = tunable((128, 128), choices=_HIDDEN)
    """Widths of the hidden layers, as many as the list is long; sgc has none."""
    head: str = "linear"
    """`linear`: every hidden layer convolves and a linear classifier follows; `convolution`: the
    classifier is itself a convolution; `bare`: linear, but the last hidden layer goes to it without ReLU
    and dropout, as in FedStruct's public code."""
    dropout: ShareBelowOne = tunable(0.5, linear=(0, 0.8))
    """Applied after every hidden layer."""
    input_norm: bool = False
    """Layer normalisation of the input, with a learned gain and bias."""
    hops: Size = 2
    """Propagations of sgc."""
    outputs: str = "logits"
    """`probabilities`: a softmax follows a method's logits, and the cross-entropy applies its own to what
    that gives, as in FedStruct's public code."""
    norm: str = tunable("none", choices=NORMS)
    """`layer`: layer normalisation of every hidden layer before its ReLU, with a learned gain and shift."""
    residual: bool = tunable(False, choices=(False, True))
    """Whether hidden layers of gcn and gat add a linear map of their input; graphsage and mlp have one
    anyway."""
    heads: Count = 8
    """Attention heads of gat's hidden layers; they share a layer's width."""
    gpr_hops: Size = 10
    """Propagations of gprgnn."""
    gpr_alpha: Share = 0.1
    """α from which gprgnn's weights of propagations start, α (1 − α)^k."""
    gpr_dropout: bool = False
    """Whether gprgnn also drops entries of its input and of what it propagates, as in its authors' code."""

    def __post_init__(self) -> None:
        """Raises UserError for a head that does not exist and for a number that cannot be."""
        check_limits("", self)
        check_choice("head", self.head, HEADS)
        check_choice("outputs", self.outputs, OUTPUTS)
        check_choice("norm", self.norm, NORMS)
        for width in self.hidden:
            check_at_least("every width in hidden", width, 1)

    def perceptron(self, hidden: str, kind: str = "mlp") -> Architecture:
        """A network of a method's own on the same dropout, with its widths as options write them (`128+64`)
        and its input layer-normalised."""
        return replace(self, backbone=kind, hidden=layer_widths(hidden), head="linear", input_norm=True)

    def outputs_of(self, logits: Tensor) -> Tensor:
        """What is trained on and scored, (n, C): the logits, or their softmax."""
        return logits.softmax(dim=1) if self.outputs == "probabilities" else logits


def runs_with(listed: Collection[str], backbone: str) -> bool:
    """Whether a list of networks has this one."""
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
