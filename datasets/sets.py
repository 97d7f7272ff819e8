"""Sets of whole numbers as ascending arrays.

`np.unique` of numpy 2.3 and later uses hashing, and `np.isin` calls it: for a million edge codes that takes
0.55 s, sorting takes 0.01 s.
"""

import numpy as np


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct `values` ((m,) integers), ascending."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def among(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """Return which of `values` ((m,) integers) are in `ascending` ((l,) sorted integers); (m,) bool."""
    if not len(ascending):
        return np.zeros(len(values), dtype=bool)
    at = np.searchsorted(ascending, values)
    return ascending[np.minimum(at, len(ascending) - 1)] == values
