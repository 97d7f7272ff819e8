"""FED-PUB's pruning: the parameters that a client keeps, and the bytes that are sent.

With `regularizer=reference` sparsity comes from weight decay: the mask entry of a feature that a client's
nodes do not have only has the gradient 1e-6 μ, which Adam scales up to a step of the learning rate. After 100
steps at 0.01 the masks of absent features are near zero (Cora, ten overlapping clients: 40, 54, 67 and 79 %
of entries are below 0.3, 0.5, 0.7 and 0.9, where Table 5 prints 29, 42, 57 and 75).
"""

import operator

import torch
from torch import Tensor

from fedsub.methods.core.channel import KEPT
from fedsub.methods.stacked.mixing import mix
from fedsub.methods.stacked.parameters import Parameters, Weights, prefixed, unprefixed

PREFIX = "mask"
"""First part of the masks' names: `mask.<weight>`."""


def with_masks(parameters: Weights) -> Parameters:
    """The parameters, and masks of ones, `mask.<name>`, for those that are weight matrices, (K, in, out)."""
    ones = {name: torch.ones_like(value) for name, value in parameters.items() if value.dim() == 3}
    return {**parameters, **prefixed(PREFIX, {name: mask.requires_grad_() for name, mask in ones.items()})}


def apply_masks(parameters: Weights) -> Parameters:
    """w ⊙ μ for every parameter with a mask among the parameters; the others unchanged."""
    masks = unprefixed(PREFIX, parameters)
    return {
        name: value * masks[name] if name in masks else value
        for name, value in parameters.items()
        if not name.startswith(f"{PREFIX}.")
    }


class Pruning:
    """Masks and weights that clients evaluate with and send: mask entries of size below a threshold, λ₁, are
    zero. They are computed again when a parameter has changed."""

    def __init__(self, threshold: float) -> None:
        # hardshrink zeroes a value that equals its threshold.
        self.below = float(torch.nextafter(torch.tensor(float(threshold)), torch.tensor(0.0)))
        self.read: list[Tensor] = []
        """The parameters last read."""
        self.versions: list[int] = []
        self.masks: Parameters = {}
        """Name of a masked parameter → its pruned mask, (K, in, out)."""
        self.weights: Parameters = {}
        """Name of a parameter → (K, …), w ⊙ μ."""

    def kept(self) -> dict[str, Tensor]:
        """Name of a parameter of which some client masks an entry → (K, in, out) bool, the entries kept."""
        return {
            name: mask != 0
            for name, mask in self.masks.items()
            if mask.aminmax().min <= 0 and torch.count_nonzero(mask) < mask.numel()
        }

    def __call__(self, parameters: Weights) -> "Pruning":
        """Read `parameters`, whose masks are named `mask.<weight>`; return this object."""
        now = list(parameters.values())
        versions = [value._version for value in now]
        if versions == self.versions and all(map(operator.is_, now, self.read)):
            return self
        with torch.no_grad():
            masks = {name: mask.detach() for name, mask in unprefixed(PREFIX, parameters).items()}
            # One quick pass finds the masks with nothing below the threshold.
            self.masks = {
                name: mask if mask.aminmax().min > self.below else mask.hardshrink(self.below)
                for name, mask in masks.items()
            }
            self.weights = apply_masks({**parameters, **prefixed(PREFIX, self.masks)})
        self.read, self.versions = now, versions
        return self


def mix_kept(matrix: Tensor, parameters: Weights, kept: Weights) -> Parameters:
    """The server's averages, name → (R, …), and as `kept.<name>` the entries in which they are valid,
    (K, …) bool; `matrix` is (R, K), R = 1 or K.

    An entry's average is over the clients that send it, with weights scaled to sum to one. It is valid at a
    client that keeps the entry, if any sender has positive weight (the client itself may have been absent).
    """
    answer = mix(matrix, {name: value for name, value in parameters.items() if name not in kept})
    for name, sent in kept.items():
        value, share = parameters[name].detach(), sent.to(matrix.dtype)
        total = mix(matrix, {"sum": value * share, "weight": share})
        answer[name] = total["sum"] / total["weight"].clamp(min=torch.finfo(matrix.dtype).tiny)
        answer[KEPT + name] = sent & (total["weight"] > 0)
    return answer
