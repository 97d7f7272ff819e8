"""Merging of communities with similar label distributions, for `louvain-plus` and `metis-plus`."""

from __future__ import annotations

import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.seeding import stream


def histograms(groups: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The share of each class among the labelled nodes of each group, (groups, C); the others are (n,).

    A negative label is none; a group without labels has zeros.
    """
    known = labels >= 0
    cells = (groups * classes + labels)[known]
    counts = np.bincount(cells, minlength=(int(groups.max()) + 1) * classes).reshape(-1, classes)
    return counts / counts.sum(axis=1, keepdims=True).clip(min=1)


def merged(scheme: str, dataset: Dataset, groups: np.ndarray, clients: int, seed: int) -> np.ndarray:
    """A client per node, (n,): the groups whose histograms K-means puts into one of K clusters.

    `groups` (n,) are numbered from 0 without a gap. Raises UserError if there are fewer groups, or fewer
    different histograms, than clients; `scheme` names itself there.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    if not dataset.classes:
        raise UserError(f"{scheme} needs labels, but no node of {dataset.name} has one: use another scheme")
    table = histograms(groups, dataset.labels.numpy(), dataset.classes)
    if (different := len(np.unique(table, axis=0))) < clients:
        raise UserError(
            f"{scheme} finds {len(table)} communities in {dataset.name}, of {different} different label"
            f" distributions: ask for at most {different} clients"
        )
    drawn = int(stream(seed, "clusters of communities").integers(2**32))
    # more threads would sum in another order, and a seed should give one partition on every machine
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cluster = KMeans(clients, n_init="auto", random_state=drawn).fit_predict(table)
    if (filled := len(np.unique(cluster))) < clients:
        raise UserError(
            f"{scheme} finds {filled} clusters of communities in {dataset.name}: ask for that many clients,"
            f" not {clients}"
        )
    return cluster.astype(np.int64)[groups]
