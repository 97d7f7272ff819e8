"""`ratio`: shares of the whole graph, drawn before partitioning: copies of a node share its role.

Used by FED-PUB and FedStruct.
"""

import numpy as np

from fedsub.datasets.limits import Share
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits.base import Shares, check_shares

VERSION = 2
"""2: drawn from seed and partition; before, all partitions of a graph shared their splits."""

check_options = check_shares


def split(
    labels: np.ndarray,
    partition: Partition,
    generator: np.random.Generator,
    *,
    train: Share = 0.2,
    validation: Share = 0.4,
    test: Share = 0.4,
    stratified: bool = False,
) -> np.ndarray:
    """Draw a role per copy, (Σ n_k,), by shares of the labelled nodes; `stratified`: within every class."""
    return Shares(train, validation, test).drawn(labels, generator, stratified)[partition.origin]
