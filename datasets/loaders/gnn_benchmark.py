"""The npz format of gnn-benchmark (Amazon, Coauthor) and graph2gauss (citation-full DBLP).

Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018; Bojchevski and Günnemann, ICLR 2018.
Adjacency and features are CSR matrices in four arrays each; `labels` holds an integer per node. The files
also hold names as object arrays, which are not read because they would need unpickling.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import scipy.sparse as sp

from fedsub.datasets.loaders.npz import NpzReader, open_npz
from fedsub.datasets.loaders.raw import RawGraph, checked, csr, edges_of


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one file given; features stay counts if upstream has counts.

    Raises MalformedFileError if an array is missing, damaged or does not fit.
    """
    (path,) = files.values()
    with open_npz(path) as content:
        features = content["attr_matrix"] if "attr_matrix" in content else _matrix(content, "attr")
        return checked(RawGraph(*edges_of(_matrix(content, "adj")), features, content["labels"]), path)


def _matrix(content: NpzReader, name: str) -> sp.csr_matrix:
    fields = ("data", "indices", "indptr", "shape")
    *parts, shape = (content.first(f"{name}_{field}", f"{name}_matrix.{field}") for field in fields)
    return csr(parts, shape, content.path)
