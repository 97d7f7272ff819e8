"""OGB's node-property graphs (ogbn-arxiv), from the raw CSV files in its zip.

Hu et al., Open Graph Benchmark, NeurIPS 2020. `ogb`'s own reader parses the CSV files; its dataset
classes are not used, because they unpickle a processed file, which torch ≥ 2.6 refuses.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedsub.datasets.loaders.raw import DAMAGE, MalformedFileError, RawGraph, checked, malformed, sole_member

MEMBERS = (
    "edge.csv.gz",
    "node-feat.csv.gz",
    "node-label.csv.gz",
    "num-node-list.csv.gz",
    "num-edge-list.csv.gz",
)
"""The members needed, all in the folder `raw` of the zip; publication years are not used."""
ROLES = ("train.csv.gz", "valid.csv.gz", "test.csv.gz")
"""Node ids of the published split, in a folder of `split`."""


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one zip file given; only the members in `MEMBERS` are written out, under those names.

    Raises MalformedFileError if a member is missing or damaged.
    """
    # Slow to import, and needed for this graph alone.
    from ogb.io.read_graph_raw import read_csv_graph_raw

    (path,) = files.values()
    with tempfile.TemporaryDirectory(prefix="fedsub-ogb-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                for member in MEMBERS:
                    with (
                        archive.open(sole_member(archive, path, f"/raw/{member}")) as packed,
                        (Path(folder) / member).open("wb") as unpacked,
                    ):
                        shutil.copyfileobj(packed, unpacked)
            # the reader reports its progress on standard output, which belongs to our own results
            with contextlib.redirect_stdout(sys.stderr):
                (graph,) = read_csv_graph_raw(folder)
            with gzip.open(Path(folder) / "node-label.csv.gz", "rt", encoding="ascii") as lines:
                labels = np.loadtxt(lines, dtype=np.int64, delimiter=",", ndmin=1)
            official = _read_split(path, len(labels))
        except MalformedFileError:
            raise
        except (ValueError, TypeError, KeyError, AssertionError) as error:
            raise malformed(path, f"not the CSV files of OGB ({error})") from error
        except DAMAGE as error:
            raise malformed(path, "not a zip file, or truncated") from error
    if graph["node_feat"] is None:
        raise malformed(path, "it has no node features")
    source, target = graph["edge_index"]
    return checked(RawGraph(source, target, graph["node_feat"].astype(np.float32), labels, official), path)


def _read_split(path: Path, nodes: int) -> np.ndarray:
    """The one published split, (3, 1, n) bool."""
    masks = np.zeros((len(ROLES), 1, nodes), dtype=bool)
    with zipfile.ZipFile(path) as archive:
        for mask, member in zip(masks, ROLES, strict=True):
            with gzip.open(
                archive.open(sole_member(archive, path, f"/{member}")), "rt", encoding="ascii"
            ) as lines:
                held = np.loadtxt(lines, dtype=np.int64, delimiter=",", ndmin=1)
            if len(held) and (held.min() < 0 or held.max() >= nodes):
                raise malformed(path, f"its split names a node outside its {nodes} nodes")
            mask[0, held] = True
    return masks
