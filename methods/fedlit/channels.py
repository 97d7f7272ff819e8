"""Product, bias, ReLU and dropout of every channel, and the sum over channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.compiled.passes import compile_pass
from fedsub.methods.fedlit.layers import Layer
from fedsub.methods.stacked import kernels
from fedsub.methods.stacked.activation import Dropout, add_bias
from fedsub.methods.stacked.parameters import Weights
from fedsub.methods.stacked.segments import Segments, large_product, segment_product

LARGE = 3e6
"""From this many floating-point operations of a client's channel on, channels are taken one after another:
what one pass wrote is in the processor's cache when the next reads it. With their gradient 40 channels of 640
rows of 64 by 64, 5e6 each, then take half the time, of 320 rows as much, of 80 rows twice the time."""


@compile_pass
def add_activated(
    h: np.ndarray,
    bias: np.ndarray,
    mask: np.ndarray,
    drawn: np.ndarray,
    scale: np.float32,
    passed: np.ndarray,
    out: np.ndarray,
) -> None:
    """out += relu(h + bias) · mask · scale, of one channel of a client; h, out (r, width), bias (width,).

    The mask of h[i] is mask[drawn[i]]; one of (0, 0) keeps everything. Writes to `passed`, (r, width), where
    an entry is in the sum.
    """
    width, every = h.shape[1], mask.shape[0] == 0
    for row in range(h.shape[0]):
        entry, inside, total = h[row], passed[row], out[row]
        if every:
            for column in range(width):
                value = max(entry[column] + bias[column], np.float32(0))
                inside[column] = value > 0
                total[column] += scale * value
        else:
            kept = mask[drawn[row]]
            for column in range(width):
                value = max(entry[column] + bias[column], np.float32(0)) * np.float32(kept[column])
                inside[column] = value > 0
                total[column] += scale * value


@compile_pass
def add_activated_backward(
    gradient: np.ndarray, passed: np.ndarray, scale: np.float32, to_h: np.ndarray, to_bias: np.ndarray
) -> None:
    """to_h = scale · gradient where an entry is in the sum, else 0; to_bias (width,) its sum over rows."""
    to_bias[:] = 0
    for row in range(gradient.shape[0]):
        slope, inside, target = gradient[row], passed[row], to_h[row]
        for column in range(slope.shape[0]):
            value = scale * slope[column] * np.float32(inside[column])
            target[column] = value
            to_bias[column] += value


@compile_pass
def activated_sum(
    h: np.ndarray,
    bias: np.ndarray,
    sizes: np.ndarray,
    mask: np.ndarray,
    drawn: np.ndarray,
    scale: np.float32,
    passed: np.ndarray,
    out: np.ndarray,
) -> None:
    """`add_activated` of all channels to 0; h, passed (T·r, width) by client, channel and node, bias
    (K, T, width), sizes (K,), out (r, width)."""
    out[:] = 0
    row = cell = 0
    for client in range(bias.shape[0]):
        size = sizes[client]
        for channel in range(bias.shape[1]):
            end = cell + size
            add_activated(
                h[cell:end],
                bias[client, channel],
                mask,
                drawn[cell:end],
                scale,
                passed[cell:end],
                out[row : row + size],
            )
            cell = end
        row += size


@compile_pass
def activated_sum_backward(
    gradient: np.ndarray,
    passed: np.ndarray,
    sizes: np.ndarray,
    scale: np.float32,
    to_h: np.ndarray,
    to_bias: np.ndarray,
) -> None:
    """`add_activated_backward` of all channels; shapes as in `activated_sum`."""
    row = cell = 0
    for client in range(to_bias.shape[0]):
        size = sizes[client]
        for channel in range(to_bias.shape[1]):
            end = cell + size
            own = to_bias[client, channel]
            add_activated_backward(gradient[row : row + size], passed[cell:end], scale, to_h[cell:end], own)
            cell = end
        row += size


class _ActivatedSum(torch.autograd.Function):
    """Σ_t relu(h_t + b_t) · mask_t · scale in one pass each way."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, bias: Tensor, layer: Layer, mask: Tensor, scale: float) -> Tensor:
        h, bias = h.contiguous(), bias.contiguous()
        passed = torch.empty(h.shape, dtype=torch.uint8)
        out = h.new_empty(layer.segments.rows, h.shape[1])
        activated_sum(
            h.detach().numpy(),
            bias.detach().numpy(),
            layer.segments.sizes.numpy(),
            mask.view(torch.uint8).numpy(),
            layer.drawn.numpy(),
            np.float32(scale),
            passed.numpy(),
            out.numpy(),
        )
        ctx.sizes, ctx.scale, ctx.channels = layer.segments.sizes, scale, bias.shape[:2]
        ctx.save_for_backward(passed)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (passed,) = ctx.saved_tensors
        to_h = gradient.new_empty(passed.shape)
        to_bias = gradient.new_empty(*ctx.channels, passed.shape[1])
        activated_sum_backward(
            gradient.contiguous().numpy(),
            passed.numpy(),
            ctx.sizes.numpy(),
            np.float32(ctx.scale),
            to_h.numpy(),
            to_bias.numpy(),
        )
        return to_h, to_bias, None, None, None


class _ChannelSum(torch.autograd.Function):
    """The same with h_t = read_t W_t, channel after channel of each client."""

    @staticmethod
    def forward(
        ctx: Any, read: Tensor, weight: Tensor, bias: Tensor, layer: Layer, mask: Tensor, scale: float
    ) -> Tensor:
        factor, drawn, kept = np.float32(scale), layer.drawn.numpy(), mask.view(torch.uint8).numpy()
        passed = np.empty((len(read), weight.shape[3]), dtype=np.uint8)
        out = read.new_zeros(layer.segments.rows, weight.shape[3])
        sums = out.numpy()
        for (cells, rows), own, matrix, shift in zip(
            *_by_run(layer, read, weight), bias.detach().contiguous().flatten(0, 1).numpy(), strict=True
        ):
            h = large_product(own, matrix).numpy()
            add_activated(h, shift, kept, drawn[cells], factor, passed[cells], sums[rows])
        ctx.layer, ctx.scale, ctx.passed = layer, factor, passed
        ctx.save_for_backward(read, weight)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        read, weight = ctx.saved_tensors
        slopes, to_read, to_weight = gradient.contiguous().numpy(), [], []
        to_bias = read.new_empty(*weight.shape[:2], weight.shape[3])
        for (cells, rows), own, matrix, to_shift in zip(
            *_by_run(ctx.layer, read, weight), to_bias.flatten(0, 1).numpy(), strict=True
        ):
            to_h = read.new_empty(len(own), weight.shape[3])
            add_activated_backward(slopes[rows], ctx.passed[cells], ctx.scale, to_h.numpy(), to_shift)
            to_weight.append(large_product(own.t(), to_h))
            to_read.append(large_product(to_h, matrix.t()))
        return torch.cat(to_read), torch.stack(to_weight).view_as(weight), to_bias, None, None, None


def _by_run(
    layer: Layer, read: Tensor, weight: Tensor
) -> tuple[list[tuple[slice, slice]], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Of each channel of a client its cells and rows, what its cells read, and its matrix."""
    return layer.runs, read.split(layer.channels.sizes.tolist()), weight.flatten(0, 1).unbind()


def channel_sum(read: Tensor, weight: Tensor, bias: Tensor, layer: Layer, dropout: Dropout | None) -> Tensor:
    """Σ_t dropout(relu(read_t W_t + b_t)), (r, width).

    `read` (T·r, in) has one row a cell; `weight` (K, T, in, width), `bias` (K, T, width). Masks are drawn for
    the cells of all nodes, so that which are needed changes no draw; `dropout` None evaluates.
    """
    inner, width = weight.shape[2:]
    mask, scale = torch.ones(0, 0, dtype=torch.bool), 1.0
    if dropout is not None and dropout.threshold > 0:
        mask, scale = dropout.mask((layer.types * layer.nodes, width)), dropout.scale
    channels = layer.channels
    if kernels.compiled(read) and 2 * channels.rows * inner * width >= LARGE * channels.clients:
        return _ChannelSum.apply(read, weight, bias, layer, mask, scale)
    h = segment_product(read, weight.flatten(0, 1), channels)
    if kernels.compiled(read):
        return _ActivatedSum.apply(h, bias, layer, mask, scale)
    out = (h + bias.flatten(0, 1).index_select(0, channels.client)).relu()
    if mask.numel():
        out = out * mask.index_select(0, layer.drawn) * scale
    return out.index_select(0, layer.by_node).view(-1, layer.types, width).sum(dim=1)


def linear_sum(
    h: Tensor, parameters: Weights, segments: Segments, spread: Callable[[Tensor], Tensor]
) -> Tensor:
    """SGC's (Σ_t Â_t^hops h W_t + b_t) W + b as Σ_t Â_t^hops h (W_t W) + (Σ_t b_t) W + b, (n, C): C columns
    of each channel are propagated, not `width`. `spread` propagates (T·n, C)."""
    head = parameters["head.weight"]
    weight = parameters["channels.0.weight"] @ head.unsqueeze(1)
    types, classes = weight.shape[1], weight.shape[3]
    product = segment_product(h, weight.transpose(1, 2).flatten(2), segments)
    summed = spread(product.view(-1, classes)).view(len(h), types, classes).sum(dim=1)
    bias = (parameters["channels.0.bias"].sum(dim=1, keepdim=True) @ head).squeeze(1)
    return add_bias(summed, bias + parameters["head.bias"], segments)
