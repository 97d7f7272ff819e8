"""numba kernels that make one pass over memory where torch makes several.

Each was measurably faster than torch's own operations when it was added (`tests/performance/test_kernels.py`
times the products). Each has a torch counterpart beside its caller, which runs on CUDA; tests check that both
give the same result.
"""

import numpy as np
import torch
from torch import Tensor

from fedsub.methods.compiled import compile_pass, sum_rows

NARROW = 64
"""Width from which numba's CSR product replaces MKL's: it is 1.4 to 1.6 times as fast at 64, 1.5 to 1.9 times
at 128 (clients of Cora, Amazon-Photo and Coauthor-CS; `tests/performance/test_kernels.py` has Cora's)."""


def compiled(h: Tensor) -> bool:
    """Whether these kernels support this tensor: float32 on the CPU."""
    return h.device.type == "cpu" and h.dtype is torch.float32


@compile_pass
def activate_forward(
    h: np.ndarray, bias: np.ndarray, client: np.ndarray, mask: np.ndarray, scale: np.float32, out: np.ndarray
) -> None:
    """out = relu(h + bias[client]) · mask · scale; h, out (n, width), mask (n, width) of 0 and 1, or
    (0, 0) for none."""
    width, masked = h.shape[1], len(mask) > 0
    for row in range(h.shape[0]):
        offset = bias[client[row]]
        for column in range(width):
            value = max(h[row, column] + offset[column], np.float32(0))
            out[row, column] = value * (scale * np.float32(mask[row, column])) if masked else value


@compile_pass
def activate_backward(
    gradient: np.ndarray,
    out: np.ndarray,
    client: np.ndarray,
    scale: np.float32,
    to_h: np.ndarray,
    to_bias: np.ndarray,
) -> None:
    """to_h = scale · gradient where out > 0, else 0; to_bias (K, width) its sum over each client's rows."""
    width = gradient.shape[1]
    to_bias[:] = 0
    for row in range(gradient.shape[0]):
        total = to_bias[client[row]]
        for column in range(width):
            value = scale * gradient[row, column] if out[row, column] > 0 else np.float32(0)
            to_h[row, column] = value
            total[column] += value


@compile_pass
def _sparse_product(
    pointer: np.ndarray, column: np.ndarray, value: np.ndarray, h: np.ndarray, out: np.ndarray
) -> None:
    """out (rows, width) = the CSR matrix (rows, n) times h (n, width)."""
    flat = h.ravel()
    for row in range(out.shape[0]):
        sum_rows(pointer[row], pointer[row + 1], column, value, flat, out[row])


def sparse_product(matrix: Tensor, h: Tensor) -> Tensor:
    """A CSR matrix (rows, n) times a dense (n, width), on the CPU and on CUDA."""
    out = h.new_empty(matrix.shape[0], h.shape[1])
    if h.shape[1] < NARROW or not (compiled(h) and matrix.dtype is torch.float32):
        # `addmm_` with beta 0 into fresh memory: `torch.mm` of a CSR matrix fills its result with zeros
        # and copies it twice besides, which costs more than the product (results/performance.md).
        return out.addmm_(matrix, h, beta=0)
    _sparse_product(
        matrix.crow_indices().numpy(),
        matrix.col_indices().numpy(),
        matrix.values().detach().numpy(),
        h.detach().contiguous().numpy(),
        out.numpy(),
    )
    return out


@compile_pass
def product_into_rows(
    rows: np.ndarray,
    pointer: np.ndarray,
    column: np.ndarray,
    value: np.ndarray,
    h: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[rows] = the CSR matrix (len(rows), n) times h (n, width); other rows of out stay as they are."""
    flat = h.ravel()
    for index in range(rows.shape[0]):
        sum_rows(pointer[index], pointer[index + 1], column, value, flat, out[rows[index]])


@compile_pass
def narrow_product(h: np.ndarray, weight: np.ndarray, client: np.ndarray, out: np.ndarray) -> None:
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
    gradient: np.ndarray,
    h: np.ndarray,
    weight: np.ndarray,
    client: np.ndarray,
    to_h: np.ndarray,
    to_weight: np.ndarray,
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
def cross_entropy(
    output: np.ndarray, row: np.ndarray, label: np.ndarray, weight: np.ndarray, gradient: np.ndarray
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


@compile_pass
def count_classes(
    output: np.ndarray,
    row: np.ndarray,
    label: np.ndarray,
    client: np.ndarray,
    right: np.ndarray,
    either: np.ndarray,
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
