"""The npz format of gnn-benchmark (Amazon, Coauthor) and graph2gauss (citation-full DBLP).

Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018; Bojchevski and Günnemann, ICLR 2018.
Adjacency and features are CSR matrices in four arrays each; `labels` holds an integer per node. The files
also hold names as object arrays, which are not read because they would need unpickling.
"""

from collections.abc import Mapping
from pathlib import Path

from fedsub.datasets.loaders.npz import open_npz
from fedsub.datasets.loaders.raw import RawGraph, checked, edges_of


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one file given; features stay counts if upstream has counts.

    Raises MalformedFileError if an array is missing, damaged or does not fit.
    """
    (path,) = files.values()
    with open_npz(path) as content:
        dense = "attr_matrix" in content
        features = content["attr_matrix"] if dense else content.matrix("attr_", "attr_matrix.")
        adjacency = content.matrix("adj_", "adj_matrix.")
        return checked(RawGraph(*edges_of(adjacency), features, content["labels"]), path)
