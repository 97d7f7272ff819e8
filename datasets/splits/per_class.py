"""`per-class`: fixed numbers of training nodes per class and of test nodes; the rest validates (FedCog).
Drawn before partitioning: copies of a node share its role.
"""

from __future__ import annotations

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Count
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits.base import TEST, TRAIN, VALIDATION

VERSION = 2
"""2: drawn from seed and partition; before, all partitions of a graph shared their splits."""


def split(
    labels: np.ndarray,
    partition: Partition,
    generator: np.random.Generator,
    *,
    train: Count = 30,
    test: Count = 1000,
) -> np.ndarray:
    """A role per copy, (Σ n_k,); a class with fewer than `train` nodes trains on all of them.

    Raises UserError if fewer than `test` nodes are left.
    """
    order = generator.permutation(len(labels))
    order = order[labels[order] >= 0]
    by_class = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels[order])
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    roles = np.full(len(labels), VALIDATION)
    roles[by_class[rank < train]] = TRAIN
    rest = order[roles[order] != TRAIN]
    if test > len(rest):
        raise UserError(
            f"split per-class asks for {test} test nodes but {len(rest)} of {len(order)} are left"
            " after training: lower test or train"
        )
    roles[rest[:test]] = TEST
    return roles[partition.origin]
