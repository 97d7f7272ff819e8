"""Splits into train, validation and test. `make_split(dataset, partition, scheme, seed)`.

A split is a module in this package with the split's name, `_` in place of `-`. Its function
`split(labels, partition, generator, *, option=default, …)` returns a role (`datasets.splits.base`) per copy
of a node, (Σ n_k,) integers in the order of `Partition.origin`. A node without a label has the label −1 and
gets no role, whatever is returned for it. A split that needs more of the graph than its labels calls its
first parameter `dataset`. Other splits are found through the entry point group `fedsub.splits`, or by the
path of a .py file. A split that changes its roles for a seed raises its `VERSION` (1 if unset).
"""

import inspect

import numpy as np
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.options import Spec, format_name
from fedsub.datasets.partition.base import Partition
from fedsub.datasets.plugins import Kind
from fedsub.datasets.seeding import stream
from fedsub.datasets.splits.base import TEST, TRAIN, UNUSED, VALIDATION, Split, checked_roles

SCHEMES = Kind("split", function="split", group="fedsub.splits", package=__name__, shared=("base",), given=3)


def make_split(
    source: Dataset | Tensor | np.ndarray,
    partition: Partition,
    scheme: str | Spec,
    seed: int,
    classes: int | None = None,
) -> Split:
    """Draw the roles of the nodes.

    `source` is the dataset or, for a split that needs only labels, the labels (n,), in 0…classes−1 or −1 for
    nodes without one. `scheme` is a name of `SCHEMES.names()` or the path of a .py file, with optional
    options in brackets: `ratio[train=0.4]`. The draw depends on the seed, the number of nodes, the
    partition's scheme and its number of clients, so that two partitions of one graph have different splits.
    Raises UserError for an unknown split or option, shares outside 0…1 or beyond 1 in total, no share for
    training or for test, more nodes requested than exist, a split that breaks its contract, and a split that
    needs the dataset if only labels are given.
    """
    spec = Spec.of(scheme)
    options = {**SCHEMES.options_of(spec.name), **SCHEMES.check(spec)}
    labels = np.asarray(source.labels if isinstance(source, Dataset) else source)
    if classes is None:
        classes = source.classes if isinstance(source, Dataset) else int(labels.max()) + 1
    if labels.min() < -1 or labels.max() >= classes:
        raise UserError(f"labels run from {labels.min()} to {labels.max()}: expected 0 to {classes - 1}")
    unlabelled = labels < 0
    purpose = f"split of {len(labels)} nodes by {partition.scheme} among {partition.clients}"
    given: Dataset | np.ndarray = labels
    if next(iter(inspect.signature(SCHEMES.find(spec.name)).parameters), "") == "dataset":
        if not isinstance(source, Dataset):
            raise UserError(f"split {spec.name} needs more than labels: give make_split the dataset")
        given = source
    drawn = SCHEMES.call(spec.name, given, partition, stream(seed, purpose), **options)
    roles = checked_roles(spec.name, drawn, len(partition.origin))
    roles = np.where(unlabelled[partition.origin], UNUSED, roles)
    return Split(format_name(spec.name, options), roles == TRAIN, roles == VALIDATION, roles == TEST)
