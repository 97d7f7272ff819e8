"""Bias, ReLU and dropout of all clients in one pass each way."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.segments import Segments


class Dropout:
    """Draws dropout masks from numpy's SFC64, many times faster than Bernoulli sampling.

    For p = 1/2 every random bit decides one entry; else sixteen bits do, and the scale is that of
    the share really kept, so the expectation is exact.
    """

    state = ("source",)
    training = True
    """Whether outputs with it are trained on; False where they are scored."""
    among_rows: tuple[Tensor, int] | None = None
    """The rows, (r,) of n, that masks are made for; None: all."""

    def __init__(self, probability: float, seed: int, device: torch.device | str = "cpu") -> None:
        if not 0 <= probability < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {probability}")
        # Of 2^16 at least one is kept: nothing can make up for all that is lost.
        self.threshold = min(round(probability * 2**16), 2**16 - 1)
        self.probability = self.threshold / 2**16
        self.scale = 1 / (1 - self.probability)
        self.source = np.random.SFC64(seed)
        self.device = device

    def scoring(self) -> Dropout:
        """The same, next draws included, for outputs that are scored."""
        other = copy(self)
        other.training = False
        return other

    def among(self, rows: Tensor, count: int) -> Dropout:
        """The same, next draws included, for `rows`, (r,), of `count`: their part of the masks of all."""
        other = copy(self)
        other.among_rows = rows, count
        return other

    def mask(self, shape: tuple[int, ...]) -> Tensor:
        """Kept entries as True; bool of `shape`."""
        if self.among_rows is None:
            return self._draw(shape)
        rows, count = self.among_rows
        return self._draw((count, *shape[1:])).index_select(0, rows)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        count = int(np.prod(shape))
        if self.threshold == 2**15:
            words = np.asarray(self.source.random_raw(-(-count // 64)))
            kept = np.unpackbits(words.view(np.uint8), count=count).view(np.bool_)
        else:
            words = np.asarray(self.source.random_raw(-(-count // 4)))
            kept = words.view(np.uint16)[:count] >= self.threshold
        return torch.from_numpy(kept).view(shape).to(self.device)

    def __call__(self, h: Tensor) -> Tensor:
        """Inverted dropout: zero an entry with probability p, divide the others by 1 − p."""
        if self.threshold == 0:
            return h
        return h * (self.mask(tuple(h.shape)) * self.scale)


def trains(dropout: Dropout | None) -> bool:
    """Whether outputs with this dropout are those of training."""
    return dropout is not None and dropout.training


class _Activate(torch.autograd.Function):
    """dropout(relu(h + bias[client])). An output is positive only where the entry passed both, so it
    is its own mask on the way back."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, bias: Tensor, segments: Segments, mask: Tensor | None, scale: float
    ) -> Tensor:
        ctx.segments, ctx.scale = segments, scale
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
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (out,) = ctx.saved_tensors
        segments: Segments = ctx.segments
        if kernels.compiled(gradient):
            to_h = torch.empty_like(out)
            to_bias = gradient.new_empty(segments.clients, gradient.shape[1])
            kernels.activate_backward(
                gradient.contiguous().numpy(),
                out.numpy(),
                segments.client_array,
                np.float32(ctx.scale),
                to_h.numpy(),
                to_bias.numpy(),
            )
            return to_h, to_bias, None, None, None
        to_h = ((out > 0) * gradient).mul_(ctx.scale)
        return to_h, kernels.sparse_product(segments.members, to_h), None, None, None


def activate(h: Tensor, bias: Tensor, segments: Segments, dropout: Dropout | None) -> Tensor:
    """dropout(relu(h + bias)), `h` (n, width), `bias` (K, width); `dropout` None evaluates."""
    if dropout is None or dropout.threshold == 0:
        return _Activate.apply(h, bias, segments, None, 1.0)
    return _Activate.apply(h, bias, segments, dropout.mask(tuple(h.shape)), dropout.scale)


def add_bias(h: Tensor, bias: Tensor, segments: Segments) -> Tensor:
    """h + bias of each row's client; (n, width), (K, width) → (n, width)."""
    return h + segments.spread(bias)
