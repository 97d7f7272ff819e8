"""`metis-imbalanced`: METIS parts of equal size, some of them merged into larger clients.

FED-PUB, Appendix C.10 (Fig. 12): 20 parts, of which five, three, two, two and two are merged. With
the six left over these make eleven clients where the paper says ten.
"""

from __future__ import annotations

import numpy as np

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.datasets.limits import Count
from fedsub.datasets.partition import metis

VERSION = metis.VERSION


def check_options(*, merge: str, **others: object) -> None:
    """Raises UserError for a list of parts to merge that cannot be read."""
    _counts(merge)


def partition(
    dataset: Dataset,
    clients: int,
    seed: int,
    *,
    parts: Count = 20,
    merge: str = "5+3+2+2+2",
    recursive: bool = False,
    contiguous: bool = False,
) -> np.ndarray:
    """METIS into `parts`; merge as many as `merge` lists into one client each, in METIS's order.

    The parts left over are clients of their own, of which the two smallest are merged until K clients
    remain (one such merge for ten clients). The other options are METIS's.
    Returns a client per node, (n,) int64: merged clients first, then the left-overs in METIS's order.
    Raises UserError if the numbers do not admit K clients or the graph has fewer nodes than parts.
    """
    merged = _counts(merge)
    left = parts - sum(merged)
    fewest, most = len(merged) + min(left, 1), len(merged) + left
    if left < 0 or not fewest <= clients <= most:
        raise UserError(
            f"metis-imbalanced makes {fewest} to {max(most, fewest)} clients of {parts} parts merged as"
            f" {merge}, not {clients}: change clients, parts or merge"
        )
    if parts > dataset.nodes:
        raise UserError(f"{dataset.name} has {dataset.nodes} nodes, fewer than {parts} parts: lower parts")
    found = metis.partition(dataset, parts, seed, recursive=recursive, contiguous=contiguous)
    client = np.concatenate([np.repeat(np.arange(len(merged)), merged), len(merged) + np.arange(left)])
    while client.max() + 1 > clients:
        sizes = np.bincount(client[found])
        singles = np.arange(len(merged), len(sizes))
        first, second = np.sort(singles[np.argsort(sizes[singles], kind="stable")[:2]])
        client[client == second] = first
        client[client > second] -= 1
    return client[found]


def _counts(merge: str) -> np.ndarray:
    try:
        counts = np.array(merge.split("+"), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise UserError(f"option merge={merge} of metis-imbalanced must read like 5+3+2") from error
    if counts.min() < 1:
        raise UserError(f"option merge={merge} of metis-imbalanced must list counts of at least 1")
    return counts
