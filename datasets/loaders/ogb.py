"""OGB's node-property graphs (ogbn-arxiv), from the raw CSV files in its zip.

Hu et al., Open Graph Benchmark, NeurIPS 2020. OGB's own dataset classes unpickle a processed file instead.
"""

import gzip
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedsub.datasets.loaders.raw import RawGraph, checked, malformed, open_zip, sole_member, too_large

MEMBERS = ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz")
"""Members that are read; publication years are not used."""
ROLES = ("train.csv.gz", "valid.csv.gz", "test.csv.gz")
"""Members with the node ids of the published split, in a folder of `split`."""


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one zip file given. Raises MalformedFileError if a member is missing or damaged."""
    (path,) = files.values()
    with open_zip(path, "the CSV files of OGB") as archive:
        ends, features, labels = (_read(archive, path, member) for member in MEMBERS)
        source, target = ends.T
        features = features.astype(np.float32)
        official = np.zeros((len(ROLES), 1, len(labels)), dtype=bool)
        for mask, member in zip(official, ROLES, strict=True):
            held = _read(archive, path, member).ravel()
            if held.size and not 0 <= held.min() <= held.max() < len(labels):
                raise malformed(path, f"its split names a node outside its {len(labels)} nodes")
            mask[0, held] = True
    return checked(RawGraph(source, target, features, labels.ravel(), official), path)


def _read(archive: zipfile.ZipFile, path: Path, member: str) -> np.ndarray:
    """Read a table of numbers without a header row, (rows, columns)."""
    # Slow to import, and needed only for this graph.
    import pandas

    with gzip.open(archive.open(sole_member(archive, path, f"/{member}"))) as stream:
        # A gzip file does not state its size.
        size = 0
        while chunk := stream.read(2**20):
            size += len(chunk)
            if reason := too_large(size, path):
                raise malformed(path, reason)
        stream.seek(0)
        found: np.ndarray = pandas.read_csv(stream, header=None).to_numpy()
    return found
