"""AM-GCN's zip files (ACM, BlogCatalog, Flickr, UAI2010).

Wang et al., AM-GCN: Adaptive Multi-channel Graph Convolutional Networks, KDD 2020. Each zip has three text
members: `NAME.edge` (a pair of nodes per line), `NAME.feature` (a dense row per node), `NAME.label`.
"""

import warnings
import zipfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.loaders.raw import RawGraph, checked, malformed, open_zip, sole_member

_ROWS_AT_ONCE = 128


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one zip file given. Raises MalformedFileError if a member is missing or damaged."""
    (path,) = files.values()
    with open_zip(path, "tables of numbers") as archive:
        edges, labels = (_integers(archive, path, ending) for ending in (".edge", ".label"))
        with archive.open(sole_member(archive, path, ".feature")) as stream:
            features = _read_features(stream)
    if len(edges) % 2:
        raise malformed(path, "an edge has one end only")
    return checked(RawGraph(edges[0::2], edges[1::2], features, labels), path)


def _integers(archive: zipfile.ZipFile, path: Path, ending: str) -> np.ndarray:
    text = archive.read(sole_member(archive, path, ending))
    # Some files write integers as 3.000000000000000000e+00.
    values = np.array(text.split(), dtype=np.float64)
    if (values != np.rint(values)).any():
        raise ValueError(f"{ending} holds fractions")
    return values.astype(np.int64)


def _read_features(stream: IO[bytes]) -> sp.csr_matrix:
    """Read rows of numbers as CSR, in blocks, since Flickr's 91 million numbers are nearly all zero."""
    blocks: list[sp.csr_matrix] = []
    columns = 0
    lines = filter(None, map(bytes.strip, stream))
    while block := list(islice(lines, _ROWS_AT_ONCE)):
        columns = columns or len(block[0].split())
        with warnings.catch_warnings():
            # Older numpy only warns about remaining text; the count below detects it.
            warnings.simplefilter("ignore", DeprecationWarning)
            # This takes half the time of converting a split list.
            values = np.fromstring(b" ".join(block), dtype=np.float32, sep=" ")
        if len(values) != len(block) * columns:
            raise ValueError("the rows of .feature differ in length or hold something else than numbers")
        blocks.append(sp.csr_matrix(values.reshape(-1, columns)))
    if not blocks:
        raise ValueError("no features")
    return sp.vstack(blocks, format="csr")
