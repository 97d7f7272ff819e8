"""A small graph, and writers of it in every upstream format."""

import collections
import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.loaders.ogb import ROLES

NODES = 12
FEATURES = 5
CLASSES = 3
SOURCE = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 4, 4])
TARGET = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 4, 9])
"""A path, one edge stored in both directions, one self-loop, one chord: 12 undirected edges."""
UNDIRECTED_EDGES = 12
LABELS = np.arange(NODES) % CLASSES
DENSE = ((np.arange(NODES)[:, None] * 3 + np.arange(FEATURES)) % 4 == 0).astype(np.float32) * 2
"""Counts of 0 or 2, so that a test notices binarising."""
MASKS = np.arange(3)[:, None, None] == (np.arange(NODES) + np.arange(10)[:, None]) % 3
"""Training, validation and test nodes of ten splits."""
SPARSE = sp.csr_matrix(DENSE)
ADJACENCY = sp.csr_matrix((np.ones(len(SOURCE), dtype=np.float32), (SOURCE, TARGET)), shape=(NODES, NODES))


def python2_pickle(content: object) -> bytes:
    """Pickle with protocol 2 and the module names of numpy and scipy at that time."""
    text = pickle.dumps(content, protocol=2)
    text = text.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    return text.replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")


def write_planetoid(folder: Path, test: list[int], start: int) -> dict[str, Path]:
    """Rows from `start` are the test rows, stored in the order of `test` (node ids, gaps allowed)."""
    one_hot = np.eye(CLASSES, dtype=np.int32)[LABELS]
    neighbours: collections.defaultdict[int, list[int]] = collections.defaultdict(list)
    for u, v in zip(SOURCE.tolist(), TARGET.tolist(), strict=True):
        neighbours[u].append(v)
        neighbours[v].append(u)
    content = {
        "allx": SPARSE[:start],
        "ally": one_hot[:start],
        "tx": SPARSE[test],
        "ty": one_hot[test],
        "graph": neighbours,
    }
    files = {part: folder / f"ind.tiny.{part}" for part in [*content, "test.index"]}
    for part, value in content.items():
        files[part].write_bytes(python2_pickle(value))
    files["test.index"].write_text("".join(f"{node}\n" for node in test))
    return files


def write_gnn_benchmark(path: Path, dotted: bool = False) -> dict[str, Path]:
    """Write one .npz; both spellings of the array names and unused object arrays occur upstream."""
    arrays = {"labels": LABELS, "node_names": np.array(["a", None], dtype=object)}
    for name, matrix in (("adj", ADJACENCY), ("attr", SPARSE)):
        stem = f"{name}_matrix." if dotted else f"{name}_"
        arrays |= {
            f"{stem}data": matrix.data,
            f"{stem}indices": matrix.indices,
            f"{stem}indptr": matrix.indptr,
            f"{stem}shape": np.array(matrix.shape),
        }
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return {"": path}


def write_heterophilous(path: Path) -> dict[str, Path]:
    """Write one .npz with pairs of nodes, dense features, labels and masks."""
    edges = np.stack([SOURCE, TARGET], axis=1)
    masks = dict(zip(("train_masks", "val_masks", "test_masks"), MASKS, strict=True))
    np.savez_compressed(path, node_features=DENSE, node_labels=LABELS, edges=edges, **masks)
    return {"": path}


def write_am_gcn(path: Path, float_labels: bool = False) -> dict[str, Path]:
    """Write a zip with three text files in a folder, beside other files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for ending, table, style in (
            ("edge", np.stack([SOURCE, TARGET], axis=1), "%d"),
            ("feature", DENSE, "%g"),
            ("label", LABELS, "%.18e" if float_labels else "%d"),
        ):
            text = io.StringIO()
            np.savetxt(text, table, fmt=style)
            archive.writestr(f"tiny/tiny.{ending}", text.getvalue())
            archive.writestr(f"__MACOSX/tiny/._tiny.{ending}", "resource fork")
        archive.writestr("../../outside.txt", "a path that leaves the folder")
    return {"": path}


def write_wikics(path: Path) -> dict[str, Path]:
    links = [TARGET[node == SOURCE].tolist() for node in range(NODES)]
    path.write_text(json.dumps({"features": DENSE.tolist(), "labels": LABELS.tolist(), "links": links}))
    return {"": path}


def write_ogb(path: Path, without: str = "") -> dict[str, Path]:
    """Write a zip of compressed tables and one split's node ids; the table `without` is left out."""
    tables = {
        "edge.csv.gz": np.stack([SOURCE, TARGET], axis=1),
        "node-feat.csv.gz": DENSE,
        "node-label.csv.gz": LABELS[:, None],
        "node_year.csv.gz": np.full((NODES, 1), 2013),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, table in tables.items():
            if member != without:
                text = io.StringIO()
                np.savetxt(text, table, delimiter=",", fmt="%g")
                archive.writestr(f"arxiv/raw/{member}", gzip.compress(text.getvalue().encode()))
        for member, nodes in zip(ROLES, (range(6), (6, 8), (7, 9, 10)), strict=True):
            if member != without:
                lines = "".join(f"{node}\n" for node in nodes)
                archive.writestr(f"arxiv/split/time/{member}", gzip.compress(lines.encode()))
        archive.writestr("arxiv/mapping/labelidx2arxivcategeory.csv.gz", b"")
        archive.writestr("arxiv/raw/../../../../outside.csv.gz", b"a path that leaves the folder")
    return {"": path}


def graphsaint_members() -> dict[str, bytes]:
    """Return name → content of the three files; classes are listed in reverse order of the nodes."""
    adjacency, features = io.BytesIO(), io.BytesIO()
    sp.save_npz(adjacency, ADJACENCY)
    np.save(features, DENSE.astype(np.float64))
    classes = {str(node): int(LABELS[node]) for node in reversed(range(NODES))}
    return {
        "adj_full.npz": adjacency.getvalue(),
        "feats.npy": features.getvalue(),
        "class_map.json": json.dumps(classes).encode(),
    }


def write_graphsaint(path: Path, changed: Mapping[str, bytes] = MappingProxyType({})) -> dict[str, Path]:
    """Write one zip file, with the members in `changed` replaced or added."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**graphsaint_members(), **changed}.items():
            archive.writestr(f"flickr/{name}", content)
        archive.writestr("flickr/role.json", "{}")
    return {"": path}
