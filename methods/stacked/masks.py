"""Masks on weights, as parameters that clients train with them and keep (FED-PUB, FedAux)."""

from __future__ import annotations

import torch

from fedsub.methods.stacked.parameters import Parameters, Weights, prefixed, unprefixed

PREFIX = "mask"
"""First part of the masks' names: `mask.<weight>`."""


def with_masks(parameters: Weights) -> Parameters:
    """The parameters, and masks of ones, `mask.<name>`, of the weight matrices (K, in, out); biases and gains
    have none."""
    ones = {name: torch.ones_like(value) for name, value in parameters.items() if value.dim() == 3}
    return {**parameters, **prefixed(PREFIX, {name: mask.requires_grad_() for name, mask in ones.items()})}


def apply_masks(parameters: Weights, masks: Weights | None = None) -> Parameters:
    """w ⊙ μ for every parameter with a mask (by the parameter's name), the others as they are.

    `masks` None: those among the parameters.
    """
    masks = unprefixed(PREFIX, parameters) if masks is None else masks
    return {
        name: value * masks[name] if name in masks else value
        for name, value in parameters.items()
        if not name.startswith(f"{PREFIX}.")
    }
