"""Planetoid's eight files per graph (Cora, CiteSeer, PubMed).

Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016. Files `ind.NAME.x`,
`y` (training), `allx`, `ally` (all except test), `tx`, `ty` (test), `graph` (node → list of neighbours),
`test.index` (text: node ids of the test rows). All except the last are Python 2 pickles.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.loaders.pickles import as_array, as_matrix, load_pickle
from fedsub.datasets.loaders.raw import RawGraph, checked, malformed, single

PARTS = ("allx", "ally", "tx", "ty", "graph", "test.index")
"""Files that are read; x and y are contained in allx and ally."""
TRAIN_PER_CLASS, VALIDATION, TEST = 20, 500, 1000
"""Numbers of nodes in the public split."""


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the parts, keyed as in `PARTS`; `test.index` gives the places of the test rows.

    CiteSeer's test indices have gaps for isolated documents without a row. They become nodes with empty
    features and label 0, as in the usual loaders.
    Raises MalformedFileError if a file is damaged or the parts do not fit together.
    """
    content = {}
    for part in PARTS[:-1]:
        with files[part].open("rb") as stream:
            content[part] = load_pickle(stream, files[part])
    test = _read_indices(files["test.index"])

    known = as_matrix(content["allx"], files["allx"])
    tested = as_matrix(content["tx"], files["tx"])
    known_labels, tested_labels = (_one_hot(content[part], files[part]) for part in ("ally", "ty"))
    if known_labels.shape[1] != tested_labels.shape[1]:
        raise malformed(
            files["ty"], f"{tested_labels.shape[1]} classes where ally has {known_labels.shape[1]}"
        )
    start = known.shape[0]
    if len(test) != tested.shape[0] or len(tested_labels) != len(test) or len(known_labels) != start:
        raise malformed(files["test.index"], "the numbers of test indices, test rows and labels differ")
    if known.shape[1] != tested.shape[1] or len(np.unique(test)) != len(test) or test.min() < start:
        raise malformed(files["test.index"], "the test rows do not continue the other rows")

    nodes = int(test.max()) + 1
    row_of_node = np.full(nodes, -1)
    row_of_node[:start] = np.arange(start)
    row_of_node[test] = start + np.arange(len(test))
    stacked = sp.vstack([known, tested, sp.csr_matrix((1, known.shape[1]))], format="csr")
    one_hot = np.concatenate([known_labels, tested_labels, np.zeros((1, known_labels.shape[1]))])
    # Isolated nodes without a row have row −1, the empty one appended last.
    features = single(stacked[row_of_node])
    labels = one_hot[row_of_node].argmax(axis=1)

    source, target = _read_adjacency(content["graph"], files["graph"])
    tested = np.isin(np.arange(nodes), test)
    raw = RawGraph(source, target, features, labels, public_split(labels, tested))
    return checked(raw, files["graph"])


def public_split(labels: np.ndarray, tested: np.ndarray) -> np.ndarray | None:
    """Return the split of Yang et al., as in `RawGraph.official`; None for other graphs in this format.

    `tested` (n,) bool is the mask of the nodes in `test.index`. In upstream's order, 20 training nodes of
    every class come first and 500 validation nodes follow.
    """
    # Nodes without a label cannot be counted by class.
    if labels.min() < 0:
        return None
    train = TRAIN_PER_CLASS * (int(labels.max()) + 1)
    held = np.bincount(labels[:train])
    if (
        (held != TRAIN_PER_CLASS).any()
        or len(labels) < train + VALIDATION
        or tested[: train + VALIDATION].any()
    ):
        return None
    place = np.arange(len(labels))
    return np.stack([place < train, (place >= train) & (place < train + VALIDATION), tested])[:, np.newaxis]


def split_of_archive(raw: RawGraph) -> np.ndarray | None:
    """Return `public_split` for an old archive, which did not store it.

    The test nodes are the last 1,000 nodes with features; CiteSeer's isolated test nodes have none.
    """
    described = np.flatnonzero(np.diff(sp.csr_matrix(raw.features).indptr))
    return public_split(raw.labels, np.isin(np.arange(len(raw.labels)), described[-TEST:]))


def _one_hot(labels: object, path: Path) -> np.ndarray:
    array = as_array(labels, path)
    if array.ndim != 2 or not array.shape[1]:
        raise malformed(path, "the labels are not one row per node, one column per class")
    return array


def _read_indices(path: Path) -> np.ndarray:
    try:
        indices = np.array(path.read_text(encoding="ascii").split(), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise malformed(path, "not a list of integers") from error
    if len(indices) == 0 or len(indices) > 10**8 or indices.max() > 10**8:
        raise malformed(path, "not a list of node ids")
    return indices


def _read_adjacency(graph: object, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(graph, dict) or not all(isinstance(near, list) for near in graph.values()):
        raise malformed(path, "not a dictionary of neighbour lists")
    try:
        ids = np.fromiter(graph.keys(), dtype=np.int64, count=len(graph))
        degrees = np.fromiter(map(len, graph.values()), dtype=np.int64, count=len(graph))
        neighbours = (near for nears in graph.values() for near in nears)
        return np.repeat(ids, degrees), np.fromiter(neighbours, dtype=np.int64, count=int(degrees.sum()))
    except (TypeError, ValueError, OverflowError) as error:
        raise malformed(path, "a neighbour is not a node id") from error
