"""Bias, ReLU and dropout of every channel, and the sum over channels, in one pass each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.stacked import kernels
from methods.stacked.activation import Dropout
from methods.stacked.segments import Segments


@kernels.compile_pass
def activated_sum(
    h: np.ndarray,
    bias: np.ndarray,
    client: np.ndarray,
    mask: np.ndarray,
    scale: np.float32,
    passed: np.ndarray,
    out: np.ndarray,
) -> None:
    """out = Σ_t relu(h_t + bias_t[client]) · mask_t · scale; h, mask (n, T·width), bias (K, T·width),
    out (n, width). A mask of (0, 0) keeps everything. Writes to `passed` where an entry is in the sum."""
    width, every = out.shape[1], mask.shape[0] == 0
    for row in range(h.shape[0]):
        offset, total = bias[client[row]], out[row]
        total[:] = 0
        for first in range(0, h.shape[1], width):
            entry, shift = h[row, first : first + width], offset[first : first + width]
            inside = passed[row, first : first + width]
            if every:
                for column in range(width):
                    value = max(entry[column] + shift[column], np.float32(0))
                    inside[column] = value > 0
                    total[column] += scale * value
            else:
                kept = mask[row, first : first + width]
                for column in range(width):
                    value = max(entry[column] + shift[column], np.float32(0)) * np.float32(kept[column])
                    inside[column] = value > 0
                    total[column] += scale * value


@kernels.compile_pass
def activated_sum_backward(
    gradient: np.ndarray,
    passed: np.ndarray,
    client: np.ndarray,
    scale: np.float32,
    to_h: np.ndarray,
    to_bias: np.ndarray,
) -> None:
    """to_h = scale · gradient where an entry is in the sum, else 0; to_bias its sum over a client's rows."""
    width = gradient.shape[1]
    to_bias[:] = 0
    for row in range(gradient.shape[0]):
        slope, total = gradient[row], to_bias[client[row]]
        for first in range(0, passed.shape[1], width):
            for column in range(width):
                value = scale * slope[column] * np.float32(passed[row, first + column])
                to_h[row, first + column] = value
                total[first + column] += value


class _ActivatedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, bias: Tensor, segments: Segments, mask: Tensor, scale: float, width: int
    ) -> Tensor:
        h, bias = h.contiguous(), bias.contiguous()
        passed = torch.empty(h.shape, dtype=torch.uint8)
        out = h.new_empty(len(h), width)
        activated_sum(
            h.detach().numpy(),
            bias.detach().numpy(),
            segments.client_array,
            mask.view(torch.uint8).numpy(),
            np.float32(scale),
            passed.numpy(),
            out.numpy(),
        )
        ctx.segments, ctx.scale = segments, scale
        ctx.save_for_backward(passed)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        (passed,) = ctx.saved_tensors
        segments: Segments = ctx.segments
        to_h = gradient.new_empty(passed.shape)
        to_bias = gradient.new_empty(segments.clients, passed.shape[1])
        activated_sum_backward(
            gradient.contiguous().numpy(),
            passed.numpy(),
            segments.client_array,
            np.float32(ctx.scale),
            to_h.numpy(),
            to_bias.numpy(),
        )
        return to_h, to_bias, None, None, None, None


def sum_of_activated(h: Tensor, bias: Tensor, segments: Segments, dropout: Dropout | None) -> Tensor:
    """Σ_t dropout(relu(h_t + b_t)); `h` (n, T·width), `bias` (K, T, width) → (n, width).

    Masks are those of T·n rows of `width`, node after node; `dropout` None evaluates.
    """
    channels, width = bias.shape[1:]
    mask, scale = torch.ones(0, 0, dtype=torch.bool), 1.0
    if dropout is not None and dropout.threshold > 0:
        mask, scale = dropout.mask((channels * len(h), width)).view(h.shape), dropout.scale
    if kernels.compiled(h):
        return _ActivatedSum.apply(h, bias.flatten(1), segments, mask, scale, width)
    out = (h + bias.flatten(1).index_select(0, segments.client)).relu()
    if mask.numel():
        out = out * mask * scale
    return out.view(-1, channels, width).sum(dim=1)
