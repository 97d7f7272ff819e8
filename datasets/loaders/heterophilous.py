"""The npz format of heterophilous-graphs (Amazon-Ratings, Chameleon, Tolokers, …).

Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023. Arrays:
`node_features` (n, d), `node_labels` (n,), `edges` (m, 2), and optionally the ten published splits
`train_masks`, `val_masks`, `test_masks` (10, n).
"""

from collections.abc import Mapping
from pathlib import Path

from fedsub.datasets.loaders.npz import open_npz
from fedsub.datasets.loaders.raw import RawGraph, checked, malformed, masks_of

MASKS = ("train_masks", "val_masks", "test_masks")


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one file given. Raises MalformedFileError if an array is missing, damaged or does not fit."""
    (path,) = files.values()
    with open_npz(path) as content:
        edges = content["edges"]
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise malformed(path, "its edges are not pairs of nodes")
        features, labels = content["node_features"], content["node_labels"]
        official = None
        if any(name in content for name in MASKS):
            official = masks_of([content[name] for name in MASKS], labels.size, path)
    return checked(RawGraph(edges[:, 0], edges[:, 1], features, labels, official), path)
