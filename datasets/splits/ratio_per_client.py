"""`ratio-per-client`: shares of a client's nodes, by class if stratified (FedSpray; OpenFGL up to rounding).

FedSpray rounds the shares and keeps at least one training node. Options for other methods' code: FedTAD
`stratified=true,rounding=floor`; FedGTA and AdaFGL `rounding=floor`. Copies of a node may differ in role.
"""

import numpy as np

from fedsub.datasets.limits import Share
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.splits.base import Rounding, Shares, check_shares

VERSION = 2
"""2: drawn from seed and partition; before, all partitions of a graph shared their splits."""

check_options = check_shares


def split(
    labels: np.ndarray,
    partition: Partition,
    generator: np.random.Generator,
    *,
    train: Share = 0.4,
    validation: Share = 0.3,
    test: Share = 0.3,
    stratified: bool = False,
    rounding: Rounding = "nearest",
) -> np.ndarray:
    """Draw a role per copy, (Σ n_k,), by shares of the labelled nodes of each client.

    `stratified`: within each class of a client; `rounding`: see `Shares.drawn`. With `floor`, a class with
    few nodes at a client has no training node there.
    """
    shares = Shares(train, validation, test)
    return np.concatenate(
        [shares.drawn(labels[nodes], generator, stratified, 1, rounding) for nodes in partition.nodes]
    )
