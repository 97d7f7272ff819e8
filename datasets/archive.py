"""The archive format of graphs: one compressed npz file per graph, read without unpickling.

Arrays: `feat_data`, `feat_indices`, `feat_indptr`, `feat_shape` (CSR) or `feat` (dense); `edge_src`,
`edge_dst` (edges as upstream stores them); `label`; `meta` (JSON text: counts, citation, note). Optional:
`split_train`, `split_validation`, `split_test`, (S, n) bool, for S published splits, and `attribute_NAME`,
(n,) integers or text.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.files import explained, write_atomically
from fedsub.datasets.graph import Dataset, as_array, build_dataset
from fedsub.datasets.loaders.npz import NpzReader, open_npz
from fedsub.datasets.loaders.raw import Features, RawGraph, checked, malformed, masks_of

SPLITS = ("split_train", "split_validation", "split_test")
ATTRIBUTE = "attribute_"
"""Prefix of the names of arrays with attributes of the nodes."""
MOST_CLASSES = np.iinfo(np.int16).max
"""Largest number of classes that a file may state; more must be seen in its labels."""
DENSE_FROM_DENSITY = 0.1
DENSE_UP_TO_COLUMNS = 1024
"""Features at least this dense and at most this wide are multiplied faster as a dense matrix
(PubMed: 46 ms against 84 ms, forward and backward, 128 hidden units, one thread; Amazon-Computers:
49 ms against 129 ms; but UAI, 4,973 columns: 74 ms against 30 ms)."""


def read_archive(path: Path) -> tuple[RawGraph, dict[str, Any]]:
    """Return the arrays and the `meta` of an archive, with `classes` only if that is in 1…`MOST_CLASSES`.

    Raises MalformedFileError if it is truncated, lacks an array, or its arrays do not fit together.
    """
    with open_npz(path) as content:
        if "feat" in content or "feat_data" not in content:
            features: Features = content["feat"]
        else:
            features = content.matrix("feat_")
        labels = content["label"]
        official = None
        if any(name in content for name in SPLITS):
            official = masks_of([content[name] for name in SPLITS], labels.size, path)
        held = [name for name in content.names() if name.startswith(ATTRIBUTE)]
        attributes = {name.removeprefix(ATTRIBUTE): content[name] for name in held}
        raw = RawGraph(content["edge_src"], content["edge_dst"], features, labels, official, attributes)
        meta = _read_meta(content, path)
        return checked(raw, path, unlabelled=True, classes=meta.get("classes", 0)), meta


def _read_meta(content: NpzReader, path: Path) -> dict[str, Any]:
    if "meta" not in content:
        return {}
    try:
        meta = json.loads(str(content["meta"]))
    except (ValueError, RecursionError) as error:
        raise malformed(path, "its meta is not JSON") from error
    if not isinstance(meta, dict):
        raise malformed(path, "its meta is not a JSON object")
    if not (isinstance(classes := meta.get("classes"), int) and 1 <= classes <= MOST_CLASSES):
        meta.pop("classes", None)
    return meta


def write_archive(path: Path, raw: RawGraph, meta: Mapping[str, Any]) -> None:
    """Write an archive, atomically: a reader sees the old file or the whole new one.

    Raises UserError if the folder cannot be written.
    """
    few = raw.labels.max(initial=0) <= np.iinfo(np.int16).max
    arrays: dict[str, np.ndarray] = {
        "edge_src": raw.source.astype(np.int32),
        "edge_dst": raw.target.astype(np.int32),
        "label": raw.labels.astype(np.int16 if few else np.int32),
        "meta": np.array(json.dumps(dict(meta), ensure_ascii=False)),
        **{ATTRIBUTE + name: values for name, values in raw.attributes.items()},
    }
    if raw.official is not None:
        arrays |= dict(zip(SPLITS, raw.official, strict=True))
    if sp.issparse(raw.features):
        arrays["feat_data"] = _compact(raw.features.data)
        arrays["feat_indices"] = raw.features.indices.astype(np.int32)
        arrays["feat_indptr"] = raw.features.indptr.astype(np.int64)
        arrays["feat_shape"] = np.array(raw.features.shape, dtype=np.int64)
    else:
        arrays["feat"] = _compact(np.asarray(raw.features))
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    fix = "choose a writable folder (for downloads, set FEDSUB_CACHE)"
    with explained("write", path, fix):
        write_atomically(path, content.getbuffer())


def _compact(values: np.ndarray) -> np.ndarray:
    """Return values as uint8 if that is exact (0…255), else as stored or rounded to float32, which all graphs
    are read as."""
    with np.errstate(invalid="ignore"):
        small = values.astype(np.uint8)
    if (small == values).all():
        return small
    return values if values.dtype in (np.float16, np.float32) else values.astype(np.float32)


def as_raw(dataset: Dataset) -> RawGraph:
    """Return the arrays of a Dataset, with every undirected edge once."""
    source, target = (end.numpy() for end in dataset.graph.edges())
    once = source < target
    arrays = (source[once], target[once], as_array(dataset.features), dataset.labels.numpy())
    return RawGraph(*arrays, dataset.official, dataset.attributes)


def as_dataset(name: str, raw: RawGraph, classes: int | None = None, note: str = "") -> Dataset:
    """Return the cleaned graph, its features in the form (dense or CSR) that is multiplied faster."""
    features, (rows, columns) = raw.features, raw.features.shape
    sparse = sp.issparse(features)
    entries = features.nnz if sparse else np.count_nonzero(features)
    dense = columns <= DENSE_UP_TO_COLUMNS and entries >= DENSE_FROM_DENSITY * rows * columns
    if dense == sparse:
        features = features.astype(np.float32)
        features = features.toarray() if sparse else sp.csr_matrix(features)
    dataset = build_dataset(name, raw.source, raw.target, features, raw.labels, classes, note)
    return replace(dataset, official=raw.official, attributes=raw.attributes)
