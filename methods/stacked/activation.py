"""Bias, ReLU and dropout of all clients, in one pass forward and one backward."""

import math
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments


class Dropout:
    """Draws dropout masks from numpy's SFC64, many times faster than Bernoulli sampling.

    For p = 1/2 one random bit decides each entry, otherwise sixteen bits do. The scale uses p rounded to
    sixteen bits, so the expectation is exact.
    """

    state = ("source",)
    training = True
    """Whether outputs with this dropout are used for training; False if they are scored."""
    among_rows: tuple[Tensor, int] | None = None
    """The rows, (r,), for which masks are made, and the number of all rows; None: all rows."""

    def __init__(self, probability: float, seed: int, device: torch.device | str = "cpu") -> None:
        if not 0 <= probability < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {probability}")
        # At least one of 2^16 entries is kept, because no scale can make up for losing all.
        self.threshold = min(round(probability * 2**16), 2**16 - 1)
        self.scale = 1 / (1 - self.threshold / 2**16)
        self.source = np.random.SFC64(seed)
        self.device = device

    def scoring(self) -> "Dropout":
        """Copy with the same random source, for outputs that are scored."""
        other = copy(self)
        other.training = False
        return other

    def among(self, rows: Tensor, count: int) -> "Dropout":
        """Copy with the same random source that returns the masks' part for `rows`, (r,), of `count`."""
        other = copy(self)
        other.among_rows = rows, count
        return other

    def mask(self, shape: tuple[int, ...]) -> Tensor:
        """Draw a mask of `shape`, bool, True for kept entries."""
        rows, drawn = self.among_rows or (None, shape[0])
        count = drawn * math.prod(shape[1:])
        if self.threshold == 2**15:
            words = np.asarray(self.source.random_raw(-(-count // 64)))
            kept = np.unpackbits(words.view(np.uint8), count=count).view(np.bool_)
        else:
            words = np.asarray(self.source.random_raw(-(-count // 4)))
            kept = words.view(np.uint16)[:count] >= self.threshold
        mask = torch.from_numpy(kept).view(drawn, *shape[1:]).to(self.device)
        return mask if rows is None else mask.index_select(0, rows)

    def __call__(self, h: Tensor) -> Tensor:
        """Inverted dropout: zero an entry with probability p, divide the others by 1 − p."""
        if self.threshold == 0:
            return h
        factor = self.mask(tuple(h.shape)) * self.scale
        # Constant features are the largest of tensors, and no gradient needs the factor again.
        return h * factor if h.requires_grad else factor.mul_(h)


def trains(dropout: Dropout | None) -> bool:
    """Whether outputs with this dropout are used for training."""
    return dropout is not None and dropout.training


class _Activate(torch.autograd.Function):
    """dropout(relu(h + bias[client])), summed over parts of its rows. An entry is positive only if it passed
    both, so the entries are their own mask in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, bias: Tensor, segments: Segments, mask: Tensor | None, scale: float, parts: int
    ) -> Tensor:
        ctx.segments, ctx.scale, ctx.parts = segments, scale, parts
        if kernels.compiled(h):
            h = h.contiguous()
            out = torch.empty_like(h)
            kept = torch.empty(0, 0, dtype=torch.uint8) if mask is None else mask.view(torch.uint8)
            arrays = h.detach().numpy(), bias.detach().contiguous().numpy(), segments.client_array
            kernels.activate_forward(*arrays, kept.numpy(), np.float32(scale), out.numpy())
        else:
            out = (h + bias.index_select(0, segments.client)).clamp_(min=0)
            out = out if mask is None else out.mul_(mask).mul_(scale)
        ctx.save_for_backward(out)
        return out if parts == 1 else out.view(parts, -1, out.shape[1]).sum(dim=0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        (out,) = ctx.saved_tensors
        segments: Segments = ctx.segments
        if kernels.compiled(gradient):
            to_h, to_bias = torch.empty_like(out), gradient.new_empty(segments.clients, gradient.shape[1])
            arrays = gradient.contiguous().numpy(), out.numpy(), segments.client_array
            kernels.activate_backward(*arrays, np.float32(ctx.scale), to_h.numpy(), to_bias.numpy())
            return to_h, to_bias, None, None, None, None
        to_h = ((out > 0).view(ctx.parts, *gradient.shape) * gradient).view_as(out).mul_(ctx.scale)
        return to_h, kernels.sparse_product(segments.members, to_h), None, None, None, None


def activate(h: Tensor, bias: Tensor, segments: Segments, dropout: Dropout | None, parts: int = 1) -> Tensor:
    """dropout(relu(h + bias)), `h` (n, width), `bias` (K, width); `dropout` is None in evaluation. Returns
    the sum over `parts` equally long parts of the rows, (n / parts, width)."""
    if dropout is None or dropout.threshold == 0:
        return _Activate.apply(h, bias, segments, None, 1.0, parts)
    return _Activate.apply(h, bias, segments, dropout.mask(tuple(h.shape)), dropout.scale, parts)


def add_bias(h: Tensor, bias: Tensor, segments: Segments) -> Tensor:
    """h + bias of each row's client; (n, width), (K, width) → (n, width)."""
    return h + segments.spread(bias)
