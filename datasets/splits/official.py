"""`official`: a split published with the graph: Planetoid's, OGB's, one of the ten of Platonov et al.

Copies of a node share its role.
"""

import numpy as np

from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Size
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits.base import UNUSED

WITH_SPLITS = ("planetoid", "ogb", "heterophilous")
"""Loaders of files that contain a split."""


def split(
    dataset: Dataset, partition: Partition, generator: np.random.Generator, *, index: Size = 0
) -> np.ndarray:
    """Return a role per copy, (Σ n_k,), by the graph's split number `index` (from 0); nothing is drawn.

    Raises UserError if the graph has no official split, or none of that number.
    """
    if dataset.official is None:
        info = REGISTRY.get(dataset.name.partition("[")[0])
        if info is None:
            fix = (
                ", or give its nodes the masks train_mask, val_mask and test_mask (in an archive split_train,"
                " split_validation and split_test)"
            )
        else:
            came = info.loader in WITH_SPLITS
            fix = f", or delete its archive, {info.name}.npz, which is then fetched again" if came else ""
        raise UserError(f"{dataset.name} has no official split: use another split{fix}")
    splits = dataset.official.shape[1]
    if not 0 <= index < splits:
        raise UserError(f"official[index={index}]: {dataset.name} has splits 0 to {splits - 1}")
    return as_roles(dataset.official[:, index])[partition.origin]


def as_roles(masks: np.ndarray) -> np.ndarray:
    """Return the role of each of n nodes, (n,), from masks of training, validation and test nodes, (3, n)."""
    return np.where(masks.any(axis=0), masks.argmax(axis=0), UNUSED)
