"""FedStruct's passes over memory, compiled by numba: the largest entries of a block, and who reaches whom."""

from __future__ import annotations

import numba
import numpy as np

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")

_COARSE = 20
"""Low bits that the histogram leaves out: 2^11 bins for float32 that are not negative."""


@_compiled
def keep_largest(values: np.ndarray, rows: np.ndarray, keep: int) -> int:
    """Set all but the `keep` largest entries of values[rows] to zero, of equal ones keep the first.

    `values` (m, width) are the bits of float32, none negative, as int32, which order as the numbers do;
    `keep` is at least 1. Returns how many entries were not zero before.
    """
    histogram = np.zeros(1 << (31 - _COARSE), dtype=np.int64)
    for row in rows:
        for bits in values[row]:
            if bits > 0:
                histogram[bits >> _COARSE] += 1
    count = histogram.sum()
    if count <= keep:
        return count
    coarse, wanted = len(histogram) - 1, keep
    while histogram[coarse] < wanted:
        wanted -= histogram[coarse]
        coarse -= 1
    candidates = np.empty(histogram[coarse], dtype=np.int32)
    held = 0
    for row in rows:
        for bits in values[row]:
            if bits > 0 and bits >> _COARSE == coarse:
                candidates[held] = bits
                held += 1
    least = np.partition(candidates, held - wanted)[held - wanted]
    equal = wanted - (candidates > least).sum()
    if equal == (candidates == least).sum():
        for row in rows:
            entries = values[row]
            for column in range(len(entries)):
                entries[column] = entries[column] if entries[column] >= least else 0
        return count
    for row in rows:
        entries = values[row]
        for column in range(len(entries)):
            if entries[column] == least and equal > 0:
                equal -= 1
            elif entries[column] <= least:
                entries[column] = 0
    return count


@_compiled
def spread_bits(pointer: np.ndarray, column: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
    """out[v] = the union of bits[u] over the columns u of row v of a CSR matrix; both (n, words) uint64."""
    for row in range(len(out)):
        total = out[row]
        total[:] = 0
        for entry in range(pointer[row], pointer[row + 1]):
            source = bits[column[entry]]
            for word in range(len(total)):
                total[word] |= source[word]


@_compiled
def count_bits(bits: np.ndarray) -> int:
    """How many bits of a (n, words) uint64 array are set."""
    total = 0
    for row in bits:
        for word in row:
            while word:
                word &= word - np.uint64(1)
                total += 1
    return total
