"""OGB's node-property graphs (ogbn-arxiv), from the raw CSV files in its zip.

Hu et al., Open Graph Benchmark, NeurIPS 2020: a pair of nodes, a row of features, a label on each line. The
package `ogb` is not used: its dataset classes unpickle a processed file, which torch ≥ 2.6 refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from datasets.loaders.raw import RawGraph, checked, open_zip, single, sole_member

MEMBERS = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")
"""The members needed, all in the folder `raw` of the zip; publication years and the split are not used."""


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one zip file given. Raises MalformedFileError if a member is missing or damaged."""
    # Takes longer to import than this package, and no other loader needs it.
    import pandas as pd

    (path,) = files.values()
    tables = []
    with open_zip(path, "the CSV files of OGB") as archive:
        for member in MEMBERS:
            with archive.open(sole_member(archive, path, f"/raw/{member}")) as packed:
                tables.append(pd.read_csv(packed, compression="gzip", header=None).to_numpy())
        edges, features, labels = tables
        source, target = edges.T
        return checked(RawGraph(source, target, single(features), labels[:, 0]), path)
