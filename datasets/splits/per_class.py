"""`per-class`: fixed numbers of training nodes per class and of test nodes, the rest validation (FedCog).
With a fixed number of validation nodes, the rest are test nodes (FederatedScope-GNN). Roles are drawn before
partitioning, so that copies of a node share its role.
"""

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.limits import Count, Size
from fedsub.datasets.partition.base import Partition, ranks_within
from fedsub.datasets.splits.base import TEST, TRAIN, VALIDATION

TESTED = 1000
"""Default number of test nodes."""
VERSION = 2
"""2: drawn from seed and partition; before, all partitions of a graph shared their splits."""


def split(
    labels: np.ndarray,
    partition: Partition,
    generator: np.random.Generator,
    *,
    train: Count = 30,
    test: Count = TESTED,
    validation: Size = 0,
) -> np.ndarray:
    """Draw a role per copy, (Σ n_k,); a class with fewer than `train` nodes trains on all of them.

    `validation`: if not 0, the number of validation nodes; all others are test nodes, and `test` has no
    effect. Raises UserError if fewer than `test` nodes are left, or no more than `validation`, and for a
    `test` without effect.
    """
    if validation and test != TESTED:
        raise UserError(f"per-class's test={test} has no effect with validation={validation}: leave it out")
    order = generator.permutation(len(labels))
    order = order[labels[order] >= 0]
    roles = np.full(len(labels), VALIDATION)
    roles[order[ranks_within(labels[order]) < train]] = TRAIN
    rest = order[roles[order] != TRAIN]
    name, fixed = ("validation", validation) if validation else ("test", test)
    if fixed + bool(validation) > len(rest):
        raise UserError(
            f"split per-class asks for {fixed} {name} nodes but {len(rest)} of {len(order)} are left"
            f" after training: lower {name} or train"
        )
    roles[rest[validation:] if validation else rest[:test]] = TEST
    return roles[partition.origin]
