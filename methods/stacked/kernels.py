"""numba kernels that make one pass over memory where torch makes several.

Each was measurably faster than torch's own operations when it was added (`tests/performance/test_kernels.py`
times the products). Beside each call is its torch counterpart for CUDA; tests check that both agree.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy import ndarray
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedsub.methods.compiled import compile_pass, sum_rows

NARROW = 64
"""Width from which numba's CSR product replaces MKL's: even without a width known to the compiler it was 1.4
to 1.6 times as fast at 64, 1.5 to 1.9 times at 128 (clients of Cora, Amazon-Photo and Coauthor-CS;
`tests/performance/test_kernels.py` has Cora's)."""

_64, _128 = np.uint64(64), np.uint64(128)
"""The usual widths of hidden layers."""
_ALL = np.empty(0, np.int64)


def compiled(h: Tensor) -> bool:
    """Whether these kernels support this tensor: float32 on the CPU."""
    return h.device.type == "cpu" and h.dtype is torch.float32


@compile_pass
def activate_forward(
    h: ndarray, bias: ndarray, client: ndarray, mask: ndarray, scale: np.float32, out: ndarray
) -> None:
    """out = relu(h + bias[client]) · mask · scale; h and out (n, width); the mask (n, width) of 0 and 1, or
    (0, 0) for none."""
    width, masked = h.shape[1], len(mask) > 0
    for row in range(h.shape[0]):
        offset = bias[client[row]]
        for column in range(width):
            value = max(h[row, column] + offset[column], np.float32(0))
            out[row, column] = value * (scale * np.float32(mask[row, column])) if masked else value


@compile_pass
def activate_backward(
    gradient: ndarray, out: ndarray, client: ndarray, scale: np.float32, to_h: ndarray, to_bias: ndarray
) -> None:
    """to_h = scale · gradient where out > 0, else 0; to_bias (K, width) its sum over each client's rows. A
    gradient of fewer rows is that of each part of out."""
    rows, width = gradient.shape
    to_bias[:] = 0
    for row in range(out.shape[0]):
        total, slope = to_bias[client[row]], gradient[row % rows]
        for column in range(width):
            value = scale * slope[column] if out[row, column] > 0 else np.float32(0)
            to_h[row, column] = value
            total[column] += value


@compile_pass
def product_into_rows(
    rows: ndarray, pointer: ndarray, column: ndarray, value: ndarray, h: ndarray, out: ndarray
) -> None:
    """out[rows] = the CSR matrix (r, n) times h (n, width); other rows of out stay as they are. `rows` is
    (r,), or (0,) for all rows."""
    flat, width = h.ravel(), np.uint64(h.shape[1])
    for index in range(len(pointer) - 1):
        start, end = pointer[index], pointer[index + 1]
        target = out[rows[index] if len(rows) else index]
        if width == _128:
            sum_rows(start, end, column, value, flat, target, _128)
        elif width == _64:
            sum_rows(start, end, column, value, flat, target, _64)
        else:
            sum_rows(start, end, column, value, flat, target, width)


def sparse_product(matrix: Tensor, h: Tensor) -> Tensor:
    """A CSR matrix (rows, n) times a dense (n, width), on the CPU and on CUDA."""
    out = h.new_empty(matrix.shape[0], h.shape[1])
    if h.shape[1] < NARROW or not (compiled(h) and matrix.dtype is torch.float32):
        # `addmm_` with beta 0 into fresh memory: `torch.mm` of a CSR matrix fills its result with zeros
        # and copies it twice besides, which costs more than the product (results/performance.md).
        return out.addmm_(matrix, h, beta=0)
    pointer, column, value = matrix.crow_indices(), matrix.col_indices(), matrix.values().detach()
    h = h.detach().contiguous()
    product_into_rows(_ALL, pointer.numpy(), column.numpy(), value.numpy(), h.numpy(), out.numpy())
    return out


@compile_pass
def narrow_product(h: ndarray, weight: ndarray, client: ndarray, out: ndarray) -> None:
    """out[i] = weight[client[i]] h[i]; h (n, in), weight (K, out, in), out (n, out) with few columns."""
    width = h.shape[1]
    for row in range(h.shape[0]):
        source, own = h[row], weight[client[row]]
        for column in range(own.shape[0]):
            factors = own[column]
            total = np.float32(0)
            for position in range(width):
                total += source[position] * factors[position]
            out[row, column] = total


@compile_pass
def narrow_product_backward(
    gradient: ndarray, h: ndarray, weight: ndarray, client: ndarray, to_h: ndarray, to_weight: ndarray
) -> None:
    """The gradients of `narrow_product`, shaped like h and weight.

    Rows with zero gradient are skipped: in a classifier, all rows except those of training nodes.
    """
    width, columns = h.shape[1], gradient.shape[1]
    to_weight[:] = 0
    for row in range(h.shape[0]):
        target, source = to_h[row], h[row]
        own, to_own = weight[client[row]], to_weight[client[row]]
        for position in range(width):
            target[position] = 0
        for column in range(columns):
            slope = gradient[row, column]
            if slope == 0:
                continue
            factors, to_factors = own[column], to_own[column]
            for position in range(width):
                target[position] += slope * factors[position]
                to_factors[position] += slope * source[position]


@compile_pass
def _cross_entropy(
    output: ndarray, row: ndarray, label: ndarray, weight: ndarray, gradient: ndarray
) -> float:
    """Σ_i weight[i] · cross-entropy of output[row[i]] (n, C) against label[i].

    Its gradient is added to `gradient`, (n, C), or (0, 0) if none is wanted.
    """
    classes = output.shape[1]
    total = 0.0
    for index in range(row.shape[0]):
        scores = output[row[index]]
        highest = scores.max()
        mass = np.float32(0)
        for column in range(classes):
            mass += np.exp(scores[column] - highest)
        total += weight[index] * (np.log(mass) + highest - scores[label[index]])
        if gradient.shape[0] == 0:
            continue
        slope = gradient[row[index]]
        for column in range(classes):
            slope[column] += weight[index] * np.exp(scores[column] - highest) / mass
        slope[label[index]] -= weight[index]
    return total


def cross_entropy(output: Tensor, rows: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Σ_i weight[i] · cross-entropy of output[rows[i]] against labels[i]; output (n, C), the others (m,)."""
    if compiled(output):
        return _CrossEntropy.apply(output, rows, labels, weight)
    return torch.dot(functional.cross_entropy(output[rows], labels, reduction="none"), weight)


class _CrossEntropy(torch.autograd.Function):
    """The loss and its gradient in one pass."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, rows: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        gradient = torch.zeros_like(output) if wanted else output.new_empty(0, 0)
        scores = output.detach().contiguous()
        total = _cross_entropy(scores.numpy(), rows.numpy(), labels.numpy(), weight.numpy(), gradient.numpy())
        if wanted:
            ctx.save_for_backward(gradient)
        return output.new_tensor(total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream, None, None, None


@compile_pass
def count_classes(
    output: ndarray, row: ndarray, label: ndarray, client: ndarray, right: ndarray, either: ndarray
) -> None:
    """Count items by client and class, (K, C): `right`, those whose highest entry of output[row] (n, C) is at
    their label; `either`, those of the class plus those predicted as it; row, label, client (m,)."""
    for index in range(row.shape[0]):
        scores, own = output[row[index]], client[index]
        best = 0
        for column in range(1, scores.shape[0]):
            if scores[column] > scores[best]:
                best = column
        either[own, best] += 1
        either[own, label[index]] += 1
        if best == label[index]:
            right[own, best] += 1
