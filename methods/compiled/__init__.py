"""numba settings for compiled passes, and loops over rows that several of them share.

Matrices whose rows are picked are given as `matrix.ravel()`, with unsigned offsets: that spares the loops one
test for each row whether the rows overlap, and for each index whether it counts from the end.
"""

from functools import partial

import numba
import numpy as np
from numpy import ndarray

FREE = {"nnan", "ninf", "nsz", "contract", "reassoc"}
"""Fast-math flags for sums. Division by an estimate is not allowed: the compiler does it where it vectorises
a loop, which depends on the arrays' memory addresses, so that equal runs could round differently."""

_compile = partial(numba.njit, cache=True, nogil=True, error_model="numpy")

compile_pass = _compile(fastmath=FREE)
"""Decorator for all compiled passes, those of `methods.stacked.kernels` and those of single modules.

numba caches a pass until its own file changes: after changing the loops below, touch their callers' files.
"""

_in_order = _compile(fastmath={"contract"}, forceinline=True)
"""Keeps the order of additions, with fused multiply-add where the processor has it."""

_ZERO = np.float32(0)


@_in_order
def sum_rows(
    start: int, end: int, column: ndarray, value: ndarray, h: ndarray, out: ndarray, width: np.uint64
) -> None:
    """out = Σ value[e] · h[column[e]] over the entries e from start to end; h (n · width,), out (width,).

    Four rows are added at once, so that `out` is read and written once for them. A `width` that the compiler
    knows makes it up to a fifth faster.
    """
    more = (end - start) % 4
    if more == 0:
        for j in range(width):
            out[j] = _ZERO
    elif more == 1:
        a, at_a = value[start], np.uint64(column[start]) * width
        for j in range(width):
            out[j] = _ZERO + a * h[at_a + j]
    elif more == 2:
        a, at_a = value[start], np.uint64(column[start]) * width
        b, at_b = value[start + 1], np.uint64(column[start + 1]) * width
        for j in range(width):
            out[j] = _ZERO + a * h[at_a + j] + b * h[at_b + j]
    else:
        a, at_a = value[start], np.uint64(column[start]) * width
        b, at_b = value[start + 1], np.uint64(column[start + 1]) * width
        c, at_c = value[start + 2], np.uint64(column[start + 2]) * width
        for j in range(width):
            out[j] = _ZERO + a * h[at_a + j] + b * h[at_b + j] + c * h[at_c + j]
    for e in range(start + more, end, 4):
        a, at_a = value[e], np.uint64(column[e]) * width
        b, at_b = value[e + 1], np.uint64(column[e + 1]) * width
        c, at_c = value[e + 2], np.uint64(column[e + 2]) * width
        d, at_d = value[e + 3], np.uint64(column[e + 3]) * width
        for j in range(width):
            out[j] = out[j] + a * h[at_a + j] + b * h[at_b + j] + c * h[at_c + j] + d * h[at_d + j]


@_compile(fastmath=FREE, forceinline=True)
def multiply_rows(start: int, end: int, column: ndarray, h: ndarray, own: ndarray, out: ndarray) -> None:
    """out[e] = ⟨h[column[e]], own⟩ for the entries e from start to end; h (n · width,), own (width,)."""
    width, more = np.uint64(len(own)), (end - start) % 2
    if more:
        at_a, total_a = np.uint64(column[start]) * width, _ZERO
        for j in range(width):
            total_a += h[at_a + j] * own[j]
        out[start] = total_a
    for e in range(start + more, end, 2):
        at_a, total_a = np.uint64(column[e]) * width, _ZERO
        at_b, total_b = np.uint64(column[e + 1]) * width, _ZERO
        for j in range(width):
            total_a += h[at_a + j] * own[j]
            total_b += h[at_b + j] * own[j]
        out[e], out[e + 1] = total_a, total_b


@_in_order
def spread_rows(start: int, end: int, column: ndarray, value: ndarray, h: ndarray, out: ndarray) -> None:
    """out[column[e]] += Σ_j value[j, e] · h[j] for the entries e from start to end; value (steps, entries),
    h (steps, width), out (n · width,)."""
    steps, width = value.shape[0], np.uint64(h.shape[1])
    flat = h.ravel()
    for e in range(start, end):
        at = np.uint64(column[e]) * width
        for step in range(steps % 4):
            a, at_a = value[step, e], np.uint64(step) * width
            for j in range(width):
                out[at + j] += a * flat[at_a + j]
        for step in range(steps % 4, steps, 4):
            a, b, c, d = value[step, e], value[step + 1, e], value[step + 2, e], value[step + 3, e]
            at_a = np.uint64(step) * width
            at_b = at_a + width
            at_c = at_b + width
            at_d = at_c + width
            for j in range(width):
                out[at + j] = (
                    out[at + j]
                    + a * flat[at_a + j]
                    + b * flat[at_b + j]
                    + c * flat[at_c + j]
                    + d * flat[at_d + j]
                )
