"""Papers of three digital libraries (ACM, Citation, DBLP), joined by citations within each library.

Shen et al., Adversarial Deep Network Embedding for Cross-network Node Classification, AAAI 2020. One .mat
file per library with `network` (n, n), `attrb` (n, 6775) and `group` (n, 5). A paper in several groups, or in
none, has no label.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.loaders.mat import read_mat
from fedsub.datasets.loaders.raw import RawGraph, checked, edges_of, malformed

LIBRARIES = {"acmv9.mat": "acm", "citationv1.mat": "citation", "dblpv7.mat": "dblp"}


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the three files given. Raises MalformedFileError if a matrix is missing or does not fit."""
    networks: list[sp.csr_matrix] = []
    features: list[sp.csr_matrix] = []
    labels: list[np.ndarray] = []
    for part in LIBRARIES:
        read = read_mat(files[part], ("network", "attrb", "group"))
        network, words, groups = map(sp.csr_matrix, read)
        nodes = network.shape[0]
        if network.shape != (nodes, nodes) or words.shape[0] != nodes or groups.shape[0] != nodes:
            raise malformed(files[part], "its matrices are not one row for each paper")
        if features and words.shape[1] != features[0].shape[1]:
            raise malformed(files[part], "its papers have other features than the first library's")
        networks.append(network)
        features.append(words)
        held = groups.toarray() > 0
        labels.append(np.where(held.sum(axis=1) == 1, held.argmax(axis=1), -1))
    owner = np.repeat(np.array(list(LIBRARIES.values())), [len(each) for each in labels])
    raw = RawGraph(
        *edges_of(sp.block_diag(networks, format="csr")),
        sp.vstack(features, format="csr"),
        np.concatenate(labels),
        attributes={"library": owner},
    )
    return checked(raw, files["acmv9.mat"], unlabelled=True)
