"""GraphSAINT's files (Flickr with 89,250 nodes), in one zip as DGL distributes them.

Zeng et al., GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020. Members: `adj_full.npz`
(scipy CSR), `feats.npy` (n, d), `class_map.json` (node → class); the split in role.json is not used.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedsub.datasets.loaders.npz import open_npz
from fedsub.datasets.loaders.raw import RawGraph, checked, edges_of, open_zip, single, sole_member


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one zip file given. Raises MalformedFileError if a member is missing or damaged."""
    (path,) = files.values()
    with open_zip(path, "GraphSAINT's") as archive:
        stored, rows, classes = (
            io.BytesIO(archive.read(sole_member(archive, path, member)))
            for member in ("adj_full.npz", "feats.npy", "class_map.json")
        )
        with open_npz(path, stored) as parts:
            adjacency = parts.matrix("")
        features = single(np.load(rows, allow_pickle=False))
        named = json.load(classes)
        labels = np.array([int(named[str(node)]) for node in range(len(named))], dtype=np.int64)
    return checked(RawGraph(*edges_of(adjacency), features, labels), path)
