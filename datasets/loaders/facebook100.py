"""Facebook100: friendships within an American college in 2005.

Traud, Mucha and Porter, Social Structure of Facebook Networks, Physica A 2012. One .mat file with the
adjacency `A` (n, n) and `local_info` (n, 7): status, gender, major, minor, dorm, year, high school; 0 is
unknown. The label is the year. Features are status, major, minor and high school, one-hot; gender is left
out. Years with fewer than 100 people give no label. `dorm` is 0 if it is unknown or has fewer than 20 people.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.graph import ones_at
from fedsub.datasets.loaders.mat import read_mat
from fedsub.datasets.loaders.raw import RawGraph, checked, edges_of, malformed

FEATURES = (0, 2, 3, 6)
"""Columns of status, major, minor and high school."""
DORM, YEAR = 4, 5
LEAST_YEAR, LEAST_DORM = 100, 20


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one file given. Raises MalformedFileError if a matrix is missing or does not fit."""
    (path,) = files.values()
    adjacency, known = read_mat(path, ("A", "local_info"))
    if not sp.issparse(adjacency) or sp.issparse(known) or known.shape != (adjacency.shape[0], 7):
        raise malformed(path, "its matrices are not one row for each person")
    features = sp.hstack([_one_hot(known[:, column]) for column in FEATURES], format="csr")
    years, labels, sizes = np.unique(known[:, YEAR], return_inverse=True, return_counts=True)
    kept = (years > 0) & (sizes >= LEAST_YEAR)
    labels = np.where(kept, np.cumsum(kept) - 1, -1)[labels]
    year = np.where(labels >= 0, known[:, YEAR].astype(np.int64), 0)
    _, dorm, people = np.unique(known[:, DORM], return_inverse=True, return_counts=True)
    dorms = np.where(people[dorm] >= LEAST_DORM, known[:, DORM].astype(np.int64), 0)
    attributes = {"dorm": dorms, "year": year}
    return checked(
        RawGraph(*edges_of(adjacency), features, labels, attributes=attributes), path, unlabelled=True
    )


def _one_hot(values: np.ndarray) -> sp.csr_matrix:
    """Return the one-hot matrix of values, (n, number of distinct values)."""
    found, column = np.unique(values, return_inverse=True)
    return ones_at(np.arange(len(values)), column, (len(values), len(found)))
